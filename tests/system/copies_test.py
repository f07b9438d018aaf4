"""--process_num: the start.sh and start.py of the field, beside their one-line forms."""
import os
import re
import signal
import sys

import harness

WITH_DLAUNCH = {"PATH": harness.BIN + ":" + harness.base_environment()["PATH"]}


def example(name):
    return os.path.join(harness.EXAMPLES, name)


def files(folder):
    """{name: content} of all files in it."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            found[name] = file.read()
    return found


class FromStartSh(harness.TestCase):
    """start.sh: the pair after the other arguments, a log file each, then wait."""

    def old(self, *args):
        # dlaunch runs Python unbuffered; without that the two streams would come in another order here.
        run = self.start(["bash", example("start.sh"), *args], env={"PYTHONUNBUFFERED": "1"})
        run.wait()
        return run

    def new(self, *args):
        run = self.start(["bash", example("start_dlaunch.sh"), *args], env=WITH_DLAUNCH)
        run.wait()
        return run

    def test_the_same_work_is_done_and_the_same_files_are_written(self):
        old, new = self.old("--items", "7"), self.new("--items", "7")
        self.assert_code(old, 0)
        self.assert_code(new, 0)
        self.assertEqual(sorted(files(old.folder)), ["process%d.log" % i for i in range(3)] +
                         ["result%d.txt" % i for i in range(3)])
        self.assertEqual(files(new.folder), files(old.folder))
        self.assertIn("copy 1 of 3: items 1 4, lr 0.1", files(new.folder)["process1.log"])
        self.assertEqual(new.out + new.err, "", "the console stays silent")

    def test_the_exit_code_that_start_sh_loses_is_kept_and_the_others_finish(self):
        old, new = self.old("--fail", "1:7"), self.new("--fail", "1:7")
        self.assert_code(old, 0)  # that is the trouble with it
        self.assert_code(new, 7)
        self.assertEqual(files(new.folder), files(old.folder))
        self.assertIn("result2.txt", files(new.folder))
        self.assertNotIn("result1.txt", files(new.folder))
        self.assertRegex(self.report(new), r"\Adlaunch: job failed: copy 1 of 3 \(.*pid \d+\) exited with code 7 after ")
        self.assertIn("copy 1 cannot go on", self.report(new))
        self.assert_nothing_left(new)


class FromStartPy(harness.TestCase):
    """start.py: a Popen list that puts the pair first and hands its own arguments on."""

    def both(self, *args):
        old = self.start([sys.executable, example("start.py"), *args])
        new = self.start(["bash", example("start_py_dlaunch.sh"), *args], env=WITH_DLAUNCH)
        old.wait()
        new.wait()
        return old, new

    def test_the_same_lines_come_to_the_console(self):
        old, new = self.both("--lr", "0.5", "--items", "8")
        self.assert_code(old, 0)
        self.assert_code(new, 0)
        self.assertEqual(sorted(new.out.splitlines()), sorted(old.out.splitlines()))
        self.assertEqual(files(new.folder), files(old.folder))
        self.assertEqual(new.err, "")

    def test_the_exit_code_that_start_py_loses_is_kept(self):
        old, new = self.both("--fail", "2:5")
        self.assert_code(old, 0)
        self.assert_code(new, 5)
        self.assertEqual(files(new.folder), files(old.folder))


class Copies(harness.TestCase):
    def test_the_pair_is_the_first_that_a_script_gets(self):
        folder = harness.temporary_folder()
        script = os.path.join(folder, "show.py")
        with open(script, "w") as file:
            file.write("import sys\nprint(sys.argv[1:])\n")
        run = self.run_dlaunch(["--process_num", "2", script, "--lr", "0.1", "x y", ""])
        self.assert_code(run, 0)
        self.assertEqual(sorted(run.out.splitlines()),
                         ["['--process_index', '%d', '--process_num', '2', '--lr', '0.1', 'x y', '']" % i
                          for i in range(2)])

    def test_the_pair_is_the_first_that_a_program_gets(self):
        run = self.run_dlaunch(["--process_num=2", harness.STUB, "argv", "--", "a"])
        self.assert_code(run, 0)
        for index in range(2):
            self.assertIn("<--process_index>\n<%d>\n<--process_num>\n<2>\n<argv>\n<-->\n<a>\n" % index, run.out)

    def test_the_pair_after_the_program_is_not_ours(self):
        run = self.run_dlaunch([harness.STUB, "args", "--", "--process_index", "5", "--process_num", "6"])
        self.assert_code(run, 0)
        self.assertEqual(run.out, "<--process_index>\n<5>\n<--process_num>\n<6>\n")

    def test_each_copy_is_alone_in_its_world(self):
        stale = {"MASTER_ADDR": "stale", "MASTER_PORT": "1", "RANK": "9", "TORCHELASTIC_RUN_ID": "stale"}
        run = self.run_dlaunch(["--process_num", "2", "--log_file", "env%i", harness.STUB, "allenv"], env=stale)
        self.assert_code(run, 0)
        for index in range(2):
            with open(os.path.join(run.folder, "env%d" % index)) as file:
                env = dict(line.split("=", 1) for line in file.read().splitlines())
            self.assertEqual({name: env.get(name) for name in ("PROCESS_INDEX", "PROCESS_NUM", "RANK", "LOCAL_RANK",
                                                                "WORLD_SIZE")},
                             {"PROCESS_INDEX": str(index), "PROCESS_NUM": "2", "RANK": "0", "LOCAL_RANK": "0",
                              "WORLD_SIZE": "1"})
            self.assertEqual([name for name in env if name.startswith(("MASTER_", "TORCHELASTIC_", "DLAUNCH_TOKEN"))],
                             [])

    def test_copies_share_the_gpus_in_turn(self):
        run = self.run_dlaunch(["--process_num", "3", "--log_file", "gpu%i", harness.STUB, "env:CUDA_VISIBLE_DEVICES"],
                               env={"CUDA_VISIBLE_DEVICES": "3,GPU-5"})
        self.assert_code(run, 0)
        self.assertEqual(files(run.folder), {"gpu0": "CUDA_VISIBLE_DEVICES=3\n",
                                             "gpu1": "CUDA_VISIBLE_DEVICES=GPU-5\n",
                                             "gpu2": "CUDA_VISIBLE_DEVICES=3\n"})

    def test_an_index_runs_that_copy_only(self):
        run = self.run_dlaunch(["--process_index", "1", "--process_num", "3", harness.STUB, "argv",
                                "env:PROCESS_INDEX", "env:PROCESS_NUM"], env={"CUDA_VISIBLE_DEVICES": "0,1,2"})
        self.assert_code(run, 0)
        self.assertEqual(run.out, "<--process_index>\n<1>\n<--process_num>\n<3>\n<argv>\n<env:PROCESS_INDEX>\n"
                                  "<env:PROCESS_NUM>\nPROCESS_INDEX=1\nPROCESS_NUM=3\n")

    def test_an_index_alone_keeps_its_place_among_the_gpus(self):
        run = self.run_dlaunch(["--process_index", "1", "--process_num", "3", harness.STUB, "env:CUDA_VISIBLE_DEVICES"],
                               env={"CUDA_VISIBLE_DEVICES": "4,6,8"})
        self.assertEqual(run.out, "CUDA_VISIBLE_DEVICES=6\n")

    def test_the_others_finish_and_every_failed_index_is_in_the_report(self):
        folder = harness.temporary_folder()
        first, second = folder + "/first", folder + "/second"
        run = self.start_dlaunch(["--process_num", "4", harness.STUB,
                                  "index:1:err:one is broken", "index:1:touch:" + first, "index:1:exit:7",
                                  "await:" + first, "index:3:await:" + second, "index:3:exit:9",
                                  "index:0:await:" + second, "index:0:out:zero is done"])
        harness.wait_until(lambda: os.path.exists(first), what="copy 1's end")
        self.assertIsNone(run.code)
        open(second, "w").close()
        self.assertEqual(run.wait(), 7, str(run))
        self.assertEqual(run.out, "zero is done\n")
        report = self.report(run)
        self.assertRegex(report, r"\Adlaunch: job failed: copy 1 of 4 \(.*pid \d+\) exited with code 7 after ")
        self.assertIn("| one is broken", report)
        self.assertRegex(report, r"copy 3 of 4 \(.*pid \d+\) exited with code 9")
        self.assertNotRegex(report, r"copy [02] of 4")

    def test_stop_all_ends_the_others(self):
        run = self.run_dlaunch(["--process_num", "3", "--stop_all", harness.STUB, "index:1:exit:7", "wait"], timeout=20)
        self.assert_code(run, 7)
        self.assertRegex(self.report(run), r"\Adlaunch: job failed: copy 1 of 3 ")
        self.assert_nothing_left(run)

    def test_a_killed_copy_gives_128_and_its_signal(self):
        run = self.run_dlaunch(["--process_num", "2", harness.STUB, "index:0:signal:9"])
        self.assert_code(run, 137)
        self.assertRegex(self.report(run), r"\Adlaunch: job failed: copy 0 of 2 \(.*\) was killed by SIGKILL after ")

    def test_both_streams_of_a_copy_go_to_its_file_in_order(self):
        run = self.run_dlaunch(["--process_num", "2", "--log_file", "process%i.log", harness.STUB,
                                "out:one", "err:two", "out:three"])
        self.assert_code(run, 0)
        self.assertEqual(files(run.folder), {"process%d.log" % i: "one\ntwo\nthree\n" for i in range(2)})
        self.assertEqual(run.out + run.err, "")

    def test_ctrl_c_leaves_nothing(self):
        folder = harness.temporary_folder()
        pids = [folder + "/%d" % i for i in range(3)]
        steps = ["index:%d:daemon:%s" % pair for pair in enumerate(pids)]
        run = self.start_dlaunch(["--process_num", "3", "--shutdown_timeout", "1", harness.STUB, *steps, "wait"])
        harness.wait_until(lambda: all(map(os.path.exists, pids)), what="the copies")
        os.killpg(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(20), -signal.SIGINT, str(run))
        self.assert_nothing_left(run)

    def test_ctrl_c_leaves_everything_without_dlaunch(self):
        folder = harness.temporary_folder()
        copies = "\n".join("%s touch:%s/%d wait &" % (harness.STUB, folder, i) for i in range(2))
        run = self.start(["bash", "-c", copies + "\nwait"])
        harness.wait_until(lambda: len(os.listdir(folder)) == 2, what="the copies")
        os.killpg(run.pid, signal.SIGINT)
        run.wait(20)
        self.assertEqual(len(run.leftovers()), 2)

    def test_a_group_of_copies_has_ranks(self):
        run = self.run_dlaunch(["--process_num", "2", "--process_group", "--log_file", "%i", harness.STUB,
                                "env:PROCESS_INDEX", "env:RANK", "env:WORLD_SIZE", "env:MASTER_ADDR"])
        self.assert_code(run, 0)
        self.assertEqual(files(run.folder), {
            str(i): "PROCESS_INDEX=%d\nRANK=%d\nWORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\n" % (i, i) for i in range(2)})

    def refused(self, *args):
        run = self.run_dlaunch([*args, harness.STUB, "out:started"])
        self.assert_code(run, 2)
        self.assertEqual(run.out, "", "nothing was started")
        self.assertRegex(run.err, r"\Adlaunch: error: ")
        return run.err

    def test_what_contradicts_copies_is_refused(self):
        for flags in (["--nproc_per_node", "2"], ["--nnodes", "2"], ["--max_restarts", "1"]):
            with self.subTest(flags):
                self.assertIn(flags[0], self.refused("--process_num", "3", *flags))

    def test_copies_that_would_share_a_log_file_are_refused(self):
        self.assertIn("%i", self.refused("--process_num", "3", "--log_file", "all.log"))

    def test_keep_going_is_for_copies_only(self):
        self.assertIn("--keep_going", self.refused("--nproc_per_node", "2", "--keep_going"))

    def test_an_index_that_is_none_is_refused(self):
        self.assertRegex(self.refused("--process_index", "3", "--process_num", "3"), re.escape("--process_index"))
