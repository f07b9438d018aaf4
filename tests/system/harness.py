"""What the system tests share: running dlaunch with a hard limit, seeing that nothing stays behind, and
a cluster of network namespaces. Standard library only.

Every run carries a tag of its own in its environment, which all its descendants inherit; so "no process
is left" is a fact about /proc and not a guess by name.
"""
import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DLAUNCH_BIN", os.path.join(ROOT, "build", "bin"))
DLAUNCH = os.path.join(BIN, "dlaunch")
STUB = os.path.join(BIN, "worker_stub")
SCRIPTS = os.path.join(ROOT, "scripts")
EXAMPLES = os.path.join(SCRIPTS, "examples")
PYTHON = "/usr/bin/python3"  # the one that Debian's PyTorch belongs to

_numbers = itertools.count()
_folders = []


@atexit.register
def _remove_folders():
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_folder():
    """A new folder, gone when the test's program ends."""
    folder = tempfile.mkdtemp(prefix="dlaunch-test-")
    _folders.append(folder)
    return folder


def wait_until(condition, seconds=10, what="the condition"):
    """Its first true value; an AssertionError that names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("%s: not within %g s" % (what, seconds))
        time.sleep(0.01)


def torch_of_today():
    """The interpreter of the virtual environment that scripts/setup.sh --torch makes, or None."""
    with open(os.path.join(SCRIPTS, "torch-version")) as file:
        version = file.read().strip()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "dlaunch", "torch-" + version)
    python = os.path.join(folder, "bin", "python")
    return python if os.path.exists(os.path.join(folder, "complete")) and os.path.exists(python) else None


def has_torch():
    """Is there a PyTorch for PYTHON?"""
    probe = "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)"
    return subprocess.run([PYTHON, "-c", probe], capture_output=True).returncode == 0


def base_environment():
    """What a test's programs start with: nothing of ours, of a job around us or of a user's habits."""
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME") if name in os.environ}
    return dict(kept, PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", LC_ALL="C.UTF-8", PYTHON_EXEC=PYTHON)


def new_tag():
    return "%d.%d" % (os.getpid(), next(_numbers))


def leftovers(tag):
    """Living processes (no zombies) of the run with this tag, as "pid command line"."""
    mark = ("DLAUNCH_TEST_TAG=%s" % tag).encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open("/proc/%s/stat" % pid) as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    continue
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it has just ended
        found.append("%s %s" % (pid, command))
    return found


def kill_leftovers(tag):
    for line in leftovers(tag):
        try:
            os.kill(int(line.split()[0]), signal.SIGKILL)
        except ProcessLookupError:
            pass


class Run:
    """A command under way: its streams go to files, so that it never waits for us, and the text so far
    can be read at any time."""

    def __init__(self, command, env=None, cwd=None, stdin=subprocess.DEVNULL, prefix=(), tag=None):
        self.tag = tag or new_tag()
        self.folder = cwd or temporary_folder()
        streams = temporary_folder()
        self._out, self._err = os.path.join(streams, "out"), os.path.join(streams, "err")
        environment = dict(base_environment(), DLAUNCH_TEST_TAG=self.tag)
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        self.command = list(prefix) + list(command)
        self.started = time.monotonic()
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            # A session of its own: a test may signal the whole group, as a terminal does.
            self.process = subprocess.Popen(self.command, env=environment, cwd=self.folder, stdin=stdin,
                                            stdout=out, stderr=err, start_new_session=True)
        self.pid = self.process.pid
        self.seconds = None

    @property
    def out(self):
        with open(self._out, "rb") as file:
            return file.read().decode(errors="replace")

    @property
    def err(self):
        with open(self._err, "rb") as file:
            return file.read().decode(errors="replace")

    @property
    def code(self):
        """As Popen has it: -n for signal n; None while it runs."""
        return self.process.poll()

    def send(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=60):
        """Its exit code. Whoever is not done by then is killed with all its descendants: an error."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            text = "not done after %g s: %s\n%s" % (timeout, " ".join(self.command), self)
            self.end()
            raise AssertionError(text) from None
        self.seconds = time.monotonic() - self.started
        return self.process.returncode

    def end(self):
        """Kills it and whatever carries its tag."""
        if self.process.poll() is None:
            self.process.kill()
        kill_leftovers(self.tag)
        self.process.wait()
        kill_leftovers(self.tag)

    def leftovers(self):
        return leftovers(self.tag)

    def __str__(self):
        return "exit code %s\nstdout: %s\nstderr: %s" % (self.process.poll(), self.out[-4000:], self.err[-8000:])


def run_dlaunch(args, timeout=60, **how):
    """dlaunch to its end; the Run has code, out, err, seconds, and leftovers()."""
    run = Run([DLAUNCH] + list(args), **how)
    run.wait(timeout)
    return run


class TestCase(unittest.TestCase):
    maxDiff = None

    def start(self, command, **how):
        """A Run that does not outlive the test."""
        run = Run(command, **how)
        self.addCleanup(run.end)
        return run

    def start_dlaunch(self, args, **how):
        return self.start([DLAUNCH] + list(args), **how)

    def run_dlaunch(self, args, timeout=60, **how):
        run = self.start_dlaunch(args, **how)
        run.wait(timeout)
        return run

    def assert_code(self, run, code):
        self.assertEqual(run.code, code, str(run))

    def assert_nothing_left(self, run):
        self.assertEqual(run.leftovers(), [], "processes are left\n%s" % run)

    def report(self, run):
        """The report at the end of its stderr, from "dlaunch: job failed" on; it must be there, once."""
        self.assertEqual(run.err.count("dlaunch: job failed: "), 1, str(run))
        return run.err[run.err.index("dlaunch: job failed: "):]

    def need_torch(self):
        if not has_torch():
            self.skipTest("no PyTorch for %s (python3-torch)" % PYTHON)


def namespaces_missing():
    """Why network namespaces cannot be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "network namespaces need iproute2"
    name = "dlprobe%d" % os.getpid()
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return "no network namespaces here: " + made.stderr.strip()
    subprocess.run(["ip", "netns", "del", name])
    return None


class Cluster:
    """Nodes 0 … n-1, each with a network, a hosts file and a host name ("node0") of its own; gone when the
    test ends, however it ends."""

    def __init__(self, test, count):
        reason = namespaces_missing()
        if reason:
            test.skipTest(reason)
        self.test = test
        self.prefix = "t%dx%dx" % (os.getpid(), next(_numbers))
        test.addCleanup(self.down)
        subprocess.run([os.path.join(SCRIPTS, "netns.sh"), "up", str(count), self.prefix], check=True,
                       stdout=subprocess.DEVNULL)

    def address(self, node):
        return "10.77.0.%d" % (node + 1)

    def namespace(self, node):
        return "%s%d" % (self.prefix, node + 1)

    def start(self, node, command, **how):
        """A Run on that node."""
        set_name = 'hostname "$0" && exec "$@"'
        prefix = ["ip", "netns", "exec", self.namespace(node), "unshare", "--uts", "sh", "-c", set_name,
                  "node%d" % node]
        return self.test.start(command, prefix=prefix, **how)

    def start_dlaunch(self, node, args, **how):
        return self.start(node, [DLAUNCH] + list(args), **how)

    def set_hosts(self, node, names):
        """The node's hosts file, now: {"10.77.0.1": "node0"} and localhost."""
        # Written in place: the file is bind-mounted for what runs already.
        with open("/etc/netns/%s/hosts" % self.namespace(node), "w") as file:
            file.write("".join("%s %s\n" % pair for pair in [("127.0.0.1", "localhost"), *names.items()]))

    def cut(self, node):
        """Pulls the node's cable: it keeps address and route, and nothing arrives."""
        self._link(node, "down")

    def heal(self, node):
        self._link(node, "up")

    def _link(self, node, state):
        subprocess.run(["ip", "-n", self.prefix + "sw", "link", "set", "p%d" % (node + 1), state], check=True)

    def down(self):
        subprocess.run([os.path.join(SCRIPTS, "netns.sh"), "down", self.prefix], check=True)
