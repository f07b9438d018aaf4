"""One node: how workers start, end and are ended. Real processes, real signals."""
import os
import signal
import subprocess
import unittest

from harness import DLAUNCH, ROOT, STUB, TestCase, temporary_folder, wait_until


def read_pid(file):
    return int(open(file).read())


def state_of(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def alive(pid):
    return state_of(pid) not in "ZX"


def children(pid):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry) as file:
                if int(file.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry))
        except OSError:
            pass
    return found


class ExitCodes(TestCase):
    def test_every_exit_code_of_a_worker_is_dlaunchs_own(self):
        for code in range(256):
            run = self.run_dlaunch([STUB, "exit:%d" % code])
            self.assertEqual(run.code, code, str(run))

    def test_every_deadly_signal_of_a_worker_gives_128_plus_its_number_and_its_name(self):
        harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP,
                    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
        for number in range(1, 65):
            if number in harmless or number in (32, 33):  # 32 and 33 are the C library's
                continue
            run = self.run_dlaunch([STUB, "signal:%d" % number])
            self.assertEqual(run.code, 128 + number, str(run))
            if number < 32:
                self.assertIn("was killed by %s" % signal.Signals(number).name, self.report(run))

    def test_an_exit_code_15_is_no_sigterm(self):
        # The fault that Boost.Process 1.81 would bring: both merged into one number.
        self.assertEqual(self.run_dlaunch([STUB, "exit:15"]).code, 15)
        self.assertEqual(self.run_dlaunch([STUB, "signal:15"]).code, 143)

    def test_the_first_failure_gives_the_code_and_the_others_are_stopped(self):
        run = self.run_dlaunch(["--nproc_per_node=3", STUB, "rank:1:exit:3", "wait"])
        self.assert_code(run, 3)
        report = self.report(run)
        self.assertIn("dlaunch: job failed: rank 1 (local 1, pid ", report)
        self.assertIn(") exited with code 3 after ", report)
        self.assertIn("stopped by dlaunch: ranks 0, 2 (SIGTERM)", report)
        self.assertTrue(run.err.endswith(report), "nothing comes after the report")
        self.assert_nothing_left(run)

    def test_a_missing_program_is_127_and_one_without_the_x_bit_126(self):
        run = self.run_dlaunch(["--no_python", "--use_env", "/nowhere/prog"])
        self.assert_code(run, 127)
        self.assertIn("could not be started", self.report(run))
        self.assertIn("'/nowhere/prog'", run.err)
        file = os.path.join(temporary_folder(), "prog")
        open(file, "w").write("x")
        os.chmod(file, 0o644)
        run = self.run_dlaunch(["--no_python", "--use_env", file])
        self.assert_code(run, 126)
        self.assertIn("ermission denied", run.err)

    def test_a_script_whose_interpreter_is_missing_says_so(self):
        file = os.path.join(temporary_folder(), "prog")
        open(file, "w").write("#!/nowhere/interpreter\n")
        os.chmod(file, 0o755)
        run = self.run_dlaunch(["--no_python", "--use_env", file])
        self.assert_code(run, 127)
        self.assertIn("interpreter", run.err)

    def test_success_is_silent(self):
        run = self.run_dlaunch(["--nproc_per_node=4", "/bin/true"])
        self.assert_code(run, 0)
        self.assertEqual(run.err, "")
        self.assertEqual(run.out, "")


class CleanStart(TestCase):
    def test_no_descriptor_of_dlaunch_is_open_in_a_worker(self):
        run = self.run_dlaunch(["--nproc_per_node=2", STUB, "fds"])
        self.assertEqual(run.out, "0 1 2\n0 1 2\n", str(run))

    def test_no_descriptor_that_was_open_in_the_shell_is_open_in_a_worker(self):
        run = self.start(["sh", "-c", 'exec 7</dev/null; exec "$@"', "sh", DLAUNCH, STUB, "fds"])
        run.wait()
        self.assertEqual(run.out, "0 1 2\n", str(run))

    def test_descriptors_are_closed_on_a_kernel_without_close_range(self):
        run = self.run_dlaunch(["--nproc_per_node=2", STUB, "fds"], env={"DLAUNCH_PRETEND_ENOSYS": "close_range"})
        self.assertEqual(run.out, "0 1 2\n0 1 2\n", str(run))

    def test_workers_are_watched_on_a_kernel_without_pidfd_open(self):
        run = self.run_dlaunch(["--nproc_per_node=3", STUB, "rank:1:exit:5", "wait"],
                               env={"DLAUNCH_PRETEND_ENOSYS": "pidfd_open"})
        self.assert_code(run, 5)
        self.assert_nothing_left(run)

    def test_a_worker_leads_a_session_of_its_own(self):
        run = self.run_dlaunch(["--no_python", "--use_env", "/bin/sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat"])
        pid, group, session = run.out.split()
        self.assertEqual((pid, pid), (group, session))

    def test_masks_and_dispositions_are_those_dlaunch_was_started_with(self):
        run = self.run_dlaunch(["--no_python", "--use_env", "/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
        self.assertEqual(run.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", str(run))

    def test_what_nohup_ignored_stays_ignored_in_dlaunch_and_in_the_workers(self):
        file = os.path.join(temporary_folder(), "up")
        run = self.start(["nohup", DLAUNCH, STUB, "touch:" + file, "await:%s.go" % file, "exit:4"])
        wait_until(lambda: os.path.exists(file), what="the worker is up")
        os.killpg(run.pid, signal.SIGHUP)
        for child in children(children(run.pid)[0]):
            os.kill(child, signal.SIGHUP)
        open(file + ".go", "w").close()
        run.wait()
        self.assert_code(run, 4)

    def test_stdin_of_a_file_is_rank_0s_alone(self):
        file = os.path.join(temporary_folder(), "in")
        open(file, "w").write("hello\n")
        with open(file) as stdin:
            run = self.run_dlaunch(["--nproc_per_node=3", STUB, "read"], stdin=stdin)
        self.assertEqual(run.out, "hello\n", str(run))

    def test_an_exec_that_fails_neither_leaves_a_zombie_nor_repeats_output(self):
        run = self.run_dlaunch(["--nproc_per_node=2", "--max_restarts=0", "--no_python", "--use_env", "/nowhere"])
        self.assertEqual(run.err.count("could not be started"), 1, str(run))
        self.assert_nothing_left(run)


class NothingLeft(TestCase):
    """Grandchildren in the worker's group, in a session of their own, and double-forked ones: all ignore
    SIGTERM, so that only the last step of the stop path ends them."""

    def setUp(self):
        self.folder = temporary_folder()

    def file(self, name):
        return os.path.join(self.folder, name)

    def family(self):
        return ["fork:" + self.file("a"), "setsid:" + self.file("b"), "daemon:" + self.file("c")]

    def family_is_up(self):
        wait_until(lambda: all(os.path.exists(self.file(n)) for n in "abc"), what="the family is up")
        for name in "abc":
            self.assertTrue(alive(read_pid(self.file(name))))

    def test_control_without_dlaunch_the_family_stays(self):
        run = self.start([STUB, *self.family(), "exit:0"])
        run.wait()
        self.assertEqual(len(run.leftovers()), 3)

    def test_after_success(self):
        run = self.run_dlaunch(["--shutdown_timeout=1", STUB, *self.family(), "exit:0"])
        self.assert_code(run, 0)
        self.assert_nothing_left(run)

    def test_after_a_failure(self):
        run = self.run_dlaunch(["--shutdown_timeout=1", "--nproc_per_node=2", STUB, "rank:0:fork:" + self.file("a"),
                                "rank:0:setsid:" + self.file("b"), "rank:0:daemon:" + self.file("c"), "rank:0:exit:3", "wait"])
        self.assert_code(run, 3)
        self.assert_nothing_left(run)

    def test_after_ctrl_c(self):
        run = self.start_dlaunch(["--shutdown_timeout=1", STUB, *self.family(), "wait"])
        self.family_is_up()
        os.killpg(run.pid, signal.SIGINT)
        run.wait()
        self.assertEqual(run.code, -signal.SIGINT)
        self.assert_nothing_left(run)

    def test_after_sigkill_of_the_agent(self):
        run = self.start_dlaunch([STUB, *self.family(), "wait"])
        self.family_is_up()
        os.kill(children(run.pid)[0], signal.SIGKILL)
        run.wait()
        self.assert_code(run, 125)
        self.assertIn("was killed by SIGKILL", run.err)
        self.assert_nothing_left(run)

    def test_after_sigkill_of_the_guard(self):
        run = self.start_dlaunch(["--shutdown_timeout=1", STUB, *self.family(), "wait"])
        self.family_is_up()
        run.send(signal.SIGKILL)
        run.wait()
        wait_until(lambda: not run.leftovers(), 15, "nothing is left")

    def test_after_sigkill_of_guard_and_agent_the_workers_themselves_are_gone(self):
        run = self.start_dlaunch(["--nproc_per_node=2", STUB, "touch:" + self.file("up"), "wait"])
        wait_until(lambda: os.path.exists(self.file("up")))
        agent = children(run.pid)[0]
        os.kill(run.pid, signal.SIGSTOP)  # it must not act between the two
        os.kill(agent, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        wait_until(lambda: not run.leftovers(), 15, "nothing is left")

    def test_children_that_were_there_before_dlaunch_are_not_ours_to_kill(self):
        run = self.start(["sh", "-c", 'sleep 30 & echo $! >"$0"; exec "$@"', self.file("pid"), DLAUNCH, "/bin/true"])
        run.wait()
        self.assert_code(run, 0)
        self.assertTrue(alive(read_pid(self.file("pid"))))

    def test_as_process_1_it_reaps_what_it_is_given_and_leaves_nothing(self):
        run = self.start(["unshare", "-pf", "--mount-proc", "--kill-child", DLAUNCH, "--shutdown_timeout=1", STUB,
                          *self.family(), "exit:6"])
        run.wait()
        self.assert_code(run, 6)
        self.assert_nothing_left(run)


class Stopping(TestCase):
    def setUp(self):
        self.file = os.path.join(temporary_folder(), "up")

    def up(self, *names):
        wait_until(lambda: all(os.path.exists(self.file + n) for n in names or ("",)), what="the workers are up")

    def test_each_stop_signal_reaches_the_workers_and_ends_dlaunch_by_itself(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            file = self.file + str(int(number))
            run = self.start_dlaunch([STUB, "note:%d,%s.got" % (number, file), "touch:" + file, "await:%s.got" % file])
            wait_until(lambda: os.path.exists(file))
            run.send(number)
            run.wait()
            self.assertEqual(run.code, -number, str(run))
            self.assertIn("job stopped by %s" % number.name, run.err)
            self.assertTrue(os.path.exists(file + ".got"))
            self.assert_nothing_left(run)

    def test_a_worker_that_ignores_the_signal_is_killed_after_one_grace(self):
        run = self.start_dlaunch(["--shutdown_timeout=1", STUB, "ignore:15", "touch:" + self.file, "wait"])
        self.up()
        run.send(signal.SIGTERM)
        run.wait(20)
        self.assertEqual(run.code, -signal.SIGTERM)
        self.assert_nothing_left(run)

    def test_a_second_signal_a_second_later_kills_at_once(self):
        run = self.start_dlaunch(["--shutdown_timeout=100", STUB, "ignore:2", "touch:" + self.file, "wait"])
        self.up()
        run.send(signal.SIGINT)
        wait_until(lambda: "waiting for rank 0" in run.err, 20, "it says whom it waits for")
        run.send(signal.SIGINT)
        run.wait(20)
        self.assertEqual(run.code, -signal.SIGINT)
        self.assert_nothing_left(run)

    def test_one_signal_sent_twice_at_once_is_one_signal(self):
        run = self.start_dlaunch(["--shutdown_timeout=100", STUB, "note:15,%s.got" % self.file, "touch:" + self.file,
                                  "await:%s.go" % self.file, "exit:0"])
        self.up()
        run.send(signal.SIGTERM)
        os.kill(children(run.pid)[0], signal.SIGTERM)  # as batch systems do: to every process
        run.send(signal.SIGTERM)
        wait_until(lambda: os.path.exists(self.file + ".got"))
        open(self.file + ".go", "w").close()
        run.wait(20)
        self.assertEqual(run.code, -signal.SIGTERM)

    def test_sigusr1_goes_to_each_workers_pid_and_nothing_ends(self):
        run = self.start_dlaunch(["--nproc_per_node=2", STUB, "rank:0:note:10,%s.0" % self.file, "rank:1:note:10,%s.1" % self.file,
                                  "rank:0:touch:%s.up0" % self.file, "rank:1:touch:%s.up1" % self.file,
                                  "await:%s.0" % self.file, "await:%s.1" % self.file, "exit:0"])
        self.up(".up0", ".up1")
        run.send(signal.SIGUSR1)
        run.wait(20)
        self.assert_code(run, 0)

    def test_a_stopped_worker_is_ended_too(self):
        run = self.start_dlaunch(["--shutdown_timeout=5", STUB, "touch:" + self.file, "wait"])
        self.up()
        worker = children(children(run.pid)[0])[0]
        os.kill(worker, signal.SIGSTOP)
        run.send(signal.SIGTERM)
        run.wait(20)
        self.assertEqual(run.code, -signal.SIGTERM)
        self.assert_nothing_left(run)

    def test_a_worker_that_somebody_stopped_is_told_once(self):
        run = self.start_dlaunch(["--shutdown_timeout=5", STUB, "touch:" + self.file, "wait"])
        self.up()
        worker = children(children(run.pid)[0])[0]
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP):
            os.kill(worker, number)
            wait_until(lambda: state_of(worker) == ("S" if number == signal.SIGCONT else "T"))
        wait_until(lambda: "was stopped by SIGSTOP" in run.err, what="it is told")
        run.send(signal.SIGTERM)
        run.wait(20)
        self.assertEqual(run.err.count("was stopped by SIGSTOP"), 1, str(run))

    def test_a_shell_loop_around_dlaunch_ends_with_it(self):
        run = self.start(["sh", "-c", 'for i in 1 2 3; do "$@"; echo "code $?"; done', "sh", DLAUNCH, STUB, "touch:" + self.file, "wait"])
        self.up()
        os.killpg(run.pid, signal.SIGINT)
        run.wait(20)
        self.assertNotIn("code", run.out)

    def test_sigint_ignored_on_entry_stays_ignored(self):
        run = self.start(["sh", "-c", 'trap "" INT; exec "$@"', "sh", DLAUNCH, STUB, "touch:" + self.file, "await:%s.go" % self.file, "exit:5"])
        self.up()
        os.killpg(run.pid, signal.SIGINT)
        open(self.file + ".go", "w").close()
        run.wait(20)
        self.assert_code(run, 5)


class Restarts(TestCase):
    def test_all_workers_run_again_and_the_round_is_told_to_each(self):
        told = temporary_folder() + "/told"
        run = self.run_dlaunch(["--nproc_per_node=2", "--max_restarts=2", STUB, "env:TORCHELASTIC_RESTART_COUNT",
                                "rank:0:touch:" + told, "rank:1:await:" + told, "rank:1:round:0:exit:9",
                                "rank:0:round:0:wait", "exit:0"])
        self.assert_code(run, 0)
        self.assertEqual(sorted(run.out.split()), ["TORCHELASTIC_RESTART_COUNT=0"] * 2 + ["TORCHELASTIC_RESTART_COUNT=1"] * 2, str(run))
        self.assertIn("exited with code 9; restart 1 of 2", run.err)

    def test_every_round_has_an_empty_store(self):
        script = os.path.join(ROOT, "tests", "data", "store_round.py")
        run = self.run_dlaunch(["--max_restarts=1", "--store=agent", script])
        self.assert_code(run, 0)
        self.assertEqual(run.out, "round 0: 1 key\nround 1: 0 keys\n", str(run))

    def test_the_code_is_the_last_rounds(self):
        run = self.run_dlaunch(["--max_restarts=1", STUB, "round:0:exit:9", "exit:8"])
        self.assert_code(run, 8)
        self.assert_nothing_left(run)

    def test_a_program_that_cannot_be_started_is_not_tried_again(self):
        run = self.run_dlaunch(["--max_restarts=3", "--no_python", "--use_env", "/nowhere"])
        self.assert_code(run, 127)
        self.assertNotIn("restart", run.err)


if __name__ == "__main__":
    unittest.main()
