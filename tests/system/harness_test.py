"""The tests' own tools: a check that can never fail proves nothing."""
import signal
import subprocess
import time

import harness


class Leftovers(harness.TestCase):
    def test_a_daemon_is_found_by_its_tag_and_killed(self):
        file = harness.temporary_folder() + "/pid"
        run = self.start([harness.STUB, "daemon:" + file])
        self.assertEqual(run.wait(), 0)
        with open(file) as text:
            pid = text.read().strip()
        self.assertEqual([line.split()[0] for line in run.leftovers()], [pid])
        with self.assertRaises(AssertionError):
            self.assert_nothing_left(run)
        run.end()
        harness.wait_until(lambda: not run.leftovers(), what="its end")

    def test_a_run_over_its_time_is_killed_and_an_error(self):
        run = self.start([harness.STUB, "out:hello", "ignore:15", "wait"])
        harness.wait_until(lambda: run.out == "hello\n", what="its first line")
        with self.assertRaisesRegex(AssertionError, "(?s)not done after 0.1 s.*hello"):
            run.wait(0.1)
        self.assertEqual(run.code, -signal.SIGKILL)


class ClusterTest(harness.TestCase):
    def fetch(self, cluster, node, url):
        program = ("import sys, urllib.request as u\n"
                   "print(u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=2).status)")
        run = cluster.start(node, [harness.PYTHON, "-c", program, url])
        run.wait(20)
        return run

    def test_nodes_reach_each_other_until_a_cable_is_pulled(self):
        cluster = harness.Cluster(self, 2)
        server = cluster.start(0, [harness.PYTHON, "-m", "http.server", "8000"])
        listening = ["ip", "netns", "exec", cluster.namespace(0), "ss", "-Hltn", "sport = :8000"]
        harness.wait_until(lambda: subprocess.run(listening, capture_output=True).stdout, what="the server")
        self.assertEqual(self.fetch(cluster, 1, "http://node0:8000/").out, "200\n")
        cluster.cut(0)
        self.assertIn("timed out", self.fetch(cluster, 1, "http://node0:8000/").err)
        cluster.heal(0)
        self.assertEqual(self.fetch(cluster, 1, "http://10.77.0.1:8000/").out, "200\n")
        self.assertIsNone(server.code)

    def test_nodes_have_names_and_hosts_files_of_their_own(self):
        cluster = harness.Cluster(self, 2)
        cluster.set_hosts(1, {"10.77.0.9": "elsewhere"})
        run = cluster.start(1, ["sh", "-c", "hostname; cat /etc/hosts"])
        self.assertEqual(run.wait(), 0)
        self.assertEqual(run.out, "node1\n127.0.0.1 localhost\n10.77.0.9 elsewhere\n")

    def test_going_down_ends_what_runs_inside(self):
        cluster = harness.Cluster(self, 1)
        run = cluster.start(0, [harness.STUB, "wait"])
        harness.wait_until(lambda: run.leftovers()[0:1] and "worker_stub wait" in run.leftovers()[0],
                           what="the worker")
        cluster.down()
        self.assertEqual(run.wait(5), -signal.SIGKILL)
        started = time.monotonic()
        cluster.down()  # twice does no harm
        self.assertLess(time.monotonic() - started, 5)
