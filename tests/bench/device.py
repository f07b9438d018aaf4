"""The steps of scripts/device_check.sh: each has a time limit of its own and ends as ok, failed or skipped."""
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

WHOLE = 470  # seconds for everything: the script promises eight minutes
STEPS = []   # (name, limit, function)
BIN = ""
ENVIRONMENT = dict(os.environ)
COMMON = ["--data", "synthetic", "--test-batch-size", "250"]
MODELS = {"mlp": ["--model", "mlp"], "cnn": ["--model", "cnn"]}


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class Clock:
    """What is left for the step under way."""

    end = 0.0

    @classmethod
    def left(cls):
        left = cls.end - time.monotonic()
        if left <= 0:
            raise Failed("its time is over")
        return left


def step(limit):
    def add(function):
        STEPS.append((function.__name__, limit, function))
        return function
    return add


def run(command, extra=None, check=True):
    """Standard output and error of a command, which gets all the time that the step still has."""
    environment = dict(ENVIRONMENT, **(extra or {}))
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=Clock.left(), text=True, errors="replace")
    except subprocess.TimeoutExpired:
        raise Failed("no end: " + " ".join(command)) from None
    if check and done.returncode != 0:
        raise Failed("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stdout.strip()[-600:]))
    return done.stdout


def program(name):
    return os.path.join(BIN, name)


def train(*arguments, ranks=0, extra=None):
    """One run: its losses by step, its digest, images per second at the end, and its text."""
    command = [program("train"), *COMMON, "--digest", *arguments]
    if ranks:
        command = [program("dlaunch"), "--nproc_per_node=%d" % ranks, *command]
    text = run(command, extra)
    lines = [json.loads(found) for found in re.findall(r'\{"step".*\}', text)]
    digest = re.search(r"digest: (\w+)", text)
    return {
        "loss": {line["step"]: line["loss"] for line in lines},
        "images_per_s": lines[-1]["images_per_s"] if lines else None,
        "line": lines[-1] if lines else {},
        "digest": digest[1] if digest else None,
        "text": text,
    }


def need(name, why):
    if not os.path.exists(program(name)):
        raise Skipped(why)


def need_host_module():
    need("train_host.so", "no train_host.so (Gloo, OpenBLAS)")


def same(what, first, *others):
    if first is None or any(other != first for other in others):
        raise Failed("%s differ: %s" % (what, ", ".join(map(str, (first, *others)))))


@step(20)
def versions():
    """GPU, driver, CUDA and NCCL"""
    found = {"train": re.search(r"on (cuda:0 \(.*?\))", train("--steps", "1")["text"])[1]}
    if shutil.which("nvidia-smi"):
        found["driver"] = run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
        found["driver"] = found["driver"].strip().splitlines()
    libraries = dict(re.findall(r"(lib\w+)\.so\S* => (\S+)", run(["ldd", program("train_cuda.so")])))
    for name, function in (("libcudart", "cudaRuntimeGetVersion"), ("libnccl", "ncclGetVersion")):
        number = ctypes.c_int()
        getattr(ctypes.CDLL(libraries[name]), function)(ctypes.byref(number))
        found[name] = number.value
    return found


@step(60)
def unit():
    """the device's operations beside the CPU's, staging, a group of one"""
    need("cuda_tests", "no cuda_tests")
    text = run([program("cuda_tests"), "--gtest_brief=1", "--gtest_filter=CudaModule.*:CudaDevice.*:*CudaOperations*:"
                "Nccl.RefusesTheTree*:NcclReducer.Says*"])
    return {"passed": int(re.search(r"PASSED  \] (\d+)", text)[1])}


@step(60)
def cpu():
    """50 steps on the GPU and on the CPU: the same losses within 1e-4"""
    found = {}
    for name, model in MODELS.items():
        arguments = [*model, "--steps", "50", "--batch-size", "32", "--lr", "0.01", "--log-every", "1"]
        gpu, host = train(*arguments)["loss"], train(*arguments, "--no-cuda")["loss"]
        if len(gpu) != 50 or gpu.keys() != host.keys():
            raise Failed("%s: %d and %d losses" % (name, len(gpu), len(host)))
        found[name] = max(abs(gpu[i] - host[i]) / max(1, abs(host[i])) for i in gpu)
        if not found[name] <= 1e-4:
            raise Failed("%s: losses differ by %g" % (name, found[name]))
    return found


@step(40)
def repeat():
    """two runs: the same bits"""
    found = {}
    for name, model in MODELS.items():
        first, second = (train(*model, "--steps", "100", "--batch-size", "64") for _ in range(2))
        same(name + "'s digests", first["digest"], second["digest"])
        found[name] = first["digest"]
    return found


@step(40)
def nccl_alone():
    """a group of one over NCCL: the same bits as none"""
    found = {}
    for name, model in MODELS.items():
        arguments = [*model, "--steps", "100", "--batch-size", "64"]
        none, nccl = train(*arguments), train(*arguments, "--backend", "nccl")
        if ", nccl" not in nccl["text"]:
            raise Failed("not over NCCL: " + nccl["text"][:200])
        same(name + "'s digests", none["digest"], nccl["digest"])
        found[name] = {"none": none["images_per_s"], "nccl": nccl["images_per_s"]}
    return found


@step(70)
def sharing():
    """1, 2, 4 and 8 ranks on one GPU over Gloo, as a tree: the same bits"""
    need_host_module()
    found, digests = {}, []
    for ranks in (1, 2, 4, 8):
        done = train("--steps", "50", "--global-batch", "64", "--reduce", "tree", ranks=ranks,
                     extra={"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]})
        digests.append(done["digest"])
        found["%d images/s" % ranks] = done["images_per_s"]
    same("digests", *digests)
    return found


@step(50)
def mps():
    """4 ranks on one GPU with CUDA's multi-process service and without, alternating"""
    need_host_module()
    if not shutil.which("nvidia-cuda-mps-control"):
        raise Skipped("no nvidia-cuda-mps-control")
    with tempfile.TemporaryDirectory() as folder:
        ours = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        run(["nvidia-cuda-mps-control", "-d"], ours)
        try:
            found = {"without": [], "with": []}
            for _ in range(3):
                for name, rates in found.items():
                    done = train("--steps", "200", "--batch-size", "64", ranks=4, extra=ours if name == "with" else None)
                    rates.append(done["images_per_s"])
            return found
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env=dict(ENVIRONMENT, **ours), text=True,
                           stdout=subprocess.DEVNULL, timeout=20, check=False)


@step(60)
def nccl_shared():
    """a trial, allowed to fail: two ranks on one GPU that NCCL takes for two hosts"""
    need("cuda_tests", "no cuda_tests")
    found = {}
    for role in ("collectives", "reducer"):
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(2):
                extra = {"CUDA_TESTS_ROLE": role, "CUDA_TESTS_RANK": str(rank), "CUDA_TESTS_SIZE": "2",
                         "CUDA_TESTS_FOLDER": folder, "NCCL_HOSTID": "host-%d" % rank, "NCCL_MAX_CTAS": "1",
                         "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo")}
                ranks.append(subprocess.Popen([program("cuda_tests")], env=dict(ENVIRONMENT, **extra), text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            said = []
            for process in ranks:
                try:
                    said.append(process.communicate(timeout=min(25, Clock.left()))[0].strip()[-300:])
                except (subprocess.TimeoutExpired, Failed):
                    process.kill()
                    said.append("(no end) " + process.communicate()[0].strip()[-300:])
            found[role] = said
    found["worked"] = all(text == "ok" for said in (found["collectives"], found["reducer"]) for text in said)
    return found


@step(50)
def loader():
    """images/s and the share of waiting for data, by loader threads and prefetch"""
    found = {}
    for workers, prefetch in ((0, 1), (1, 2), (2, 4), (4, 8)):
        done = train("--steps", "400", "--batch-size", "256", "--workers", str(workers), "--prefetch", str(prefetch))
        found["%d threads, %d ahead" % (workers, prefetch)] = {
            "images_per_s": done["images_per_s"], "data_wait": done["line"].get("data_wait")}
    return found


@step(30)
def speed():
    """images/s of each model and batch size"""
    found = {}
    for name, model in MODELS.items():
        for batch in (64, 512):
            done = train(*model, "--steps", "300", "--batch-size", str(batch))
            found["%s, batch %d" % (name, batch)] = done["images_per_s"]
    return found


@step(50)
def allreduce():
    """train allreduce on both backends"""
    sizes = ["allreduce", "--sizes", "1K:16M", "--iterations", "5"]
    found = {"nccl, 1 rank": run([program("train"), *sizes, "--backend", "nccl"]).splitlines()[-3:]}
    if os.path.exists(program("train_host.so")):
        found["gloo, 2 ranks"] = run([program("dlaunch"), "--nproc_per_node=2", program("train"), *sizes, "--backend",
                                      "gloo"]).splitlines()[-3:]
    return found


@step(60)
def sanitizer():
    """compute-sanitizer: no bad access, no race, three steps each"""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        raise Skipped("no compute-sanitizer")
    for check in ("memcheck", "racecheck"):
        for model in MODELS.values():
            run([tool, "--tool", check, "--error-exitcode", "9", program("train"), *COMMON, *model, "--steps", "3",
                 "--batch-size", "16"])
    return {}


PYTORCH = r"""
import sys, time, torch
if not torch.cuda.is_available(): print("no"); sys.exit()
from torch import nn
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
cnn = nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
for name, model in (("mlp", mlp), ("cnn", cnn)):
    for batch in (64, 512):
        model = model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
        images = [torch.rand(batch, 1, 28, 28).pin_memory() for _ in range(8)]
        labels = [torch.randint(10, (batch,)).pin_memory() for _ in range(8)]
        for i in range(320):
            if i == 20: torch.cuda.synchronize(); start = time.perf_counter()
            x, y = images[i % 8].cuda(non_blocking=True), labels[i % 8].cuda(non_blocking=True)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        torch.cuda.synchronize()
        print("%s, batch %d: %.1f" % (name, batch, 300 * batch / (time.perf_counter() - start)))
"""


@step(60)
def pytorch():
    """images/s of PyTorch, same models, without loading"""
    text = run([sys.executable, "-c", PYTORCH], check=False)
    rates = dict(re.findall(r"(\w+, batch \d+): ([\d.]+)", text))
    if not rates:
        raise Skipped("no PyTorch with CUDA for " + sys.executable)
    return {name: float(rate) for name, rate in rates.items()}


def find_libraries():
    """NCCL and CUDA of a Python environment, where the module does not find them by itself."""
    missing = subprocess.run(["ldd", program("train_cuda.so")], capture_output=True, text=True).stdout
    if "not found" not in missing:
        return
    found = [folder for path in sys.path for folder in glob.glob(os.path.join(path, "nvidia", "*", "lib"))]
    ENVIRONMENT["LD_LIBRARY_PATH"] = ":".join(found + [ENVIRONMENT.get("LD_LIBRARY_PATH", "")]).strip(":")


def why_no_gpu():
    if not os.path.exists(program("train_cuda.so")):
        return "no train_cuda.so was built (nvcc, NCCL)"
    Clock.end = time.monotonic() + 60
    text = run([program("train"), "--data", "synthetic", "--steps", "1", "--backend", "nccl"], check=False)
    reason = re.search(r"no GPU to use: (.*)", text)
    return reason[1] if reason else ""


def main():
    global BIN
    if sys.argv[1:] == ["--list"]:
        for name, _, function in STEPS:
            print("%-12s %s" % (name, function.__doc__))
        return 0
    BIN, path, wanted = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    unknown = set(wanted) - {name for name, _, _ in STEPS}
    if unknown:
        print("device check: no step '%s'; --list shows them" % unknown.pop(), file=sys.stderr)
        return 2
    end = time.monotonic() + WHOLE
    results = {}
    find_libraries()
    reason = why_no_gpu()
    if reason:
        print("skipped: " + reason)
        results["skipped"] = reason
    for name, limit, function in STEPS if not reason else ():
        if wanted and name not in wanted:
            continue
        start = time.monotonic()
        Clock.end = min(start + limit, end)
        try:
            if start >= end:
                raise Skipped("no time left")
            result = {"status": "ok", "found": function()}
        except Skipped as skipped:
            result = {"status": "skipped", "reason": str(skipped)}
        except Exception as failure:  # pylint: disable=broad-except  one step's trouble is not the next one's
            result = {"status": "failed", "reason": "%s%s" % (
                "" if isinstance(failure, Failed) else type(failure).__name__ + ": ", failure)}
        result["seconds"] = round(time.monotonic() - start, 1)
        results[name] = result
        print("%-8s %-12s %5.1f s  %s" % (result["status"], name, result["seconds"],
                                          result.get("reason") or function.__doc__), flush=True)
        for key, value in result.get("found", {}).items():
            print("         %28s  %s" % (key, value), flush=True)
    with open(path, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    print("results in " + path)
    return 1 if any(isinstance(r, dict) and r["status"] == "failed" for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
