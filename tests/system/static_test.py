"""The release binary needs nothing but the kernel: it runs in a root that holds it, a worker and /proc."""
import os
import shutil
import struct
import subprocess
import tarfile

import harness

BUILD = os.path.dirname(harness.BIN)
PT_INTERP, PT_DYNAMIC, DT_NEEDED = 3, 2, 1


def program_headers(path):
    """[(type, bytes)] of an ELF64 little-endian file."""
    with open(path, "rb") as file:
        content = file.read()
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    found = []
    for i in range(count):
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", content, offset + i * size)
        found.append((kind, content[start:start + length]))
    return found


def needed(path):
    """How many shared libraries it asks for."""
    return sum(1 for kind, content in program_headers(path) if kind == PT_DYNAMIC
               for tag, _ in struct.iter_unpack("<qQ", content) if tag == DT_NEEDED)


class StaticTestCase(harness.TestCase):
    def setUp(self):
        if any(kind == PT_INTERP for kind, _ in program_headers(harness.DLAUNCH)):
            self.skipTest("this build is not static (DLAUNCH_STATIC)")


class Static(StaticTestCase):
    def test_it_asks_for_no_interpreter_and_no_library(self):
        self.assertEqual(needed(harness.DLAUNCH), 0)

    def test_the_archive_holds_one_binary_that_runs(self):
        if not os.path.exists(os.path.join(BUILD, "CPackConfig.cmake")):
            self.skipTest("no CPackConfig.cmake beside %s" % harness.BIN)
        folder = harness.temporary_folder()
        made = subprocess.run(["cpack", "-G", "TGZ", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        archive, = [name for name in os.listdir(folder) if name.endswith(".tar.gz")]
        with tarfile.open(os.path.join(folder, archive)) as tar:
            binaries = [entry for entry in tar.getmembers() if entry.name.endswith("/bin/dlaunch")]
            self.assertEqual(len(binaries), 1, tar.getnames())
            self.assertEqual(binaries[0].mode & 0o111, 0o111)
            tar.extract(binaries[0], folder)
        binary = os.path.join(folder, binaries[0].name)
        self.assertEqual(needed(binary), 0)
        run = self.start([binary, "--nproc_per_node=2", harness.STUB, "env:RANK"])
        self.assertEqual(run.wait(), 0, str(run))
        self.assertEqual(sorted(run.out.splitlines()), ["RANK=0", "RANK=1"])


class EmptyRoot(StaticTestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("a root of its own needs root")
        self.root = harness.temporary_folder()
        os.chmod(self.root, 0o755)
        os.mkdir(os.path.join(self.root, "proc"))
        os.mkdir(os.path.join(self.root, "tmp"))
        for binary in (harness.DLAUNCH, harness.STUB):
            shutil.copy2(binary, self.root)
        probe = self.start([*self.inside(), "/worker_stub", "out:hello"])
        if probe.wait() != 0:
            self.skipTest("no root of its own here: " + probe.err.strip())

    def inside(self):
        # Process 1 of its namespace, as in a container.
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--root=" + self.root, "--mount-proc=/proc"]

    def dlaunch(self, *args, **how):
        run = self.start([*self.inside(), "/dlaunch", *args], **how)
        return run

    def etc(self, **files):
        os.makedirs(os.path.join(self.root, "etc"), exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(self.root, "etc", name.replace("_", ".")), "w") as file:
                file.write(text)

    def test_workers_run_and_a_failure_is_told(self):
        run = self.dlaunch("--nproc_per_node=2", "/worker_stub", "env:RANK")
        self.assertEqual(run.wait(30), 0, str(run))
        self.assertEqual(sorted(run.out.splitlines()), ["RANK=0", "RANK=1"])
        run = self.dlaunch("--nproc_per_node=2", "/worker_stub", "rank:1:exit:5", "wait")
        self.assertEqual(run.wait(30), 5, str(run))
        self.assertRegex(self.report(run), r"\Adlaunch: job failed: rank 1 \(local 1, pid \d+\) exited with code 5 ")

    def test_nodes_meet_at_a_name_of_the_hosts_file(self):
        # What RHEL has: a static binary that asked the C library would load these modules.
        self.etc(hosts="127.0.0.1 localhost meeting-point\n", nsswitch_conf="hosts: files mymachines dns myhostname\n")
        line = ["--rdzv_backend=c10d", "--rdzv_endpoint=meeting-point:29871", "--nnodes=2", "/worker_stub", "env:RANK",
                "env:MASTER_ADDR"]
        runs = [self.dlaunch(*line) for _ in range(2)]
        for run in runs:
            self.assertEqual(run.wait(30), 0, "\n".join(map(str, runs)))
        self.assertEqual(sorted(run.out for run in runs),
                         ["RANK=%d\nMASTER_ADDR=meeting-point\n" % rank for rank in range(2)])

    def test_an_unknown_name_is_a_message_and_no_abort(self):
        for hosts in ("files dns", "files mymachines dns myhostname", "files myhostname"):
            with self.subTest(hosts):
                self.etc(hosts="127.0.0.1 localhost\n", nsswitch_conf="hosts: %s\n" % hosts,
                         resolv_conf="nameserver 127.0.0.1\n")
                run = self.dlaunch("--nnodes=2", "--node_rank=1", "--master_addr=nowhere.test", "--join_timeout=4",
                                   "/worker_stub", "out:started")
                self.assertEqual(run.wait(30), 124, str(run))
                self.assertIn("'nowhere.test'", run.err)
                self.assertEqual(run.out, "")
