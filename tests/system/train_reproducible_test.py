"""The same numbers, however a run is spread over ranks, passes, restarts and time."""
import os
import random
import signal

import harness
from train_runs import SMALL, TRAIN, TestCase, accuracy, digest, lines, losses

TREE = ["--reduce=tree", "--global-batch", "64", "--digest", "--log-every", "1"]


class Reproducible(TestCase):
    def test_tree_has_the_same_bits_for_1_2_4_and_8_ranks(self):
        for model in (["--model", "mlp", "--hidden", "48,24"], ["--model", "cnn"], ["--model", "softmax"]):
            args = SMALL + model + TREE + ["--steps", "12", "--lr", "0.05", "--momentum", "0.9"]
            runs = [self.train_ranks(ranks, args) for ranks in (1, 2, 4, 8)]
            runs.append(self.train_ranks(4, args + ["--no-shared-memory"]))
            self.assertEqual(len(losses(runs[0].out)), 12)
            for run in runs[1:]:
                self.assertEqual(losses(run.out), losses(runs[0].out), model)
                self.assertEqual(digest(run.out), digest(runs[0].out), model)

    def test_tree_has_the_same_bits_with_adamw_clipping_schedule_and_passes(self):
        args = SMALL + ["--reduce=tree", "--digest", "--steps", "20", "--optimizer", "adamw", "--lr", "0.002",
                        "--weight-decay", "0.01", "--clip", "0.5", "--lr-schedule", "cosine", "--warmup", "5"]
        one = self.train_ranks(1, args + ["--global-batch", "64"])
        two = self.train_ranks(2, args + ["--batch-size", "16", "--accumulate", "2"])
        self.assertEqual(digest(one.out), digest(two.out))

    def test_tree_pads_the_last_batch_of_an_epoch_alike(self):
        args = ["--data", "synthetic:203", "--hidden", "16"] + TREE + ["--epochs", "2"]
        self.assertEqual(digest(self.train_ranks(1, args).out), digest(self.train_ranks(4, args).out))

    def test_fast_is_within_rounding_of_one_rank(self):
        args = ["--model", "mlp", "--global-batch", "64", "--lr", "0.01", "--momentum", "0.5", "--steps", "50",
                "--log-every", "1"]
        one = losses(self.train_ranks(1, args).out)
        for ranks, more in ((2, []), (4, []), (2, ["--no-shared-memory"]), (3, ["--no-shared-memory", "--global-batch", "63"])):
            if ranks == 3:
                one = losses(self.train_ranks(1, args + ["--global-batch", "63"]).out)
            several = losses(self.train_ranks(ranks, args + more).out)
            self.assertLess(max(abs(a - b) for a, b in zip(one[:10], several[:10])), 1e-6)
            self.assertLess(max(abs(a - b) for a, b in zip(one, several)), 1e-5)

    def test_another_seed_is_another_run(self):  # the control: digests do tell runs apart
        args = SMALL + TREE + ["--steps", "3"]
        self.assertNotEqual(digest(self.train(args).out), digest(self.train(args + ["--seed", "2"]).out))

    def test_passes_add_up_to_one_batch(self):
        args = SMALL + ["--log-every", "1", "--steps", "20", "--global-batch", "48", "--lr", "0.01"]
        one = losses(self.train(args).out)
        three = losses(self.train(args + ["--accumulate", "3"]).out)
        self.assertLess(max(abs(a - b) for a, b in zip(one, three)), 1e-5)

    def test_small_buckets_change_nothing(self):
        args = SMALL + TREE + ["--steps", "5"]
        usual = digest(self.train_ranks(2, args).out)
        for mb in ("0", "0.001"):
            self.assertEqual(digest(self.train_ranks(2, args + ["--bucket-mb", mb, "--first-bucket-mb", mb]).out), usual)

    def test_the_mlp_learns_fashion_mnist_in_one_epoch(self):
        run = self.train_ranks(2, ["--epochs", "1", "--seed", "1"])
        self.assertGreater(accuracy(run.out), 0.80)

    def test_counts_of_an_evaluation_are_the_same_for_any_number_of_ranks(self):
        folder = harness.temporary_folder()
        self.train(SMALL + ["--steps", "20", "--save", folder])
        weights = os.path.join(folder, "model.safetensors")
        # No step changes anything with a learning rate of 0.
        args = SMALL + ["--init", weights, "--lr", "0", "--momentum", "0", "--steps", "1", "--test-batch-size", "37"]
        seen = {accuracy(self.train_ranks(ranks, args).out) for ranks in (1, 2, 3, 5, 7)}
        self.assertEqual(len(seen), 1, seen)


class Resume(TestCase):
    ARGS = SMALL + TREE + ["--steps", "60", "--momentum", "0.9", "--lr", "0.02"]

    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one_at_any_number_of_ranks(self):
        whole = self.train(self.ARGS)
        for before, after in ((1, 1), (2, 1), (1, 4)):
            folder = harness.temporary_folder()
            keep = ["--save", folder, "--save-every", "10", "--resume", "auto"]
            self.train_ranks(before, self.ARGS + keep + ["--inject", "rank=0,step=37,how=exit:9"], code=9)
            resumed = self.train_ranks(after, self.ARGS + keep)
            self.assertIn("continues at step 30", resumed.err)
            self.assertEqual(digest(resumed.out), digest(whole.out))

    def test_a_resumed_adamw_run_is_the_same_too(self):
        args = SMALL + TREE + ["--steps", "30", "--optimizer", "adamw", "--lr", "0.003"]
        folder = harness.temporary_folder()
        keep = ["--save", folder, "--save-every", "10", "--resume", "auto"]
        self.train(args + keep + ["--inject", "rank=0,step=25,how=exit:9"], code=9)
        self.assertEqual(digest(self.train(args + keep).out), digest(self.train(args).out))

    def test_a_resumed_run_goes_on_within_its_epoch(self):
        args = ["--data", "synthetic:1000", "--hidden", "16"] + TREE + ["--epochs", "3"]
        folder = harness.temporary_folder()
        keep = ["--save", folder, "--save-every", "7", "--resume", "auto"]
        self.train(args + keep + ["--inject", "rank=0,step=24,how=exit:9"], code=9)
        self.assertEqual(digest(self.train_ranks(2, args + keep).out), digest(self.train(args).out))

    def test_a_restart_by_dlaunch_ends_with_the_digest_of_an_undisturbed_run(self):
        folder = harness.temporary_folder()
        run = self.train_ranks(2, self.ARGS + ["--save", folder, "--save-every", "20", "--resume", "auto",
                                               "--inject", "rank=1,step=45,how=kill"], launcher=["--max_restarts", "2"])
        self.assertIn("restart 1 of 2", run.err)
        self.assertEqual(digest(run.out), digest(self.train(self.ARGS).out))

    def test_killed_at_any_moment_it_can_always_be_resumed(self):
        chance = random.Random(7)
        folder = harness.temporary_folder()
        args = SMALL + TREE + ["--steps", "600", "--save", folder, "--save-every", "3", "--resume", "auto", "--keep", "2"]
        killed = 0
        for _ in range(30):
            run = self.start([TRAIN] + args)
            target = chance.randrange(1, 40)
            harness.wait_until(lambda: run.code is not None or len(losses_so_far(run)) >= target, 30, "some steps")
            killed += run.code is None
            run.send(signal.SIGKILL)
            run.wait()
        self.assertGreater(killed, 10)
        end = self.train(args)
        self.assertNotIn("passed over", end.err)
        self.assertEqual(digest(end.out), digest(self.train(SMALL + TREE + ["--steps", "600"]).out))

    def test_epochs_end_where_they_end_at_any_number_of_ranks(self):
        args = ["--data", "synthetic:1280", "--hidden", "16", "--batch-size", "32", "--epochs", "2", "--log-every", "1"]
        for before, after, at, steps in ((1, 2, 60, 60 + 10), (2, 1, 30, 30 + 20), (1, 2, 20, 20 + 10 + 20)):
            folder = harness.temporary_folder()
            keep = ["--save", folder, "--save-every", "10", "--resume", "auto"]
            self.train_ranks(before, args + keep + ["--inject", "rank=0,step=%d,how=exit:9" % at], code=9)
            resumed = self.train_ranks(after, args + keep)
            self.assertEqual([line["step"] for line in lines(resumed.out)][-1], steps, (before, after))
            self.assertEqual({line["epoch"] for line in lines(resumed.out)} - {0}, {1})

    def test_what_is_not_finite_is_not_saved(self):
        folder = harness.temporary_folder()
        run = self.train(SMALL + ["--lr", "1e39", "--steps", "1", "--save", folder], code=1)
        self.assertIn("not finite", run.err)
        self.assertEqual(os.listdir(folder), [])

    def test_a_torn_checkpoint_is_passed_over(self):
        folder = harness.temporary_folder()
        keep = ["--save", folder, "--save-every", "10", "--resume", "auto"]
        self.train(self.ARGS + keep + ["--inject", "rank=0,step=45,how=exit:9"], code=9)
        newest = sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))[-1]
        with open(os.path.join(folder, newest), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 5)
        resumed = self.train(self.ARGS + keep)
        self.assertIn("passed over", resumed.err)
        self.assertIn(newest, resumed.err)
        self.assertIn("continues at step 30", resumed.err)
        self.assertEqual(digest(resumed.out), digest(self.train(self.ARGS).out))

    def test_another_model_or_optimizer_is_refused(self):
        folder = harness.temporary_folder()
        self.train(SMALL + ["--steps", "5", "--save", folder])
        for other in (["--hidden", "31"], ["--optimizer", "adamw"], ["--seed", "9"]):
            run = self.train_ranks(2, SMALL + ["--steps", "9", "--save", folder, "--resume", "auto"] + other, code=2)
            self.assertIn("train: error: rank 0: ", run.err)


def losses_so_far(run):
    try:
        return losses(run.out)
    except ValueError:  # a line is not whole yet
        return []
