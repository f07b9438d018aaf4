"""Images/s of `train` beside PyTorch's DistributedDataParallel over Gloo, on CPUs, one thread a rank.

    train.py BIN_DIR [--rounds 5] [--only mlp|cnn] [--ranks 1|2] [--data FOLDER]

Fashion-MNIST, global batch 64, SGD with learning rate 0.01 and momentum 0.5. All ranks are started by dlaunch,
in turn, so that a busy machine is busy for all: figures are medians over the rounds, ratios are medians of each
round's ratio. `train` makes its batches in the training thread too (--workers 0) and compares its parameters
across ranks and tells its loss as it always does. Its speed is that of its JSON lines after the first; PyTorch's
is its own clock's after a warm-up as long. Memory is the largest rank's peak of resident pages, as the kernel
tells it when dlaunch is reaped; pages of shared libraries count.

PyTorch is Debian's 1.13 at /usr/bin/python3 and the release of scripts/torch-version, at $DLAUNCH_TEST_TORCH or
in the cache folder. Exit 1: a target, all against the latter, was missed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OLD = "/usr/bin/python3"
BATCH = 64
STEPS = {"mlp": (100, 600), "cnn": (25, 150)}  # warm-up, measured
TARGETS = {("mlp", 1): 1, ("mlp", 2): 2, ("cnn", 1): 1.2, ("cnn", 2): 1.2}  # times PyTorch of today
LIMIT = 300  # seconds for one run


def version_of_today():
    with open(os.path.join(ROOT, "scripts", "torch-version")) as file:
        return file.read().strip()


def peers():
    """[(name, interpreter or None, why not)], PyTorch of today last."""
    version = version_of_today()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    new = os.environ.get("DLAUNCH_TEST_TORCH") or os.path.join(cache, "dlaunch", "torch-" + version, "bin", "python")
    found = []
    for name, python, cure in (("PyTorch 1.13", OLD, "apt-get install python3-torch"),
                               ("PyTorch " + version, new, "scripts/setup.sh --torch")):
        good = os.path.exists(python) and subprocess.run([python, "-c", "import torch"],
                                                         stderr=subprocess.DEVNULL).returncode == 0
        found.append((name, python if good else None, "" if good else "no PyTorch at %s (%s)" % (python, cure)))
    return found


def run(command, environment):
    """(lines of stdout, peak MiB of the largest process below)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment)
        ender = threading.Timer(LIMIT, process.terminate)  # dlaunch ends its ranks
        ender.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            ender.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            sys.exit("%s ended with %d\n%s" % (" ".join(command), process.returncode, err.read()[-4000:]))
        return out.read().splitlines(), usage.ru_maxrss / 1024


class Bench:
    def __init__(self, folder, data):
        self.dlaunch, self.train = os.path.join(folder, "dlaunch"), os.path.join(folder, "train")
        self.data = data
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        self.environment = dict(kept, PATH="/usr/local/bin:/usr/bin:/bin", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1",
                                OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

    def launch(self, ranks, command, environment=()):
        return run([self.dlaunch, "--nproc_per_node=%d" % ranks, *command], dict(self.environment, **dict(environment)))

    def ours(self, model, ranks):
        warm_up, steps = STEPS[model]
        lines, peak = self.launch(ranks, [
            self.train, "--no-cuda", "--data", self.data, "--model", model, "--global-batch", str(BATCH), "--lr", "0.01",
            "--momentum", "0.5", "--workers", "0", "--steps", str(warm_up + steps), "--log-every", str(warm_up)])
        rates = [line["images_per_s"] for line in map(json.loads, filter(lambda line: line.startswith("{"), lines))
                 if "images_per_s" in line]
        # Each line stands for as many steps, so the harmonic mean is all images over all time.
        return statistics.harmonic_mean(rates[1:]), peak

    def theirs(self, python, model, ranks):
        script = os.path.join(HERE, "train_peer.py")
        lines, peak = self.launch(ranks, [script, model, str(BATCH), *map(str, STEPS[model]), self.data],
                                  {"PYTHON_EXEC": python})
        return json.loads(lines[-1])["images_per_s"], peak


def case(bench, found, model, ranks, rounds):
    """Prints its rows; False if its target was missed."""
    sides = [("train", lambda: bench.ours(model, ranks))]
    sides += [(name, lambda python=python: bench.theirs(python, model, ranks)) for name, python, _ in found if python]
    rates, peaks = {name: [] for name, _ in sides}, {name: 0 for name, _ in sides}
    for number in range(rounds):
        # Who comes first changes too.
        for name, measure in sides[number % len(sides):] + sides[:number % len(sides)]:
            rate, peak = measure()
            rates[name].append(rate)
            peaks[name] = max(peaks[name], peak)

    good = True
    today = found[-1][0]
    print("%s, %d rank%s" % (model, ranks, "s" if ranks > 1 else ""))
    for name, python, why in [("train", True, "")] + found:
        if not python:
            print("  %-16s left out: %s" % (name, why))
            continue
        seen = rates[name]
        row = "  %-16s %9.0f %9.0f %9.0f %8.0f" % (name, statistics.median(seen), min(seen), max(seen), peaks[name])
        if name != "train":
            ratio = statistics.median(ours / theirs for ours, theirs in zip(rates["train"], seen))
            row += " %9.2fx" % ratio
            if name == today:
                target = TARGETS[model, ranks]
                good = ratio >= target
                row += "  at least %gx: %s" % (target, "ok" if good else "MISSED")
        print(row, flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("mlp", "cnn"))
    parser.add_argument("--ranks", type=int, choices=(1, 2))
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.data):
        sys.exit("bench: no %s: apt-get install dataset-fashion-mnist, or --data FOLDER" % arguments.data)
    bench = Bench(os.path.abspath(arguments.bin_dir), arguments.data)
    if not os.path.exists(bench.train):
        sys.exit("bench: no %s: build it with DLAUNCH_TRAINER" % bench.train)

    found = peers()
    print("images/s, one thread a rank, global batch %d, %d alternating rounds (load now: %.1f)" %
          (BATCH, arguments.rounds, os.getloadavg()[0]))
    print("  %-16s %9s %9s %9s %8s %10s" % ("", "median", "min", "max", "MiB", "train is"), flush=True)
    missed = [(model, ranks) for model, ranks in TARGETS
              if arguments.only in (None, model) and arguments.ranks in (None, ranks)
              and not case(bench, found, model, ranks, arguments.rounds)]
    if not found[-1][1]:
        print("no target could be judged")
    else:
        print("%d targets missed" % len(missed) if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
