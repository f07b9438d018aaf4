"""Starting 8 x /bin/true and seeing them end, whole command: dlaunch beside a shell loop, MPICH's hydra
and torchrun; and the memory of guard and agent while 8 workers run. launch.py BIN_DIR [RUNS]

Alternating runs, medians. Exit 1 if a target is missed; a peer that is not installed is left out and said.
"""
import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BIN = os.path.abspath(sys.argv[1])
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 25
SLOW_RUNS = 3  # torchrun takes seconds
DLAUNCH, STUB = os.path.join(BIN, "dlaunch"), os.path.join(BIN, "worker_stub")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKERS = 8
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")

SHELL_RATIO, TORCHRUN_RATIO, MEMORY_MIB = 1.6, 100, 8


def timed(command, out, err):
    """Seconds from before the spawn to after the reaping."""
    started = time.perf_counter()
    pid = os.posix_spawn(command[0], command, ENVIRONMENT, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2)])
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit("%s ended with status %d" % (" ".join(command), status))
    return seconds


class Sink:
    """Where a command's output goes: the null device, or a terminal that somebody reads."""

    def __init__(self, terminal):
        if terminal:
            master, self.fd = pty.openpty()
            threading.Thread(target=self.drain, args=(master,), daemon=True).start()
        else:
            self.fd = os.open(os.devnull, os.O_WRONLY)

    @staticmethod
    def drain(master):
        while os.read(master, 65536):
            pass


def torch_of_today():
    with open(os.path.join(ROOT, "scripts", "torch-version")) as file:
        version = file.read().strip()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "dlaunch", "torch-" + version, "bin", "torchrun")
    return path if os.path.exists(path) else None


def commands(logs):
    """{name: (command or None, terminal, runs)}"""
    shell = ["/bin/sh", "-c", "for i in %s; do /bin/true & done; wait" % " ".join(map(str, range(WORKERS)))]
    ours = [DLAUNCH, "--nproc_per_node=%d" % WORKERS, "/bin/true"]
    hydra = shutil.which("mpiexec.hydra")
    old = "/usr/bin/torchrun" if os.path.exists("/usr/bin/torchrun") else None
    new = torch_of_today()
    # On Python 3.11 this release fails unless a stream of all workers goes to files.
    old_flags = ["--nproc_per_node", str(WORKERS), "--no_python", "-r", "1", "-t", "1", "--log_dir", logs]
    return {
        "shell loop": (shell, False, RUNS),
        "dlaunch": (ours, False, RUNS),
        "shell loop, terminal": (shell, True, RUNS),
        "dlaunch, terminal": (ours, True, RUNS),
        "hydra": (hydra and [hydra, "-n", str(WORKERS), "/bin/true"], False, RUNS),
        "torchrun 1.13": (old and [old, *old_flags, "/bin/true"], False, SLOW_RUNS),
        "torchrun of today": (new and [new, "--nproc-per-node", str(WORKERS), "--no-python", "/bin/true"], False,
                              SLOW_RUNS),
    }


def peak(pid):
    """VmHWM in MiB."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def memory(folder):
    """Peak of guard and agent together, with 8 workers, after each has written."""
    go, out = os.path.join(folder, "go"), os.path.join(folder, "out")
    lines = 200
    steps = ["out:" + "x" * 79] * lines + ["await:" + go]
    with open(out, "wb") as file:
        guard = subprocess.Popen([DLAUNCH, "--nproc_per_node=%d" % WORKERS, STUB, *steps], stdout=file,
                                 env=ENVIRONMENT)
    deadline = time.monotonic() + 20
    while os.path.getsize(out) < WORKERS * lines * 80 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    processes = [guard.pid, *children(guard.pid)]
    total = sum(map(peak, processes))
    open(go, "w").close()
    if guard.wait(20) != 0 or len(processes) != 2:
        sys.exit("memory: the run itself failed (%d processes of dlaunch)" % len(processes))
    return total


def main():
    folder = tempfile.mkdtemp(prefix="dlaunch-bench-")
    try:
        rows = commands(os.path.join(folder, "logs"))
        sinks = {terminal: Sink(terminal).fd for terminal in (False, True)}
        times = {name: [] for name, (command, _, _) in rows.items() if command}
        for run in range(RUNS + 1):
            for name, (command, terminal, runs) in rows.items():
                if command and run <= runs:
                    # torchrun tells much on stderr; ours says nothing.
                    seconds = timed(command, sinks[terminal], sinks[terminal])
                    if run > 0:  # the first warms the page cache
                        times[name].append(seconds)
        total = memory(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    medians = {name: statistics.median(values) for name, values in times.items()}
    print("%d x /bin/true, whole command, median of alternating runs (load at the end: %.1f)" %
          (WORKERS, os.getloadavg()[0]))
    print("%-22s %9s %9s %9s %5s %14s" % ("", "median ms", "min", "max", "runs", "to shell loop"))
    for name, (command, terminal, _) in rows.items():
        if not command:
            print("%-22s not installed" % name)
            continue
        values = [1000 * value for value in times[name]]
        base = medians["shell loop, terminal" if terminal else "shell loop"]
        print("%-22s %9.2f %9.2f %9.2f %5d %13.2fx" % (name, 1000 * medians[name], min(values), max(values), len(values),
                                                       medians[name] / base))
    print("guard and agent, %d workers, after output: %.1f MiB peak" % (WORKERS, total))

    missed = []
    ours = medians["dlaunch"]
    if ours > SHELL_RATIO * medians["shell loop"]:
        missed.append("at most %.1fx a shell loop" % SHELL_RATIO)
    if "hydra" in medians and ours > medians["hydra"]:
        missed.append("faster than hydra")
    for name in ("torchrun 1.13", "torchrun of today"):
        if name in medians and ours * TORCHRUN_RATIO > medians[name]:
            missed.append("%d times faster than %s" % (TORCHRUN_RATIO, name))
    if total >= MEMORY_MIB:
        missed.append("under %d MiB" % MEMORY_MIB)
    print("missed: " + "; ".join(missed) if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
