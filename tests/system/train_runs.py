"""What the tests of `train` share: starting it alone, under dlaunch and rank by rank, and reading what it prints."""
import json
import os
import re
import socket

import harness

TRAIN = os.path.join(harness.BIN, "train")
SMALL = ["--data", "synthetic:2048", "--model", "mlp", "--hidden", "32", "--timeout", "20", "--join-timeout", "20"]


def free_port():
    """A TCP port that nobody listens on now; the kernel does not hand it out again at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def digest(text):
    found = re.findall(r"^digest: ([0-9a-f]{16})$", text, re.M)
    assert len(found) == 1, "no digest, or several, in:\n" + text
    return found[0]


def accuracy(text):
    found = re.findall(r"^test accuracy: ([01]\.\d{4})$", text, re.M)
    assert len(found) == 1, "no accuracy, or several, in:\n" + text
    return float(found[0])


def lines(text):
    """The lines of JSON about steps."""
    parsed = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in parsed if "loss" in line]


def losses(text):
    return [line["loss"] for line in lines(text)]


class TestCase(harness.TestCase):
    def setUp(self):
        if not os.path.exists(TRAIN):
            self.skipTest("no %s (DLAUNCH_TRAINER)" % TRAIN)

    def train(self, args, code=0, timeout=60, **how):
        """Alone, to its end."""
        run = self.start([TRAIN] + args, **how)
        run.wait(timeout)
        if code is not None:  # None: any
            self.assert_code(run, code)
        return run

    def train_ranks(self, count, args, code=0, timeout=90, launcher=(), **how):
        """Under dlaunch, to its end."""
        port = str(free_port())
        run = self.run_dlaunch(["--nproc_per_node=%d" % count, "--master_port", port, *launcher, TRAIN, *args],
                               timeout=timeout, **how)
        if code is not None:  # None: any
            self.assert_code(run, code)
        self.assert_nothing_left(run)
        return run

    def start_ranks(self, count, args, url=None, **how):
        """One Run per rank, started by hand."""
        url = url or "tcp://127.0.0.1:%d" % free_port()
        return [self.start([TRAIN, *args, "--init-method", url, "--rank", str(rank), "--world-size", str(count),
                            "--local-rank", str(rank)], **how)
                for rank in range(count)]
