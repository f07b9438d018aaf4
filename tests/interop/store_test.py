"""PyTorch's own clients against our store: the same calls against PyTorch's servers and ours give the same
answers, and two ranks train over it. PyTorch 1.13 is Debian's (dialect 1a), 2.15 (dialect 2) is looked for
at $DLAUNCH_TEST_TORCH, else in the cache folder."""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
OLD = "/usr/bin/python3"
NEW = os.environ.get("DLAUNCH_TEST_TORCH") or os.path.join(CACHE, "dlaunch/torch-2.15.0/bin/python")


def run(python, mode, port):
    """Runs this file below another interpreter; its last line is JSON."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHELASTIC", "MASTER_", "RANK"))}
    env["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run([python, os.path.join(HERE, "store_calls.py"), mode, str(port)], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    if done.returncode == 77:
        raise unittest.SkipTest(done.stdout.strip().splitlines()[-1])
    if done.returncode:
        raise AssertionError("%s %s ended with %d\n%s%s" % (python, mode, done.returncode, done.stdout, done.stderr))
    return json.loads(done.stdout.strip().splitlines()[-1])


class StoreHost:
    """Our store in a process of its own."""

    def __enter__(self):
        self.process = subprocess.Popen([os.path.join(os.environ["DLAUNCH_BIN"], "store_host")], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        code = self.process.wait(10)
        self.process.stdout.close()
        if code:
            raise AssertionError("store_host ended with %d" % code)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def need(python):
    if not os.path.exists(python):
        raise unittest.SkipTest("no PyTorch of today at " + python)


class Store(unittest.TestCase):
    maxDiff = None

    def same_answers(self, python):
        need(python)
        with StoreHost() as host:
            answers = run(python, "calls", host.port)
            self.assertEqual(host.ask("used"), "yes")
        ours = dict(answers.pop("dlaunch"))
        self.assertTrue(answers)
        for server, theirs in answers.items():
            theirs = dict(theirs)
            asked = [name for name in ours if server != "poll" or not name.startswith(("queue", "a queue"))]
            self.assertEqual(asked, list(theirs), server)
            different = {name for name in asked if ours[name] != theirs[name]}
            for name in sorted(different):
                self.assertIn((server, name), DOCUMENTED, "dlaunch: %r, %s: %r" % (ours[name], server, theirs[name]))
                self.assertEqual((ours[name], theirs[name]), DOCUMENTED[server, name], name)
        return ours

    def test_clients_of_1_13_get_the_answers_of_their_own_server(self):
        ours = self.same_answers(OLD)
        self.assertGreaterEqual(len(ours), 30)

    def test_clients_of_2_15_get_the_answers_of_their_own_servers(self):
        ours = self.same_answers(NEW)
        self.assertGreaterEqual(len(ours), 45)

    def train(self, python):
        need(python)
        with StoreHost() as host:
            first = run(python, "train", host.port)
            self.assertEqual(host.ask("used"), "yes")
            # The next attempt on the same port: a new key space, or the ranks would read dead addresses.
            self.assertEqual(host.ask("reset"), "reset")
            self.assertEqual(host.ask("used"), "no")
            second = run(python, "train", host.port)
        self.assertEqual(first["ranks"], [0, 1])
        self.assertEqual(first["weights"][0], first["weights"][1], "the ranks hold the same model")
        self.assertLess(first["loss"][-1], 0.5 * first["loss"][0], "it has learned")
        self.assertEqual(first["weights"], second["weights"])

    def test_two_ranks_of_1_13_train_over_it_twice(self):
        self.train(OLD)

    def test_two_ranks_of_2_15_train_over_it_twice(self):
        self.train(NEW)


# Where ours differs on purpose: (server, call) -> (our answer, theirs).
DOCUMENTED = {
    # Its server keeps the WAIT of a client that timed out and has asked for something else since.
    ("1.13", "an add when the key came after a wait that timed out"): (3, "garbage"),
    ("1.13", "a get after that"): ("b'late'", "garbage"),
    # COMPARE_SET does not wake there.
    ("1.13", "a wait for a key that compare_set makes"): ("came", "RuntimeError"),
    ("poll", "a wait for a key that compare_set makes"): ("came", "DistStoreError"),
}

if __name__ == "__main__":
    unittest.main(argv=sys.argv)
