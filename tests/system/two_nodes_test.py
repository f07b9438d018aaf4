"""Two nodes, each in a network namespace of its own: meeting, refusing, failing, losing each other."""
import os
import socket
import re
import signal
import time

import harness

PORT = "29500"
FASHION = os.path.join(harness.EXAMPLES, "ddp_fashion_mnist.py")


def rank_list(ranks):
    """"0-2" or "1-3" or "0, 2, 3", as dlaunch writes it: runs of three and more."""
    text = ", ".join(map(str, ranks))
    return re.sub(r"^(\d), (\d), (\d)$", lambda m: "%s-%s" % (m[1], m[3]) if int(m[3]) - int(m[1]) == 2 else m[0], text)


class Nodes(harness.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(self, 2)

    def node(self, rank, *program, flags=(), nproc=2, nnodes=2, addr="10.77.0.1", **how):
        """dlaunch on that node, as start.sh has it."""
        return self.cluster.start_dlaunch(
            rank, ["--nnodes=%d" % nnodes, "--node_rank=%d" % rank, "--nproc_per_node=%d" % nproc,
                   "--master_addr=" + addr, "--master_port=" + PORT, *flags, *program], **how)

    def both(self, *program, **how):
        return [self.node(rank, *program, **how) for rank in (0, 1)]

    def ended(self, runs, codes, within=30):
        """Both end in that time, with these codes (one number: the same), and leave nothing."""
        codes = [codes] * len(runs) if isinstance(codes, int) else codes
        deadline = time.monotonic() + within
        for run, code in zip(runs, codes):
            self.assertEqual(run.wait(max(deadline - time.monotonic(), 0.1)), code, str(run))
        for run in runs:
            self.assert_nothing_left(run)

    def running(self, folder, count=4):
        """Waits until that many workers have made their files there."""
        harness.wait_until(lambda: len(os.listdir(folder)) == count, 20, "%d workers" % count)

    def started(self, count=4, **how):
        """Both nodes with workers that run until they are stopped."""
        folder = harness.temporary_folder()
        steps = ["rank:%d:touch:%s/%d" % (rank, folder, rank) for rank in range(count)]
        runs = self.both(harness.STUB, *steps, "wait", **how)
        self.running(folder, count)
        return runs


class Meeting(Nodes):
    def test_a_real_group_trains_over_both(self):
        self.need_torch()
        runs = self.both(FASHION, "--steps", "20")
        self.ended(runs, 0, within=240)
        self.assertRegex(runs[0].out, r"epoch 1: loss \d\.\d+.*\ntest accuracy: 0\.\d+\n")
        self.assertEqual(runs[1].out, "")
        for run in runs:
            self.assertNotIn("dlaunch:", run.err)

    def test_every_rank_runs_once_and_knows_where_the_store_is(self):
        runs = self.both("--no_python", "sh", "-c",
                         "echo $RANK $LOCAL_RANK $GROUP_RANK $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE "
                         "$MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE")
        self.ended(runs, 0)
        for node, run in enumerate(runs):
            self.assertEqual(sorted(run.out.splitlines()),
                             ["%d %d %d %d 4 2 10.77.0.1:29500 True" % (2 * node + local, local, node, node)
                              for local in range(2)])
            self.assertEqual(run.err, "")

    def test_nodes_may_have_different_numbers_of_workers(self):
        show = ["--no_python", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"]
        runs = [self.node(0, *show, nproc=1), self.node(1, *show, nproc=3)]
        self.ended(runs, 0)
        self.assertEqual(runs[0].out, "0 4 1\n")
        self.assertEqual(sorted(runs[1].out.splitlines()), ["1 4 3", "2 4 3", "3 4 3"])

    def test_node_1_may_come_first(self):
        second = self.node(1, harness.STUB, "env:RANK")
        harness.wait_until(lambda: "dlaunch: waiting for node 0" in second.err, 10, "its word on whom it waits for")
        self.assertRegex(second.err, r"dlaunch: waiting for node 0.* left\n")
        first = self.node(0, harness.STUB, "env:RANK")
        self.ended([first, second], 0)
        self.assertEqual(sorted((first.out + second.out).splitlines()), ["RANK=%d" % rank for rank in range(4)])

    def test_a_name_may_appear_later(self):
        self.cluster.set_hosts(1, {})
        second = self.node(1, harness.STUB, "env:MASTER_ADDR", addr="node0", nproc=1)
        first = self.node(0, harness.STUB, "env:MASTER_ADDR", addr="node0", nproc=1)
        harness.wait_until(lambda: "node0" in second.err, 15, "its word on the name")
        self.assertRegex(second.err, r"dlaunch: waiting for node 0.*\bno address found for 'node0'")
        self.cluster.set_hosts(1, {"10.77.0.1": "node0"})
        self.ended([first, second], 0)
        self.assertEqual(second.out, "MASTER_ADDR=node0\n", "a name stays a name")

    def test_the_same_line_on_both_nodes_is_enough(self):
        line = ["--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29400", "--rdzv_id=x", "--nnodes=2",
                "--nproc_per_node=2", "--no_python", "sh", "-c",
                "echo $RANK $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID"]
        for first in (0, 1):
            with self.subTest("node %d first" % first):
                runs = {first: self.cluster.start_dlaunch(first, line)}
                time.sleep(0.2)  # either order must do; this only makes the named one likely
                runs[1 - first] = self.cluster.start_dlaunch(1 - first, line)
                self.ended([runs[0], runs[1]], 0)
                # The host has the address, and is node 0 whoever came first.
                for node in (0, 1):
                    self.assertEqual(sorted(runs[node].out.splitlines()),
                                     ["%d %d 10.77.0.1:29400 x" % (2 * node + local, node) for local in range(2)])

    def test_the_typed_line_trains_a_real_group(self):
        self.need_torch()
        line = ["--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29400", "--rdzv_id=x", "--nnodes=2", FASHION,
                "--steps", "5"]
        runs = [self.cluster.start_dlaunch(node, line) for node in (0, 1)]
        self.ended(runs, 0, within=240)
        self.assertIn("test accuracy: ", runs[0].out)


class Strangers(harness.TestCase):
    def test_a_control_connection_that_says_nothing_is_closed_and_the_job_goes_on(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        line = ["--nnodes=2", "--master_addr=127.0.0.1", "--master_port=%d" % port]
        first = self.start_dlaunch([*line, "--node_rank=0", harness.STUB, "out:hi"])

        def connect():
            try:
                return socket.create_connection(("127.0.0.1", port), 1)
            except OSError:
                return None

        stranger = harness.wait_until(connect, 10, "node 0 listens")
        self.addCleanup(stranger.close)
        stranger.sendall(b"DLN1")
        garbage = connect()
        self.addCleanup(garbage.close)
        garbage.sendall(b"DLN1\xff\xff\xff\xff")
        garbage.settimeout(10)
        self.assertEqual(garbage.recv(100), b"", "a length over the limit closes at once")
        stranger.settimeout(30)
        self.assertEqual(stranger.recv(100), b"", "silence is closed after a while")
        second = self.start_dlaunch([*line, "--node_rank=1", harness.STUB, "out:hi"])
        for run in (first, second):
            run.wait(20)
            self.assert_code(run, 0)


class Missing(Nodes):
    def test_node_0_waits_so_long_and_names_who_is_missing(self):
        run = self.node(0, harness.STUB, "out:started", flags=["--join_timeout=4"])
        self.ended([run], 124)
        self.assertEqual(run.out, "")
        self.assertRegex(run.err, r"dlaunch: waiting for node 1 of 2 \(here: 0 node0\), \d+ s left\n")
        self.assertEqual(self.report(run), "dlaunch: job failed: timed out after 4 s (--join_timeout) waiting for node 1\n")

    def test_node_1_waits_so_long_for_node_0(self):
        run = self.node(1, harness.STUB, "out:started", flags=["--join_timeout=4"])
        self.ended([run], 124)
        self.assertRegex(run.err, r"dlaunch: waiting for node 0")
        self.assertRegex(self.report(run),
                         r"\Adlaunch: job failed: timed out after 4 s \(--join_timeout\) waiting for node 0")
        self.assertIn("10.77.0.1", run.err)

    def test_all_who_came_give_up_together(self):
        self.cluster.down()
        self.cluster = harness.Cluster(self, 3)
        runs = [self.node(rank, harness.STUB, "out:started", nnodes=3, flags=["--join_timeout=4"]) for rank in (0, 2)]
        self.ended(runs, 124)
        self.assertEqual(self.report(runs[0]),
                         "dlaunch: job failed: timed out after 4 s (--join_timeout) waiting for node 1\n")
        self.assertEqual(self.report(runs[1]), self.report(runs[0]))
        self.assertRegex(runs[1].err, r"waiting for node 1 of 3 \(here: 0 node0, 2 node2\)")

    def test_ctrl_c_on_node_1_frees_its_place(self):
        self.cluster.down()
        self.cluster = harness.Cluster(self, 3)
        three = dict(nnodes=3, nproc=1)
        first, second = [self.node(rank, harness.STUB, "out:hello", **three) for rank in (0, 1)]
        harness.wait_until(lambda: "1 node1" in first.err, 20, "node 1 in the list of who is here")
        second.send(signal.SIGINT)
        self.assertEqual(second.wait(10), -signal.SIGINT, str(second))
        self.assert_nothing_left(second)
        again, third = [self.node(rank, harness.STUB, "out:hello", **three) for rank in (1, 2)]
        self.ended([first, again, third], 0)

    def test_ctrl_c_on_node_0_ends_all_who_wait(self):
        self.cluster.down()
        self.cluster = harness.Cluster(self, 3)
        first, second = [self.node(rank, harness.STUB, nnodes=3) for rank in (0, 1)]
        harness.wait_until(lambda: "1 node1" in first.err, 20, "node 1 in the list of who is here")
        first.send(signal.SIGINT)
        self.assertEqual(first.wait(10), -signal.SIGINT, str(first))
        self.assertNotEqual(second.wait(10), 0, str(second))
        self.assert_nothing_left(first)
        self.assert_nothing_left(second)


class Refused(Nodes):
    """The one who does not fit is told why and ends with 2; the others wait on."""

    def refuse(self, guest, *texts):
        """Node 0 is up; `guest` must be refused, and the right node 1 still be welcome."""
        self.assertEqual(guest.wait(20), 2, str(guest))
        for text in texts:
            self.assertIn(text, guest.err)
            harness.wait_until(lambda: text in self.first.err, 5, "'%s' on node 0" % text)
        self.assert_nothing_left(guest)
        self.assertIsNone(self.first.code, str(self.first))
        last = self.node(1, harness.STUB, "out:joined", nproc=1)
        self.ended([self.first, last], 0)
        self.assertEqual(last.out, "joined\n")

    def setUp(self):
        super().setUp()
        self.first = self.node(0, harness.STUB, "out:joined", nproc=1)

    def test_a_differing_nnodes_is_refused_on_both_sides(self):
        self.refuse(self.node(1, harness.STUB, nnodes=3), "--nnodes 3", "--nnodes 2")

    def test_a_differing_run_id_is_refused(self):
        self.refuse(self.node(1, harness.STUB, flags=["--rdzv_id=other"]), "'other'", "'none'", "--rdzv_id")

    def test_a_second_node_1_is_refused_while_the_first_lives(self):
        self.cluster.down()
        self.cluster = harness.Cluster(self, 3)
        three = dict(nnodes=3, nproc=1)
        first, second = [self.node(rank, harness.STUB, "out:joined", **three) for rank in (0, 1)]
        harness.wait_until(lambda: "1 node1" in first.err, 20, "node 1 in the list of who is here")
        twin = self.cluster.start_dlaunch(2, ["--nnodes=3", "--node_rank=1", "--master_addr=10.77.0.1",
                                              "--master_port=" + PORT, harness.STUB])
        self.assertEqual(twin.wait(20), 2, str(twin))
        self.assertRegex(twin.err, r"node rank 1 already runs on node1 \(pid \d+\)")
        last = self.node(2, harness.STUB, "out:joined", **three)
        self.ended([first, second, last], 0)


class Failing(Nodes):
    def fails(self, rank, node):
        """Rank `rank` on `node` exits 3 while the others run: both nodes end with 3 and say the same."""
        folder = harness.temporary_folder()
        steps = ["rank:%d:touch:%s/%d" % (other, folder, other) for other in range(4) if other != rank]
        go = harness.temporary_folder() + "/go"
        runs = self.both(harness.STUB, *steps, "rank:%d:await:%s" % (rank, go),
                         "rank:%d:err:shapes do not match" % rank, "rank:%d:exit:3" % rank, "wait")
        self.running(folder, 3)
        open(go, "w").close()
        self.ended(runs, 3, within=15)
        first = self.report(runs[0])
        self.assertRegex(first, r"\Adlaunch: job failed: rank %d \(node %d node%d, local %d, pid \d+\) "
                                r"exited with code 3 after \d+\.\d s\n" % (rank, node, node, rank % 2))
        self.assertIn("| shapes do not match\n", first)
        others = rank_list([other for other in range(4) if other != rank])
        self.assertIn("stopped by dlaunch: ranks %s (SIGTERM)\n" % others, first)
        self.assertEqual(self.report(runs[1]), first)

    def test_a_failure_on_node_1_ends_node_0(self):
        self.fails(rank=3, node=1)

    def test_a_failure_on_node_0_ends_node_1(self):
        self.fails(rank=0, node=0)

    def test_a_worker_killed_gives_the_signal_on_both(self):
        runs = self.both(harness.STUB, "rank:2:signal:11", "wait")
        self.ended(runs, 139, within=15)
        self.assertRegex(self.report(runs[0]), r"rank 2 \(node 1 node1, local 0, pid \d+\) was killed by SIGSEGV")

    def test_a_missing_program_on_one_node_is_heard_on_all(self):
        runs = [self.node(0, harness.STUB, "wait"), self.node(1, "/no/such/program")]
        self.ended(runs, 127, within=15)
        self.assertIn("/no/such/program", self.report(runs[0]))

    def test_a_restart_happens_on_both_nodes(self):
        runs = self.both(harness.STUB, "round:0:rank:3:exit:9", "round:0:wait", "env:TORCHELASTIC_RESTART_COUNT",
                         flags=["--max_restarts=2"])
        self.ended(runs, 0)
        for run in runs:
            self.assertEqual(run.out, "TORCHELASTIC_RESTART_COUNT=1\n" * 2)
            self.assertRegex(run.err, r"dlaunch: rank 3 \(.*\) exited with code 9; restart 1 of 2\n")

    def test_a_signal_to_either_dlaunch_stops_both(self):
        for told in (0, 1):
            with self.subTest("node %d" % told):
                runs = self.started()
                runs[told].send(signal.SIGTERM)
                self.assertEqual(runs[told].wait(15), -signal.SIGTERM, str(runs[told]))
                # The other was not signalled itself; its code is still that of the signal.
                self.assertIn(runs[1 - told].wait(15), (-signal.SIGTERM, 128 + signal.SIGTERM), str(runs[1 - told]))
                for run in runs:
                    self.assert_nothing_left(run)


class Lost(Nodes):
    def cut_off(self, node):
        runs = self.started(flags=["--heartbeat_timeout=2", "--shutdown_timeout=2"])
        self.cluster.cut(node)
        # Silence is noticed after 2 s; 2 s for the workers, 5 s of slack.
        self.ended(runs, 125, within=2 + 2 + 5)
        self.assertRegex(self.report(runs[0]), r"\Adlaunch: job failed: node 1 \(node1\) lost: ")
        self.assertRegex(self.report(runs[1]), r"\Adlaunch: job failed: node 0 \(.*\) lost: ")

    def test_a_cable_pulled_on_node_0(self):
        self.cut_off(0)

    def test_a_cable_pulled_on_node_1(self):
        self.cut_off(1)

    def test_a_short_cut_does_no_harm(self):
        folder = harness.temporary_folder()
        go = os.path.join(folder, "go")
        runs = self.both(harness.STUB, *["rank:%d:touch:%s/%d" % (rank, folder, rank) for rank in range(4)],
                         "await:" + go, flags=["--heartbeat_timeout=20"])
        self.running(folder)
        self.cluster.cut(1)
        time.sleep(1)
        self.cluster.heal(1)
        open(go, "w").close()
        self.ended(runs, 0)

    def test_a_killed_dlaunch_is_a_lost_node_at_once(self):
        for killed in (0, 1):
            with self.subTest("node %d" % killed):
                runs = self.started(flags=["--shutdown_timeout=2"])
                started = time.monotonic()
                for line in runs[killed].leftovers():  # guard, agent and workers: as if the machine were gone
                    try:
                        os.kill(int(line.split()[0]), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                other = runs[1 - killed]
                self.assertEqual(other.wait(15), 125, str(other))
                self.assertLess(time.monotonic() - started, 2 + 5)
                self.assertRegex(self.report(other), r"\Adlaunch: job failed: node %d \(.*\) lost: " % killed)
                self.assertNotEqual(runs[killed].wait(15), 0)
                for run in runs:
                    self.assert_nothing_left(run)
