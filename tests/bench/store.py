"""The store side by side with PyTorch's servers and with an epoll server that only answers (the floor).

    store.py BIN_DIR [--rounds 7] [--seconds 0.5] [--only load|connect|barrier]

All servers run at once and are asked in turn by the same client, so that a busy machine is busy for all of
them. CPU time is the server's, from /proc. Figures are medians over the rounds; ratios are medians of each
round's ratio. Exit 1: a target was missed. Without PyTorch (Debian's 1.13 at /usr/bin/python3; 2.15 at
$DLAUNCH_TEST_TORCH or in the cache folder) its rows are left out.

PyTorch 2.15 looks up the name of everyone who connects. So that this does not hide the rest, its servers get
a hosts file that answers (in a mount namespace; needs root), and connecting is also shown without.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
OLD = "/usr/bin/python3"
NEW = os.environ.get("DLAUNCH_TEST_TORCH") or os.path.join(CACHE, "dlaunch/torch-2.15.0/bin/python")
SIZES = (8, 64, 256)
JOIN = 10000

AT_LEAST_OF_FLOOR = 0.85
AT_LEAST_OF_LIBUV = 1.1
CONNECTED_WITHIN = 0.1


class Server:
    def __init__(self, name, command, dialect=2):
        self.name, self.dialect = name, dialect
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        if not line.isdigit():
            raise OSError("%s does not start" % name)
        self.port = line

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.hosts = tempfile.NamedTemporaryFile("w", suffix=".hosts")
        self.hosts.write("127.0.0.1 localhost\n::1 localhost\n::ffff:127.0.0.1 localhost\n")
        self.hosts.flush()
        os.chmod(self.hosts.name, 0o644)
        self.can_mount = shutil.which("unshare") and subprocess.run(
            self.with_hosts(["true"]), stderr=subprocess.DEVNULL).returncode == 0

    def with_hosts(self, command):
        return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self.hosts.name] + command

    def tool(self, name):
        return os.path.join(self.folder, name)

    def peer(self, python, kind, hosts=True):
        command = [python, os.path.join(HERE, "store_peers.py"), kind]
        return self.with_hosts(command) if hosts and self.can_mount else command

    def start(self, name):
        if name == "floor":
            return Server(name, [self.tool("store_floor")])
        if name == "dlaunch":
            return Server(name, [self.tool("store_host")])
        if name == "1.13":
            return Server(name, self.peer(OLD, "poll"), dialect=1)
        if name == "2.15 libuv, no hosts":
            return Server(name, self.peer(NEW, "libuv", hosts=False))
        return Server(name, self.peer(NEW, name.split()[1]))

    def ask(self, mode, server, connections, *more):
        out = subprocess.run([self.tool("store_bench"), mode, server.port, str(server.process.pid),
                              str(server.dialect), str(connections), *map(str, more)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if out.returncode:
            raise OSError(out.stderr.strip() or "store_bench ended with %d" % out.returncode)
        return json.loads(out.stdout)


def peers():
    found = []
    for python, names in ((OLD, ["1.13"]), (NEW, ["2.15 poll", "2.15 libuv"])):
        if os.path.exists(python) and subprocess.run([python, "-c", "import torch"],
                                                     stderr=subprocess.DEVNULL).returncode == 0:
            found += names
        else:
            print("no PyTorch at %s: left out" % python)
    return found


def median_ratio(mine, theirs):
    return statistics.median(a / b for a, b in zip(mine, theirs))


class Verdict:
    def __init__(self):
        self.missed = 0

    def judge(self, what, value, wanted, at_least=True):
        good = value >= wanted if at_least else value < wanted
        self.missed += not good
        print("  %-58s %8.3f  %s %g  %s" % (what, value, "at least" if at_least else "under", wanted,
                                          "ok" if good else "MISSED"))


def load(bench, names, arguments, verdict):
    servers = [bench.start(name) for name in names]
    rates = {(name, size): [] for name in names for size in SIZES}
    walls = {(name, size): [] for name in names for size in SIZES}
    for number in range(arguments.rounds):
        for size in SIZES:
            turn = number % len(servers)
            for server in servers[turn:] + servers[:turn]:
                got = bench.ask("load", server, size, arguments.seconds)
                rates[server.name, size].append(got["requests"] / got["cpu"])
                walls[server.name, size].append(got["requests"] / got["wall"])
    for server in servers:
        server.end()
    print("\nSET+WAIT+GET of 128 bytes, thousand requests per second of server CPU (of wall time), %d rounds"
          % arguments.rounds)
    print("  %-12s" % "clients" + "".join("%20d" % size for size in SIZES))
    for name in names:
        print("  %-12s" % name + "".join("%12.0f (%5.0f)" % (statistics.median(rates[name, s]) / 1e3,
                                                          statistics.median(walls[name, s]) / 1e3) for s in SIZES))
    for size in SIZES:
        mine = rates["dlaunch", size]
        verdict.judge("%d clients, of the floor" % size, median_ratio(mine, rates["floor", size]), AT_LEAST_OF_FLOOR)
        if "2.15 libuv" in names:
            verdict.judge("%d clients, of 2.15 libuv" % size, median_ratio(mine, rates["2.15 libuv", size]),
                          AT_LEAST_OF_LIBUV)


def connect(bench, names, arguments, verdict):
    walls = {}
    for _ in range(arguments.rounds):
        for name in names:
            if name in ("floor", "2.15 libuv, no hosts") and name in walls:
                continue
            server = bench.start(name)
            walls.setdefault(name, []).append(bench.ask("connect", server, 256)["wall"])
            server.end()
    print("\n256 connections made and first answered by a new server, seconds")
    for name in names:
        print("  %-28s %8.3f%s" % (name, statistics.median(walls[name]), "" if len(walls[name]) > 1 else "  (once)"))
    verdict.judge("dlaunch", statistics.median(walls["dlaunch"]), CONNECTED_WITHIN, at_least=False)


def barrier(bench, names, arguments, verdict):
    cpu, wall, failed = {}, {}, {}
    for _ in range(min(arguments.rounds, 3)):
        for name in names:
            server = bench.start(name)
            try:
                got = bench.ask("barrier", server, JOIN)
                cpu.setdefault(name, []).append(got["cpu"])
                wall.setdefault(name, []).append(got["wall"])
            except OSError as error:
                failed[name] = str(error)
            server.end()
    print("\n%d clients join and meet at a barrier: seconds of server CPU (of wall time)" % JOIN)
    for name in names:
        if name in failed:
            print("  %-12s failed: %s" % (name, failed[name]))
        else:
            print("  %-12s %8.3f (%.3f)" % (name, statistics.median(cpu[name]), statistics.median(wall[name])))
    verdict.judge("failures of dlaunch", int("dlaunch" in failed), 1, at_least=False)
    for name in names:
        if name != "dlaunch" and not {name, "dlaunch"} & failed.keys():
            verdict.judge("CPU of dlaunch over that of %s" % name,
                          statistics.median(cpu["dlaunch"]) / statistics.median(cpu[name]), 1, at_least=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", choices=("load", "connect", "barrier"))
    arguments = parser.parse_args()

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bench, verdict, theirs = Bench(arguments.bin_dir), Verdict(), peers()
    if theirs and not bench.can_mount:
        print("no mount namespace here: the peers look up names of clients while these connect")
    if arguments.only in (None, "load"):
        load(bench, ["floor", "dlaunch"] + theirs, arguments, verdict)
    if arguments.only in (None, "connect"):
        slow = ["2.15 libuv, no hosts"] if "2.15 libuv" in theirs and bench.can_mount else []
        connect(bench, ["dlaunch"] + theirs + slow, arguments, verdict)
    if arguments.only in (None, "barrier"):
        if hard < JOIN + 500:
            print("\nopen files are limited to %d: no barrier of %d clients" % (hard, JOIN))
        else:
            barrier(bench, ["dlaunch"] + theirs, arguments, verdict)
    if verdict.missed:
        print("\n%d targets missed" % verdict.missed)
    sys.exit(1 if verdict.missed else 0)


main()
