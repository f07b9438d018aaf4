"""What store_test.py runs under each PyTorch: store_calls.py calls|train PORT. The store of dlaunch is at PORT
of loopback. Prints JSON as its last line. Importing torch takes seconds, so one run does much."""
import json
import os
import sys
import threading
from datetime import timedelta

mode, port = sys.argv[1], int(sys.argv[2])
try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print("no torch here: %s" % missing)
    sys.exit(77)

NEW = not torch.__version__.startswith("1.")
SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=10)


def client(to):
    return dist.TCPStore("127.0.0.1", to, None, False, LONG)


def ask(name, answers, call):
    try:
        value = call()
    except Exception as error:  # the kind of error is the answer
        value = type(error).__name__
    answers.append((name, value if isinstance(value, (int, str, type(None))) else repr(value)))


def calls(to, queues=True):
    """The same questions to any server; a list of (name, answer). PyTorch's poll server has no queues."""
    out = []
    a, b = client(to), client(to)

    def q(name, call):
        ask(name, out, call)

    q("keys at first", lambda: a.num_keys())
    q("set", lambda: a.set("k", "value"))
    q("get", lambda: a.get("k"))
    q("get of another client", lambda: b.get("k"))
    q("overwrite", lambda: (a.set("k", "longer value"), b.get("k"))[1])
    q("any bytes", lambda: (a.set("bytes", b"\0\1\xff"), b.get("bytes"))[1] if NEW else None)
    q("empty value", lambda: (a.set("empty", ""), b.get("empty"))[1])
    q("empty key", lambda: (a.set("", "nothing"), b.get(""))[1])
    q("add", lambda: a.add("n", 5))
    q("add of another client", lambda: b.add("n", 2))
    q("add a negative number", lambda: a.add("n", -10))
    q("add nothing", lambda: a.add("n", 0))
    q("get a sum", lambda: b.get("n"))
    q("add creates", lambda: a.add("zero", 0))
    q("add to a set number", lambda: (a.set("m", " 12abc"), b.add("m", 1))[1])
    q("add a large number", lambda: (a.add("big", 2**62), b.get("big"))[1])
    q("compare_set creates", lambda: a.compare_set("c", "", "1"))
    q("compare_set that fits", lambda: b.compare_set("c", "1", "2"))
    q("compare_set that does not fit", lambda: a.compare_set("c", "1", "3"))
    q("compare_set of nothing, expecting something", lambda: a.compare_set("none", "x", "y"))
    q("compare_set that empties", lambda: a.compare_set("c", "2", ""))
    q("keys now", lambda: b.num_keys())
    q("delete", lambda: a.delete_key("m"))
    q("delete again", lambda: b.delete_key("m"))
    q("wait for what is there", lambda: a.wait(["k", "n"], LONG))
    q("wait for what is not", lambda: b.wait(["k", "never"], SHORT))
    q("a call after that", lambda: b.add("n", 1))
    q("a wait that another client ends", lambda: waited(to, "later", lambda: a.set("later", "v")))
    q("a wait that an add ends", lambda: waited(to, "sum", lambda: a.add("sum", 3)))
    q("a wait for a key that compare_set makes", lambda: waited(to, "cas", lambda: a.compare_set("cas", "", "v")))
    q("a large value", lambda: (a.set("large", "x" * (7 << 20)), len(b.get("large")))[1])
    q("a value of 9 MiB", lambda: (a.set("larger", "x" * (9 << 20)), len(b.get("larger")))[1] if not NEW else None)
    q("many keys", lambda: ([a.set("many%d" % i, str(i)) for i in range(500)], b.get("many499"))[1])
    q("wait for many keys", lambda: b.wait(["many%d" % i for i in range(500)], LONG))
    q("a prefix", lambda: (dist.PrefixStore("p", a).set("k", "prefixed"), b.get("p/k"))[1])
    q("keys at the end", lambda: b.num_keys())
    if NEW:
        q("check", lambda: a.check(["k", "n"]))
        q("check of a missing key", lambda: a.check(["k", "never"]))
        q("append", lambda: (a.append("app", "ab"), a.append("app", "cd"), b.get("app"))[2])
        q("multi_set", lambda: a.multi_set(["m1", "m2"], ["one", ""]))
        q("multi_get", lambda: b.multi_get(["m2", "m1", "k"]))
        q("a wait that multi_set ends", lambda: waited(to, "m4", lambda: a.multi_set(["m3", "m4"], ["", ""])))
        q("a wait that append ends", lambda: waited(to, "app2", lambda: a.append("app2", "x")))
        q("ping by a clone", lambda: a.clone().get("k") if hasattr(a, "clone") else b"longer value")
        if hasattr(a, "list_keys"):
            q("list_keys", lambda: sorted(k for k in a.list_keys() if "many" not in k))
        if queues and hasattr(a, "queue_push"):
            q("queue_len of nothing", lambda: a.queue_len("q"))
            q("queue_push", lambda: (a.queue_push("q", "1"), a.queue_push("q", "2"), b.queue_len("q"))[2])
            q("queue_pop", lambda: b.queue_pop("q"))
            q("queue_pop again", lambda: a.queue_pop("q"))
            q("queue_pop of nothing", lambda: a.queue_pop("q", block=False))
            q("a queue_pop that a push ends", lambda: popped(to, lambda: a.queue_push("q", "3")))
            q("queue_len at the end", lambda: b.queue_len("q"))
        if hasattr(a, "barrier"):
            q("barrier", lambda: met(to, a))
    else:
        stale(to, q)
    return out


def popped(to, cause):
    c, got = client(to), []
    thread = threading.Thread(target=lambda: got.append(c.queue_pop("q")))
    thread.start()
    cause()
    thread.join(20)
    return got[0]


def met(to, a):
    c = client(to)
    thread = threading.Thread(target=lambda: c.barrier("meet", 2, LONG))
    thread.start()
    a.barrier("meet", 2, LONG)
    thread.join(20)
    return not thread.is_alive()


def waited(to, key, cause):
    """What a WAIT says that is pending (if it came first) when the key comes."""
    c, said = client(to), []

    def wait():
        try:
            c.wait([key], timedelta(seconds=2))
            said.append("came")
        except Exception as error:
            said.append(type(error).__name__)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.3)  # there is no way to see from outside that it waits
    cause()
    thread.join(20)
    return said[0]


def stale(to, q):
    """1.x sends nothing when a wait times out. A store that still answers it after this client has asked for
    something else shifts its stream for good."""
    c, other = client(to), client(to)
    c.add("calls", 1)
    try:
        c.wait(["late"], SHORT)
    except RuntimeError:
        pass
    c.add("calls", 1)
    other.set("late", "late")
    other.get("late")

    def sane(call, wanted):
        try:
            value = call()
            return value if value == wanted else "garbage"
        except Exception:
            return "garbage"

    q("an add when the key came after a wait that timed out", lambda: sane(lambda: c.add("calls", 1), 3))
    q("a get after that", lambda: sane(lambda: c.get("late"), b"late"))


def compare():
    answers = {"dlaunch": calls(port)}
    if NEW:
        for name, libuv in (("libuv", True), ("poll", False)):
            own = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False, use_libuv=libuv)
            answers[name] = calls(own.port, queues=libuv)
    else:
        own = dist.TCPStore("127.0.0.1", 0, None, True, LONG, False)
        answers["1.13"] = calls(own.port)
    print(json.dumps(answers), flush=True)
    os._exit(0)


def worker(rank, pipe):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE="2", GROUP_RANK="0", ROLE_RANK=str(rank), ROLE_WORLD_SIZE="2", ROLE_NAME="default",
        TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_MAX_RESTARTS="0",
        TORCHELASTIC_RUN_ID="none")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(10 + rank)  # every rank has data of its own
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    dist.barrier()
    group = dist.new_group([0, 1])
    dist.barrier(group)
    weights = [round(w, 6) for p in model.parameters() for w in p.detach().flatten().tolist()]
    dist.destroy_process_group()
    pipe.write(json.dumps({"rank": rank, "weights": weights, "loss": losses}) + "\n")
    pipe.flush()


def train():
    pids, pipes = [], []
    for rank in range(2):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                worker(rank, os.fdopen(write, "w"))
                code = 0
            except BaseException as error:
                print("rank %d: %r" % (rank, error), file=sys.stderr, flush=True)
            os._exit(code)
        os.close(write)
        pids.append(pid)
        pipes.append(os.fdopen(read))
    lines = [json.loads(pipe.readline() or "null") for pipe in pipes]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes) or None in lines:
        sys.exit("the ranks ended with %s" % codes)
    print(json.dumps({"ranks": [r["rank"] for r in lines], "weights": [r["weights"] for r in lines],
                      "loss": lines[0]["loss"]}))


compare() if mode == "calls" else train()
