"""Whole jobs of real PyTorch under dlaunch, on one node: Debian's 1.13 and today's 2.15."""
import os
import socket

from harness import PYTHON, TestCase, torch_of_today

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
RESTARTS = int(os.environ.get("DLAUNCH_TEST_RESTARTS", "3"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Jobs:
    def setUp(self):
        self.python = self.find_python()
        self.env = {"PYTHON_EXEC": self.python, "OMP_NUM_THREADS": "1"}

    def train(self, ranks, *flags, script="ddp_tiny.py", args=(), timeout=150):
        return self.run_dlaunch(["--nproc_per_node=%d" % ranks, *flags, os.path.join(DATA, script), *args],
                                env=self.env, timeout=timeout)

    def test_two_ranks_train_over_the_agents_store(self):
        run = self.train(2)
        self.assert_code(run, 0)
        self.assertEqual(run.out.count(" of 2 trained in round 0"), 2, str(run))
        self.assert_nothing_left(run)

    def test_four_ranks_train_over_the_agents_store(self):
        run = self.train(4)
        self.assert_code(run, 0)
        self.assertEqual(run.out.count(" of 4 trained in round 0"), 4, str(run))

    def test_a_rank_that_fails_in_round_0_does_not_spoil_round_1(self):
        for _ in range(RESTARTS):
            run = self.train(2, "--max_restarts=1", args=["--fail-in-round", "0"])
            self.assert_code(run, 0)
            self.assertEqual(run.out.count(" of 2 trained in round 1"), 2, str(run))
            self.assert_nothing_left(run)

    def test_a_group_at_an_address_of_its_own_forms_under_the_default_store(self):
        run = self.train(2, script="ddp_own_url.py", args=[str(free_port())])
        self.assert_code(run, 0)
        self.assertEqual(run.out.count("sum 2"), 2, str(run))

    def test_a_script_that_sets_master_port_itself_trains_under_the_default_store(self):
        run = self.train(2, script="ddp_own_port.py", args=[str(free_port())])
        self.assert_code(run, 0)
        self.assertEqual(run.out.count("sum 2"), 2, str(run))

    def test_the_worker_of_rank_0_may_host_the_store(self):
        run = self.train(2, "--store=worker", "--max_restarts=1", args=["--fail-in-round", "0"])
        self.assert_code(run, 0)
        self.assertEqual(run.out.count(" of 2 trained in round 1"), 2, str(run))


class OnDebiansPyTorch(Jobs, TestCase):
    def find_python(self):
        self.need_torch()
        return PYTHON


class OnTodaysPyTorch(Jobs, TestCase):
    def find_python(self):
        python = os.environ.get("DLAUNCH_TEST_TORCH") or torch_of_today()
        if not python:
            self.skipTest("no PyTorch 2.15: scripts/setup.sh --torch makes it, DLAUNCH_TEST_TORCH names another")
        return python
