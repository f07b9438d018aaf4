"""kill -9 for a random process of a job at a random moment: every node ends in time and not as a success, and
nothing stays. DLAUNCH_TEST_KILLS: how many runs of each kind; DLAUNCH_TEST_SEED: the first one's seed."""
import os
import random
import signal
import time

import harness

RUNS = int(os.environ.get("DLAUNCH_TEST_KILLS", "20"))
SEED = int(os.environ.get("DLAUNCH_TEST_SEED", "1"))
HEARTBEAT, GRACE, RESERVE = 3, 2, 5
LIMIT = HEARTBEAT + GRACE + RESERVE
LAST_MOMENT = 0.6  # after the start; all is up in a third of that


def processes(runs):
    """Pids of all that live of these runs."""
    return [int(line.split()[0]) for run in runs for line in run.leftovers()]


def kind_of(pid):
    """"dlaunch", "worker" or "grandchild"; None if it has ended."""
    try:
        if os.readlink("/proc/%d/exe" % pid) != os.path.realpath(harness.STUB):
            return "dlaunch"  # or what is about to become one
        with open("/proc/%d/stat" % pid) as file:
            parent, _, session = map(int, file.read().rpartition(")")[2].split()[1:4])
        return "worker" if session == pid and kind_of(parent) == "dlaunch" else "grandchild"
    except OSError:
        return None


class OneKill(harness.TestCase):
    def start_job(self, dice, nodes):
        """The dlaunches of a job, and whether it may succeed before the kill, or outlive it by a restart."""
        folder = harness.temporary_folder()
        shape = dice.choice(["short", "plain", "family", "restart"])
        steps = []
        if shape in ("family", "restart"):  # each kind of process that a worker may leave behind
            # One file a kind: whoever comes first lets all go on.
            steps = ["fork:%s/fork" % folder, "setsid:%s/setsid" % folder, "daemon:%s/daemon" % folder]
        if shape == "restart":
            steps.insert(0, "round:0:rank:0:exit:7")
        if shape != "short":
            steps.append("wait")
        args = ["--nproc_per_node=2", "--max_restarts=%d" % (shape == "restart"), "--shutdown_timeout=%d" % GRACE,
                "--heartbeat_timeout=%d" % HEARTBEAT, "--join_timeout=%d" % (HEARTBEAT + GRACE)]
        if nodes == 1:
            return shape, [self.start_dlaunch([*args, harness.STUB, *steps])]
        args += ["--nnodes=%d" % nodes, "--master_addr=10.77.0.1", "--master_port=29500"]
        return shape, [self.cluster.start_dlaunch(node, [*args, "--node_rank=%d" % node, harness.STUB, *steps])
                       for node in range(nodes)]

    def kill_one(self, dice, runs):
        """Kills one process after a random while; its kind, or None if none was left."""
        moment = time.monotonic() + dice.uniform(0, LAST_MOMENT)
        harness.wait_until(lambda: time.monotonic() >= moment, what="the moment")
        wanted = dice.choice(["dlaunch", "dlaunch", "worker", "grandchild"])  # or they would share few bullets
        for _ in range(100):
            kinds = {pid: kind_of(pid) for pid in processes(runs)}
            pids = [pid for pid, kind in kinds.items() if kind == wanted] or [pid for pid in kinds if kinds[pid]]
            if not pids:
                return None
            pid = dice.choice(sorted(pids))
            try:
                os.kill(pid, signal.SIGKILL)
                return kinds[pid]
            except ProcessLookupError:
                pass
        return None

    def all_ends(self, seed, nodes):
        dice = random.Random(seed)
        shape, runs = self.start_job(dice, nodes)
        killed = self.kill_one(dice, runs)
        deadline = time.monotonic() + LIMIT
        if killed == "grandchild" or (killed == "worker" and shape == "restart"):
            for run in runs:
                run.send(signal.SIGINT)  # such a loss does not end the job

        def left():
            return [line for run in runs for line in run.leftovers()]

        try:
            harness.wait_until(lambda: not left() and all(run.code is not None for run in runs),
                               deadline - time.monotonic(), "the end")
            failed = None if shape == "short" or all(run.code for run in runs) else "a success"
        except AssertionError as error:
            failed = str(error)
        if failed:
            self.fail("%s: seed %d, %d nodes, a job of kind %s, a %s was killed; left: %s\n%s" %
                      (failed, seed, nodes, shape, killed, left(), "\n".join(map(str, runs))))

    def test_nothing_stays_on_one_node(self):
        for seed in range(SEED, SEED + RUNS):
            self.all_ends(seed, 1)

    def test_every_node_ends_of_two(self):
        self.cluster = harness.Cluster(self, 2)
        for seed in range(SEED, SEED + RUNS):
            self.all_ends(seed, 2)
