"""How `train` is started, and what it refuses."""
import os
import shutil
import signal

import harness
from train_runs import SMALL, TRAIN, TestCase, accuracy, digest, free_port

ARGS = SMALL + ["--steps", "5", "--digest", "--reduce=tree", "--global-batch", "64"]


class Start(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = None

    def assert_same(self, text):
        if Start.expected is None:
            Start.expected = digest(self.train(ARGS).out)
        self.assertEqual(digest(text), Start.expected)

    def test_every_init_method_gives_the_same_run(self):
        folder = harness.temporary_folder()
        for url in (None, "tcp://localhost:%d" % free_port(), "tcp://[::1]:%d" % free_port(), "file://%s/meet" % folder):
            runs = self.start_ranks(2, ARGS, url)
            for run in runs:
                self.assertEqual(run.wait(60), 0, "%s\n%s" % (url, run))
            self.assert_same(runs[0].out)
        self.assertEqual(os.listdir(folder), [])  # it deletes itself

    def test_by_hand_with_the_environment_alone(self):
        port = str(free_port())
        runs = [self.start([TRAIN, *ARGS], env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in (1, 0)]
        for run in runs:
            self.assertEqual(run.wait(60), 0, run)
        self.assert_same(runs[1].out)

    def test_a_file_that_a_killed_run_left_is_no_hindrance(self):
        path = os.path.join(harness.temporary_folder(), "meet")
        killed = self.start_ranks(2, SMALL + ["--steps", "1000000", "--log-every", "10"], "file://" + path)
        harness.wait_until(lambda: '"step"' in killed[0].out, 30, "steps")
        for run in killed:
            run.send(signal.SIGKILL)
            run.wait()
        self.assertTrue(os.path.exists(path))
        runs = self.start_ranks(2, ARGS, "file://" + path)
        for run in runs:
            self.assertEqual(run.wait(60), 0, run)
        self.assert_same(runs[0].out)

    def test_under_dlaunch_on_two_nodes(self):
        cluster = harness.Cluster(self, 2)
        runs = [cluster.start_dlaunch(node, ["--nnodes=2", "--node_rank=%d" % node, "--nproc_per_node=2", "--master_addr",
                                             cluster.address(0), TRAIN, *ARGS, "--no-shared-memory"]) for node in (0, 1)]
        for run in runs:
            self.assertEqual(run.wait(60), 0, run)
            self.assert_nothing_left(run)
        self.assert_same(runs[0].out)

    def test_dlaunch_finds_it_by_its_bare_word(self):
        run = self.run_dlaunch(["--nproc_per_node=2", "--master_port", str(free_port()), "train", *ARGS])
        self.assert_code(run, 0)
        self.assert_same(run.out)

    def test_independent_copies_take_a_slice_each(self):
        run = self.run_dlaunch(["--process_num", "3", "--log_file", "copy%i.log", TRAIN, *SMALL, "--epochs", "1", "--batch-size", "1",
                                "--log-every", "100000"])
        self.assert_code(run, 0)
        steps = []
        for copy in range(3):
            with open(os.path.join(run.folder, "copy%d.log" % copy)) as file:
                text = file.read()
            accuracy(text)
            steps.append(int(text.split('"step":')[1].split(",")[0]))
        self.assertEqual(steps, [683, 683, 682])  # of 2048 images

    def test_a_rank_that_never_comes_is_named(self):
        url = "tcp://127.0.0.1:%d" % free_port()
        runs = [self.start([TRAIN, *SMALL, "--join-timeout", "2", "--init-method", url, "--rank", str(rank), "--world-size", "3"])
                for rank in (0, 1)]
        for run in runs:
            self.assertEqual(run.wait(30), 1, run)
            self.assertIn("rank 2", run.err)

    def test_ranks_that_wait_say_for_whom(self):
        url = "tcp://127.0.0.1:%d" % free_port()
        arguments = [TRAIN, *SMALL, "--steps", "5", "--join-timeout", "60", "--init-method", url, "--world-size", "3", "--rank"]
        runs = {2: self.start(arguments + ["2"])}
        harness.wait_until(lambda: "train: rank 2 waits for rank 0's store at 127.0.0.1:" in runs[2].err, 30, str(runs[2]))
        runs[0] = self.start(arguments + ["0"])
        harness.wait_until(lambda: "train: rank 0 waits for rank 1\n" in runs[0].err, 30, str(runs[0]))
        runs[1] = self.start(arguments + ["1"])
        for run in runs.values():
            self.assertEqual(run.wait(30), 0, run)
        self.assertNotIn("waits", runs[1].err)
        self.assertNotIn("waits for rank 1", runs[2].err)  # one rank says it for all

    def test_a_rank_0_that_is_gone_while_ranks_meet_is_named(self):
        url = "tcp://127.0.0.1:%d" % free_port()
        arguments = [TRAIN, *SMALL, "--join-timeout", "60", "--init-method", url, "--world-size", "3", "--rank"]
        runs = [self.start(arguments + [rank]) for rank in ("0", "1")]
        harness.wait_until(lambda: "waits for rank 2" in runs[0].err, 30, str(runs[0]))
        runs[0].send(signal.SIGKILL)
        self.assertEqual(runs[1].wait(30), 1, runs[1])
        self.assertIn("error: rank 1: rank 0 is gone or silent: ", runs[1].err)

    def test_a_second_process_with_the_same_rank_is_refused(self):
        url = "tcp://127.0.0.1:%d" % free_port()
        arguments = [TRAIN, *SMALL, "--steps", "5", "--join-timeout", "5", "--init-method", url, "--world-size", "3", "--rank"]
        runs = [self.start(arguments + [rank]) for rank in ("0", "1", "1")]
        codes = [run.wait(30) for run in runs]
        self.assertNotIn(0, codes)
        self.assertTrue(any("rank 1" in run.err and "already" in run.err for run in runs), "\n".join(map(str, runs)))

    def test_two_sizes_of_the_world_are_refused_on_both_sides(self):
        url = "tcp://127.0.0.1:%d" % free_port()
        runs = [self.start([TRAIN, *SMALL, "--join-timeout", "3", "--init-method", url, "--rank", str(rank), "--world-size", size])
                for rank, size in ((0, "2"), (1, "3"))]
        for run in runs:
            self.assertNotEqual(run.wait(30), 0, run)
            self.assertIn("world", run.err)

    def test_ranks_with_other_flags_are_refused_by_the_flag(self):
        for flag, one, other in (("--seed", "1", "2"), ("--hidden", "32", "16,16"), ("--bucket-mb", "25", "0"),
                                 ("--batch-size", "64", "32"), ("--lr", "0.1", "0.2"), ("--data", "synthetic:2048", "synthetic:1024")):
            url = "tcp://127.0.0.1:%d" % free_port()
            runs = [self.start([TRAIN, *SMALL, "--steps", "5", "--init-method", url, "--world-size", "2", "--rank", str(rank),
                                flag, value]) for rank, value in ((0, one), (1, other))]
            for run in runs:
                self.assertEqual(run.wait(60), 2, run)
            self.assertIn("this rank has %s" % flag, runs[1].err)
            self.assertIn("other flags", runs[0].err)

    def test_lines_that_stdout_does_not_take_are_no_success(self):
        for args in (SMALL + ["--steps", "3"], ["--help"]):
            run = self.start(["sh", "-c", 'exec "$0" "$@" >/dev/full', TRAIN, *args])
            self.assertEqual(run.wait(60), 1, run)
            self.assertIn("stdout", run.err)
            run = self.start(["sh", "-c", 'exec "$0" "$@" >&-', TRAIN, *args])
            self.assertEqual(run.wait(60), 1, run)

    def test_without_its_modules_one_rank_trains_and_says_why_it_is_slow(self):
        folder = harness.temporary_folder()
        alone = os.path.join(folder, "train")
        shutil.copy(TRAIN, alone)
        run = self.start([alone, *SMALL, "--steps", "3"])
        self.assertEqual(run.wait(60), 0, run)
        self.assertIn("train_host.so", run.err)
        two = [self.start([alone, *SMALL, "--init-method", "file://%s/f" % folder, "--rank", str(rank), "--world-size", "2"])
               for rank in (0, 1)]
        for run in two:
            self.assertEqual(run.wait(60), 2, run)
            self.assertIn("train_host.so", run.err)
            self.assertIn("libgloo-dev", run.err)

    def test_it_says_in_one_line_what_it_runs_on_and_why(self):
        run = self.train(SMALL + ["--steps", "1", "--no-cuda"])
        line = [text for text in run.err.splitlines() if text.startswith("train: 1 rank on cpu")]
        self.assertEqual(len(line), 1, run)
        self.assertIn("--no-cuda", line[0])
        self.assertIn("OpenBLAS", line[0])

    def test_help_fits_two_screens(self):
        text = self.train(["--help"]).out.splitlines()
        self.assertLess(len(text), 100)
        self.assertLessEqual(max(map(len, text)), 120)

    def test_what_cannot_be_used_is_refused_with_its_name_and_value(self):
        for args, wanted in (
            (["--batch-size", "8", "--global-batch", "16"], ["--batch-size", "--global-batch"]),
            (["--global-batch", "10", "--accumulate", "3"], ["10", "3"]),
            (["--batch-size", "0"], ["--batch-size", "0"]),
            (["--model", "gpt"], ["--model", "gpt"]),
            (["--lr", "fast"], ["--lr", "fast"]),
            (["--rank", "0"], ["rank"]),
            (["--rank", "2", "--world-size", "2"], ["2"]),
            (["--init-method", "carrier://pigeon", "--rank", "0", "--world-size", "2"], ["carrier://pigeon"]),
            (["--process-index", "3", "--process-num", "3"], ["3"]),
            (["--data", "/nowhere"], ["/nowhere"]),
            (["--resume", "auto"], ["--save"]),
            (["--resume", "/nowhere/x"], ["/nowhere/x"]),
            (["--init", "/nowhere/x"], ["/nowhere/x"]),
            (["--inject", "rank=0,how=kill"], ["step"]),
            (["--mode", "dp", "--reduce=tree"], ["dp"]),
            (["--mode", "dp", "--device-ids", "0,1", "--output-device", "5"], ["5"]),
            (["--backend", "nccl", "--no-cuda"], ["nccl"]),
            (["--no-such-flag"], ["--no-such-flag"]),
            (["--timeout", "nan"], ["--timeout", "nan"]),
            (["--lr", "inf"], ["--lr", "inf"]),
            (["--device-ids", "0,1"], ["--device-ids"]),
            (["--inject", "rank=5,step=1,how=kill"], ["rank 5 of 1"]),
            (["--inject", "rank=0,step=7,how=kill", "--steps", "7"], ["step=7", "only 7 steps"]),
            (["--save", "/proc/nothing"], ["/proc/nothing"]),
            (["--init-method", "file:///etc/hostname", "--rank", "0", "--world-size", "2"], ["/etc/hostname"]),
            (["allreduce", "--sizes", "4K:1K"], ["4K:1K"]),
        ):
            run = self.train(SMALL + args if args[0] != "allreduce" else args, code=2)
            for text in ["train: error: ", *wanted]:
                self.assertIn(text, run.err, args)

    def test_the_variables_are_checked_too(self):
        for env, wanted in (({"RANK": "0"}, "WORLD_SIZE"), ({"RANK": "x", "WORLD_SIZE": "2"}, "'x'"),
                            ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
                            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "99999"}, "99999")):
            run = self.train(SMALL, code=2, env=env)
            self.assertIn(wanted, run.err, env)

    def test_missing_images_name_the_package(self):
        run = self.train(["--data", "/usr/share/datasets/fashion-mnist-x"], code=2)
        self.assertIn("/usr/share/datasets/fashion-mnist-x", run.err)

    def test_a_packed_file_trains_as_its_source(self):
        folder = harness.temporary_folder()
        packed = os.path.join(folder, "fashion.pack")
        args = ["--steps", "10", "--digest", "--reduce=tree"]
        self.train(["pack", "/usr/share/datasets/fashion-mnist", "-o", packed])
        self.assertEqual(digest(self.train(args + ["--data", packed]).out), digest(self.train(args).out))

    def test_the_number_of_loader_threads_changes_nothing(self):
        seen = {digest(self.train(ARGS + ["--workers", workers, "--prefetch", ahead]).out)
                for workers, ahead in (("0", "1"), ("1", "1"), ("4", "7"))}
        self.assertEqual(len(seen), 1)
