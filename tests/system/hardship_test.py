"""What goes wrong around a job: consoles nobody reads, streams that are closed, strangers at the port, nodes
that come twice, and restarts that last."""
import os
import random
import signal
import socket
import struct
import subprocess
import time

import harness


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def agent_of(run):
    """The pid of its agent, once that is there."""

    def first_child():
        with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as file:
            return next(map(int, file.read().split()), None)

    return harness.wait_until(first_child, what="the agent")


def established(run, port):
    """Is the agent of this node connected to that port?"""
    found = subprocess.run(["ss", "-Htnp", "state", "established", "dport = :" + port], capture_output=True, text=True)
    return "pid=%d," % agent_of(run) in found.stdout


class OnOneHost(harness.TestCase):
    def nodes(self, count, *args, **how):
        """Nodes 0 … count-1 of a job over loopback, one worker each."""
        self.port = str(free_port())
        return [self.node(rank, count, *args, **how) for rank in range(count)]

    def node(self, rank, count, *args, **how):
        return self.start_dlaunch(["--nnodes=%d" % count, "--node_rank=%d" % rank, "--master_addr=127.0.0.1",
                                   "--master_port=" + self.port, *args], **how)

    def all_end(self, runs, code, within=30):
        for run in runs:
            run.wait(within)
            self.assert_code(run, code)
        for run in runs:
            self.assert_nothing_left(run)


class Restarts(OnOneHost):
    def test_nodes_hear_each_other_long_after_a_restart(self):
        # Longer than a stop may take (the grace and 15 s) and a silence after it.
        runs = self.nodes(2, "--max_restarts=1", "--shutdown_timeout=0", "--heartbeat_timeout=2", "--no_python", "sh",
                          "-c", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; exec sleep 20")
        self.all_end(runs, 0, within=40)


class Joining(OnOneHost):
    def test_a_second_node_1_takes_the_place_of_one_that_does_not_answer(self):
        args = ["--shutdown_timeout=1", harness.STUB, "env:RANK"]
        self.port = str(free_port())
        zero, first = self.node(0, 3, *args), self.node(1, 3, *args)
        agent = agent_of(first)
        # It is welcome once it waits with the others: it says so after 3 s.
        harness.wait_until(lambda: "waiting for node 2" in first.err, what="node 1")
        os.kill(agent, signal.SIGSTOP)  # it cannot answer whether it lives
        second = self.node(1, 3, *args)
        harness.wait_until(lambda: established(second, self.port), what="the second node 1")
        two = self.node(2, 3, *args)  # all are here, were it not for the doubt about node 1
        for rank, run in enumerate((zero, second, two)):
            self.assertEqual(run.wait(20), 0, str(run))
            self.assertEqual(run.out, "RANK=%d\n" % rank)
        os.kill(agent, signal.SIGCONT)
        self.assertNotEqual(first.wait(20), 0, str(first))
        self.assert_nothing_left(first)

    def test_64_nodes_on_one_host_start_and_end(self):
        line = ["--nnodes=64", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=x",
                "--rdzv_endpoint=127.0.0.1:%d" % free_port(), "--no_python", "sh", "-c", "echo $RANK"]
        runs = [self.start_dlaunch(line) for _ in range(64)]
        self.all_end(runs, 0, within=60)
        self.assertEqual(sorted(int(run.out) for run in runs), list(range(64)))

    def test_a_run_id_may_be_any_bytes(self):
        for name in (b"a b\t\"'\\/", b"caf\xc3\xa9", b"caf\xe9"):
            with self.subTest(name):
                runs = self.nodes(2, b"--rdzv_id=" + name, "--join_timeout=5", "--no_python", "true")
                self.all_end(runs, 0)


class Strangers(OnOneHost):
    def test_what_strangers_send_to_the_port_does_no_harm(self):
        folder = harness.temporary_folder()
        runs = self.nodes(2, harness.STUB, "rank:0:touch:%s/0" % folder, "rank:1:touch:%s/1" % folder,
                          "await:%s/go" % folder)
        harness.wait_until(lambda: len(os.listdir(folder)) == 2, what="the workers")

        def frame(text):
            return struct.pack("<I", len(text)) + text

        noise = random.Random(1).randbytes(5000)
        said = [b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096, noise, b"D", b"DLN", b"DLN1", b"DLN1\xff\xff\xff\xff",
                b"DLN1\x10\0\0\0{\"ty", b"DLN1" + frame(b"hello"), b"DLN1" + frame(b'{"type":"Finish","exit_code":7}'),
                b"DLN1" + frame(b'{"type":"Signalled","signal":9}') + frame(b'{"type":"Bye"}'), *[b""] * 200]
        peers = []
        for words in said:
            peer = socket.create_connection(("127.0.0.1", int(self.port)))
            self.addCleanup(peer.close)
            peer.sendall(words)
            peers.append(peer)
        for _ in range(50):  # a scan: connected, and reset at once
            peer = socket.create_connection(("127.0.0.1", int(self.port)))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        open(folder + "/go", "w").close()
        self.all_end(runs, 0)

    def test_a_strangers_name_cannot_write_to_the_terminal(self):
        zero, = self.nodes(1, "--nnodes=2", harness.STUB, "wait")
        text = b'{"type":"Hello","protocol":99,"host":"\\u001b[2J\\nx","nnodes":2,"node_rank":1}'

        def refused():
            try:
                with socket.create_connection(("127.0.0.1", int(self.port)), timeout=5) as peer:
                    peer.sendall(b"DLN1" + struct.pack("<I", len(text)) + text)
                    return b"Refused" in peer.recv(4096)
            except OSError:
                return False

        harness.wait_until(refused, what="the refusal")
        harness.wait_until(lambda: "refused" in zero.err, what="the word about it")
        zero.send(signal.SIGINT)
        zero.wait(10)
        self.assertNotIn("\033", zero.err)
        self.assertNotIn("\nx", zero.err)


class Console(harness.TestCase):
    def start_unread(self, *args):
        """dlaunch with a stdout that is full and that nobody reads."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        prefix = ["sh", "-c", 'exec "$@" >/proc/%d/fd/%d' % (os.getpid(), write), "sh"]
        run = self.start([harness.DLAUNCH, *args], prefix=prefix)
        harness.wait_until(lambda: len(run.leftovers()) >= 3, what="the workers")
        os.close(write)
        agent, seen = agent_of(run), []

        def all_full():
            with open("/proc/%d/io" % agent) as file:
                seen.append(int(file.readline().split()[1]))  # rchar
            return seen[-1] > 4 << 20 and len(seen) > 20 and seen[-20] == seen[-1]

        harness.wait_until(all_full, what="a pipe and a queue that are full")
        return run, read

    def test_ctrl_c_ends_a_job_whose_output_nobody_reads(self):
        run, _ = self.start_unread("--nproc_per_node=2", "--no_python", "yes", "a line of some length")
        run.send(signal.SIGINT)
        self.assertEqual(run.wait(8), -signal.SIGINT, str(run))
        self.assert_nothing_left(run)

    def test_nothing_stays_when_the_guard_is_killed_and_nobody_reads(self):
        run, _ = self.start_unread("--nproc_per_node=2", "--shutdown_timeout=1", "--no_python", "yes", "a line")
        run.send(signal.SIGKILL)
        harness.wait_until(lambda: not run.leftovers(), 12, "the end of the agent")

    def test_a_failures_last_words_outlast_a_pager(self):
        # The grace and the 10 s after SIGKILL are for processes; here only output is left.
        folder = harness.temporary_folder()
        run, read = self.start_unread(
            "--nproc_per_node=2", "--shutdown_timeout=0", "--no_python", "sh", "-c",
            '[ $RANK = 0 ] && exec yes "a line"; until [ -e %s/go ]; do sleep 0.1; done; echo its last words >&2; exit 9'
            % folder)
        open(folder + "/go", "w").close()
        harness.wait_until(lambda: len(run.leftovers()) <= 2, what="the workers' end")
        paused = time.monotonic()
        harness.wait_until(lambda: time.monotonic() > paused + 12 or run.code is not None, 15, "the pause")
        while os.read(read, 1 << 16):
            pass
        self.assertEqual(run.wait(10), 9, str(run))
        self.assertIn("  last words:\n    | its last words\n", self.report(run))

    def test_a_reader_that_leaves_ends_the_job_with_sigpipe(self):
        run = self.run_dlaunch([], prefix=["bash", "-c", '"$0" --nproc_per_node=2 --no_python yes | head -1; '
                                           'exit ${PIPESTATUS[0]}'], timeout=20)
        self.assert_code(run, 128 + signal.SIGPIPE)
        self.assertEqual(run.out, "y\n")
        self.assert_nothing_left(run)

    def test_closed_streams_are_no_descriptors_of_ours(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                folder = harness.temporary_folder()
                run = self.start([harness.DLAUNCH, "--nproc_per_node=2", harness.STUB, "touch:%s/up" % folder, "wait"],
                                 prefix=["sh", "-c", 'exec "$@" ' + closed, "sh"])
                harness.wait_until(lambda: os.path.exists(folder + "/up"), what="a worker")
                agent = agent_of(run)
                for pid in (run.pid, agent):
                    for fd in range(3):
                        try:
                            name = os.readlink("/proc/%d/fd/%d" % (pid, fd))
                        except FileNotFoundError:
                            continue
                        self.assertRegex(name, "^/", "descriptor %d of %d" % (fd, pid))
                run.send(signal.SIGTERM)
                run.wait(10)

    def test_a_closed_stdout_fails_no_job(self):
        for _ in range(10):
            run = self.run_dlaunch(["--nproc_per_node=4", harness.STUB, "out:a", "out:b", "err:c"], timeout=20,
                                   prefix=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
            self.assert_code(run, 0)

    def test_a_limit_on_file_sizes_does_not_kill_dlaunch(self):
        run = self.start(["bash", "-c", 'ulimit -f 1; exec "$0" --log_file log --no_python seq 10000', harness.DLAUNCH])
        run.wait(20)
        self.assertNotIn("SIGXFSZ", run.err)
        self.assertIn("log file 'log': File too large", run.err)


class Guard(harness.TestCase):
    def test_children_of_a_scripts_background_loop_are_not_ours_to_kill(self):
        loop = "(while sleep 0.3 || echo killed >&2; do :; done) & exec \"$0\" --no_python sleep 1"
        run = self.start(["bash", "-c", loop, harness.DLAUNCH])
        self.assertEqual(run.wait(20), 0, str(run))
        self.assertLess(run.seconds, 5)
        self.assertNotIn("killed", run.err)
