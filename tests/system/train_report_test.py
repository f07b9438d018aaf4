"""What a run prints, and the modes that exist to be compared."""
import os
import pty
import re
import xml.dom.minidom

import harness
from train_runs import SMALL, TRAIN, TestCase, accuracy, lines


class Report(TestCase):
    def test_lines_of_json_account_for_the_time_of_a_step(self):
        run = self.train_ranks(2, SMALL + ["--hidden", "256,256", "--steps", "60", "--log-every", "20"])
        seen = lines(run.out)
        self.assertEqual([line["step"] for line in seen], [20, 40, 60])
        for line in seen:
            for key in ("epoch", "loss", "lr", "images_per_s", "data_wait", "communication", "overlap", "bus_gb_per_s"):
                self.assertIn(key, line)
            ms = line["ms"]
            parts = ms["data"] + ms["upload"] + ms["forward"] + ms["backward"] + ms["reduce_exposed"] + ms["update"]
            self.assertLessEqual(parts, ms["total"] * 1.001)
            self.assertGreater(parts, ms["total"] * 0.7)
            self.assertTrue(0 <= line["communication"] <= 1 and 0 <= line["data_wait"] <= 1 and 0 <= line["overlap"] <= 1)
        self.assertLess(seen[-1]["loss"], seen[0]["loss"])

    def test_only_rank_0_prints_and_the_accuracy_comes_last(self):
        run = self.train_ranks(3, SMALL + ["--steps", "5", "--log-every", "5"])
        self.assertEqual(len(lines(run.out)), 1)
        self.assertRegex(run.out.splitlines()[-1], r"^test accuracy: \d\.\d{4}$")
        self.assertRegex(run.out.splitlines()[-2], r"held back by (data|communication|compute)")

    def test_a_slow_peer_shows_as_communication(self):
        run = self.train_ranks(2, SMALL + ["--steps", "30", "--log-every", "30", "--inject", "rank=1,step=0,how=slow:20"])
        self.assertGreater(lines(run.out)[0]["communication"], 0.5)
        self.assertIn("held back by communication", run.out)

    def test_epochs_are_evaluated_in_between(self):
        run = self.train(SMALL + ["--epochs", "3"])
        self.assertEqual(run.out.count('"test_accuracy"'), 2)
        accuracy(run.out)

    def test_a_plot_is_drawn(self):
        path = os.path.join(harness.temporary_folder(), "out.svg")
        self.train(SMALL + ["--steps", "30", "--log-every", "3", "--plot", path])
        root = xml.dom.minidom.parse(path).documentElement
        self.assertEqual(root.tagName, "svg")
        self.assertGreaterEqual(len(root.getElementsByTagName("polyline")) + len(root.getElementsByTagName("path")), 2)

    def test_on_a_terminal_there_is_a_progress_bar(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        run = self.start(["sh", "-c", 'exec "$0" "$@" 2>&3', TRAIN, *SMALL, "--steps", "400"], prefix=[
            "/usr/bin/python3", "-c",
            "import os, sys; os.dup2(os.open(sys.argv[1], os.O_RDWR), 3); os.set_inheritable(3, True); os.execvp(sys.argv[2], sys.argv[2:])",
            os.ttyname(slave)])
        self.assertEqual(run.wait(60), 0, run)
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:
            pass
        self.assertIn(b"\r", shown)
        self.assertTrue(re.search(rb"\d+/400", shown), shown[:500])

    def test_into_a_file_there_is_none(self):
        self.assertNotIn("\r", self.train(SMALL + ["--steps", "40"]).err)

    def test_dp_learns_as_ddp_does(self):
        args = ["--steps", "50", "--log-every", "10", "--global-batch", "64", "--lr", "0.01"]
        dp = lines(self.train(args + ["--mode", "dp", "--device-ids", "0,1,2", "--output-device", "1"]).out)
        ddp = lines(self.train_ranks(2, args).out)
        self.assertEqual(len(dp), 5)
        for one, other in zip(dp, ddp):
            self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-4)
            self.assertGreater(one["ms"]["backward"], one["ms"]["forward"] / 50)  # which is not the whole pass

    def test_compare_prints_both_modes_with_memory_per_device(self):
        for run in (self.train(SMALL + ["--compare", "--steps", "20"]), self.train_ranks(2, SMALL + ["--compare", "--steps", "20"])):
            for mode in ("dp", "ddp"):
                row = re.search(r"^%s +(\d+) +([\d.]+) +([\d.]+)$" % mode, run.out, re.M)
                self.assertTrue(row, run)
                self.assertGreater(int(row[1]), 0)
                self.assertGreater(float(row[2]), 0)
            self.assertRegex(run.out, r"ddp does \d+\.\d+ times")

    def test_allreduce_has_the_columns_of_nccl_tests(self):
        run = self.train_ranks(2, ["allreduce", "--sizes", "1K:64K", "--iterations", "3"])
        rows = [line.split() for line in run.out.splitlines() if re.match(r"\s*\d", line)]
        self.assertEqual([int(row[0]) for row in rows], [1024 << i for i in range(7)])
        for row in rows:
            size, count, kind, operation, root, time, algbw, busbw, wrong = row
            self.assertEqual((int(count), kind, operation, root, int(wrong)), (int(size) // 4, "float", "sum", "-1", 0))
            self.assertAlmostEqual(float(algbw), int(size) / float(time) / 1e3, delta=0.02 + float(algbw) * 0.05)
            self.assertAlmostEqual(float(busbw), float(algbw), delta=0.02)  # 2 (n - 1) / n is 1 with two ranks
        self.assertIn("# Avg bus bandwidth", run.out)
