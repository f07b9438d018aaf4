"""What the other ranks make of a fault of one."""
import os
import signal

import harness
from train_runs import SMALL, TRAIN, TestCase, digest, free_port

LONG = SMALL + ["--steps", "1000000", "--log-every", "10"]


class Failure(TestCase):
    def wait_for_steps(self, runs):
        harness.wait_until(lambda: '"step"' in runs[0].out, 30, "the first line of rank 0\n%s" % runs[0])

    def test_a_killed_rank_is_named_by_every_other(self):
        for more in ([], ["--no-shared-memory"]):
            self.check_killed(LONG + more)

    def check_killed(self, args):
        runs = self.start_ranks(3, args)
        self.wait_for_steps(runs)
        runs[1].send(signal.SIGKILL)
        for rank in (0, 2):
            self.assertEqual(runs[rank].wait(40), 1, runs[rank])
            self.assertIn("train: error: rank %d: " % rank, runs[rank].err)
            self.assertIn("rank 1", runs[rank].err.split("error: rank %d: " % rank)[1])

    def test_a_killed_rank_0_ends_the_others(self):
        runs = self.start_ranks(2, LONG)
        self.wait_for_steps(runs)
        runs[0].send(signal.SIGKILL)
        self.assertEqual(runs[1].wait(40), 1, runs[1])
        self.assertIn("rank 0", runs[1].err.split("error: rank 1: ")[1])

    def test_a_stopped_rank_is_named_within_the_time_out(self):
        for more in ([], ["--no-shared-memory"]):
            self.check_stopped(LONG + ["--timeout", "3"] + more)

    def check_stopped(self, args):
        runs = self.start_ranks(3, args)
        self.wait_for_steps(runs)
        runs[2].send(signal.SIGSTOP)
        for rank in (0, 1):
            self.assertEqual(runs[rank].wait(40), 1, runs[rank])
            self.assertIn("rank 2 is silent", runs[rank].err)
        runs[2].send(signal.SIGKILL)

    def test_a_stopped_rank_that_serves_the_store_is_named_too(self):
        runs = self.start_ranks(3, LONG + ["--timeout", "3"], "tcp://127.0.0.1:%d" % free_port())
        self.wait_for_steps(runs)
        runs[0].send(signal.SIGSTOP)
        for rank in (1, 2):
            self.assertEqual(runs[rank].wait(40), 1, runs[rank])
            self.assertIn("rank 0 is silent", runs[rank].err)
        runs[0].send(signal.SIGKILL)

    def test_a_hanging_rank_is_named(self):
        runs = self.start_ranks(2, LONG + ["--timeout", "3", "--inject", "rank=1,step=5,how=hang"])
        self.assertEqual(runs[0].wait(40), 1, runs[0])
        self.assertIn("rank 1 is silent", runs[0].err)

    def test_under_dlaunch_the_first_failure_is_reported(self):
        run = self.train_ranks(2, LONG + ["--inject", "rank=1,step=5,how=exit:37"], code=37)
        self.assertIn("rank 1", self.report(run))
        run = self.train_ranks(2, LONG + ["--inject", "rank=0,step=5,how=kill"], code=137)
        self.assertIn("SIGKILL", self.report(run))

    def test_a_fault_of_round_0_does_not_come_again(self):
        run = self.train_ranks(2, SMALL + ["--steps", "9", "--inject", "rank=1,step=5,how=exit:3"], launcher=["--max_restarts", "1"])
        self.assertIn("restart 1 of 1", run.err)
        self.train_ranks(2, SMALL + ["--steps", "9", "--inject", "rank=1,step=5,how=exit:3,round=all"], code=3,
                         launcher=["--max_restarts", "1"])

    def test_a_loss_that_is_not_finite_names_rank_and_step(self):
        for ranks, rank in ((2, 1), (1, 0)):
            run = self.train_ranks(ranks, LONG + ["--inject", "rank=%d,step=7,how=nan" % rank], code=1)
            self.assertIn("step 7: the loss of rank %d is not finite" % rank, run.err)

    def test_a_loss_that_grows_beyond_all_bounds_stops_the_run(self):
        run = self.train_ranks(2, LONG + ["--lr", "1e30"], code=1)
        self.assertIn("is not finite", run.err)

    def test_a_flipped_bit_names_its_rank(self):
        run = self.train_ranks(3, LONG + ["--inject", "rank=1,step=7,how=flip", "--check-every", "5"], code=1)
        self.assertIn("step 10: rank 1: the parameters differ", run.err)

    def test_without_checks_a_flipped_bit_goes_unnoticed(self):  # the control
        self.train_ranks(3, SMALL + ["--steps", "20", "--inject", "rank=1,step=7,how=flip", "--check-every", "0"])

    def test_a_slow_rank_is_waited_for(self):
        self.train_ranks(2, SMALL + ["--steps", "10", "--inject", "rank=1,step=5,how=slow:100"])

    def test_a_signal_to_one_rank_stops_all_at_one_step_with_a_checkpoint(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            folder = harness.temporary_folder()
            args = LONG + ["--save", folder, "--save-every", "0"]
            runs = self.start_ranks(3, args)
            self.wait_for_steps(runs)
            runs[2].send(number)
            for run in runs:
                self.assertEqual(run.wait(40), 0, run)
            self.assertIn("saved in", runs[0].out)
            checkpoints = [name for name in os.listdir(folder) if name.startswith("checkpoint-")]
            self.assertEqual(len(checkpoints), 1)

    def test_stopped_by_a_signal_and_resumed_it_ends_as_if_never_stopped(self):
        args = SMALL + ["--reduce=tree", "--steps", "3000", "--global-batch", "64", "--digest", "--log-every", "10"]
        folder = harness.temporary_folder()
        keep = ["--save", folder, "--resume", "auto", "--save-every", "0"]
        run = self.start_dlaunch(["--nproc_per_node=2", TRAIN, *args, *keep])
        harness.wait_until(lambda: '"step"' in run.out, 30, "steps")
        run.send(signal.SIGTERM)
        run.wait(40)
        self.assertIn("stopped at step", run.out)
        self.assert_nothing_left(run)
        self.assertEqual(digest(self.train_ranks(2, args + keep).out), digest(self.train(args).out))

    def test_a_cut_cable_ends_both_ranks(self):
        cluster = harness.Cluster(self, 2)
        url = "tcp://%s:29400" % cluster.address(0)
        runs = [cluster.start(node, [TRAIN, *LONG, "--no-shared-memory", "--timeout", "3", "--init-method", url,
                                     "--rank", str(node), "--world-size", "2"]) for node in (0, 1)]
        self.wait_for_steps(runs)
        cluster.cut(1)
        for node in (0, 1):
            self.assertEqual(runs[node].wait(40), 1, runs[node])
            self.assertIn("rank %d" % (1 - node), runs[node].err.split("error: rank %d: " % node)[1])
