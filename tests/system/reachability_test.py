"""Addresses, names and ports that people get wrong, or that differ from what a launcher expects."""
import os
import re
import signal
import socket
import subprocess

import harness


def free_port(address="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


class OneHost(harness.TestCase):
    """Two nodes may share a host."""

    def test_an_ipv6_address_works_with_and_without_brackets(self):
        for form, flags in (("bare", lambda port: ["--master_addr=::1", "--master_port=%d" % port]),
                            ("in brackets", lambda port: ["--rdzv_endpoint=[::1]:%d" % port])):
            with self.subTest(form):
                try:
                    port = free_port("::1")
                except OSError as error:
                    self.skipTest("no IPv6 here: %s" % error)
                runs = [self.start_dlaunch(["--nnodes=2", "--node_rank=%d" % rank, *flags(port), harness.STUB,
                                            "env:MASTER_ADDR", "env:MASTER_PORT"]) for rank in (0, 1)]
                for run in runs:
                    self.assertEqual(run.wait(20), 0, str(run))
                    self.assertEqual(run.out, "MASTER_ADDR=::1\nMASTER_PORT=%d\n" % port)

    def test_one_node_needs_no_name_of_its_own(self):
        if harness.namespaces_missing():
            self.skipTest("a host name of its own needs root")
        run = self.start(["unshare", "--uts", "sh", "-c", 'hostname no-such-host && exec "$@"', "sh", harness.DLAUNCH,
                          "--nproc_per_node=2", harness.STUB, "env:MASTER_ADDR"])
        self.assertEqual(run.wait(20), 0, str(run))
        self.assertEqual((run.out, run.err), ("MASTER_ADDR=127.0.0.1\n" * 2, ""))

    def test_a_node_that_cannot_be_is_refused_at_once(self):
        run = self.run_dlaunch(["--nnodes=1", "--node_rank=3", harness.STUB], timeout=10)
        self.assert_code(run, 2)
        self.assertIn("--node_rank '3' is outside 0..0", run.err)

    def test_several_nodes_without_an_address_are_refused_at_once(self):
        run = self.run_dlaunch(["--nnodes=2", "--node_rank=1", harness.STUB], timeout=10)
        self.assert_code(run, 2)
        self.assertIn("--node_rank '1' needs --master_addr", run.err)

    def test_a_taken_port_names_its_holder(self):
        port = free_port()
        holder = self.start([harness.PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(port)])
        listening = ["ss", "-Hltn", "sport = :%d" % port]
        harness.wait_until(lambda: subprocess.run(listening, capture_output=True).stdout, what="the holder")
        run = self.run_dlaunch(["--master_port=%d" % port, harness.STUB], timeout=10)
        self.assertIn(run.code, (2, 125), str(run))
        self.assertRegex(run.err, r"dlaunch: error: port %d is taken by python3.* \(pid %d\)" % (port, holder.pid))

    def test_two_jobs_on_one_host_never_collide(self):
        folder = harness.temporary_folder()
        steps = [harness.STUB, "env:MASTER_PORT"]
        runs = [self.start_dlaunch(["--nproc_per_node=2", *steps, "touch:%s/%d" % (folder, i), "await:%s/%d" % (folder, 1 - i)])
                for i in range(2)]
        for run in runs:
            self.assertEqual(run.wait(20), 0, str(run))
        ports = [set(re.findall(r"MASTER_PORT=(\d+)", run.out)) for run in runs]
        self.assertEqual([len(port) for port in ports], [1, 1])
        self.assertNotEqual(*ports)


class TwoHosts(harness.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(self, 2)

    def node(self, rank, *args, **how):
        return self.cluster.start_dlaunch(rank, ["--nnodes=2", "--node_rank=%d" % rank, *args], **how)

    def test_one_open_port_is_enough(self):
        port = 29600
        for rule in (["-A", "INPUT", "-i", "lo", "-j", "ACCEPT"],
                     ["-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT"],
                     ["-A", "INPUT", "-p", "tcp", "--dport", str(port), "-j", "ACCEPT"],
                     ["-A", "INPUT", "-j", "DROP"]):
            done = subprocess.run(["ip", "netns", "exec", self.cluster.namespace(0), "iptables", *rule],
                                  capture_output=True, text=True)
            if done.returncode:
                self.skipTest("no iptables here: " + done.stderr.strip())
        runs = [self.node(rank, "--master_addr=10.77.0.1", "--master_port=%d" % port, "--max_restarts=1", harness.STUB,
                          "round:0:rank:1:exit:9", "round:0:wait", "out:done") for rank in (0, 1)]
        for run in runs:
            self.assertEqual(run.wait(20), 0, str(run))
            self.assertEqual(run.out, "done\n")

    def test_the_name_of_node_0_need_not_be_its_host_name(self):
        self.cluster.set_hosts(0, {"10.77.0.1": "infiniband-of-node0"})
        self.cluster.set_hosts(1, {"10.77.0.1": "infiniband-of-node0"})
        line = ["--rdzv_backend=c10d", "--rdzv_endpoint=infiniband-of-node0:29400", "--nnodes=2", harness.STUB, "env:RANK"]
        runs = [self.cluster.start_dlaunch(node, line) for node in (0, 1)]
        for node, run in enumerate(runs):
            self.assertEqual(run.wait(20), 0, str(run))
            self.assertEqual(run.out, "RANK=%d\n" % node)

    def test_each_told_loopback_waits_for_the_other_and_says_where(self):
        runs = [self.node(rank, "--master_addr=127.0.0.1", "--join_timeout=4", harness.STUB) for rank in (0, 1)]
        for run in runs:
            self.assertEqual(run.wait(20), 124, str(run))
        self.assertIn("waiting for node 1", self.report(runs[0]))
        self.assertIn("node 0 at 127.0.0.1:29500: connection refused", self.report(runs[1]))

    def test_node_0_is_warned_when_it_is_told_loopback(self):
        run = self.node(0, "--master_addr=localhost", "--join_timeout=4", harness.STUB)
        run.wait(20)
        self.assertRegex(run.err, r"dlaunch: warning: .*localhost")

    def test_a_firewall_that_swallows_everything_is_bounded_by_the_join_timeout(self):
        subprocess.run(["ip", "netns", "exec", self.cluster.namespace(0), "iptables", "-A", "INPUT", "-j", "DROP"],
                       check=True)
        runs = [self.node(rank, "--master_addr=10.77.0.1", "--join_timeout=6", harness.STUB) for rank in (0, 1)]
        for run in runs:
            self.assertEqual(run.wait(20), 124, str(run))
            self.assert_nothing_left(run)

    def test_a_stopped_node_is_lost_by_its_silence_and_leaves_nothing(self):
        folder = harness.temporary_folder()
        runs = [self.node(rank, "--master_addr=10.77.0.1", "--heartbeat_timeout=2", "--shutdown_timeout=2", harness.STUB,
                          "touch:%s/%d" % (folder, rank), "wait") for rank in (0, 1)]
        harness.wait_until(lambda: len(os.listdir(folder)) == 2, 20, "the workers")
        # As a machine that hangs: guard, agent and worker all stand still.
        pids = [int(line.split()[0]) for line in runs[1].leftovers()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.assertEqual(runs[0].wait(2 + 2 + 5), 125, str(runs[0]))
        self.assertRegex(self.report(runs[0]), r"node 1 \(node1\) lost: ")
        self.assert_nothing_left(runs[0])
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass  # ended by one that was resumed before it
        self.assertEqual(runs[1].wait(15), 125, str(runs[1]))
        self.assert_nothing_left(runs[1])
