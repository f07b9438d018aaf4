"""The trainer's sampler and readers against the programs whose order and files they take: PyTorch's
DistributedSampler, and files that numpy wrote."""
import json
import os
import subprocess

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.path.join(harness.BIN, "train_probe")

WRITE = """
import json, sys, zlib
import numpy as np
folder, kind = sys.argv[1:]
rng = np.random.default_rng(5)
facts = {}
for split, count in ("train", 50), ("test", 20):
    images = rng.integers(0, 256, (count, 3, 6, 5), dtype=np.uint8)
    labels = rng.integers(0, 7, count)
    labels[:7] = range(7)
    facts[split] = {"size": count, "images": zlib.crc32(images.tobytes()),
                    "labels": zlib.crc32(labels.astype(np.uint8).tobytes())}
    if split == "train":
        scaled = images / 255.0
        facts["mean"] = scaled.mean((0, 2, 3)).tolist()
        facts["deviation"] = scaled.std((0, 2, 3)).tolist()
    if kind == "last":
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    if kind == "fortran":
        images = np.asfortranarray(images)
    names = {"keras": ("x_%s.npy", "y_%s.npy")}.get(kind, ("%s_images.npy", "%s_labels.npy"))
    dtype = {"last": "<i4", "keras": "|u1", "version2": "<i8", "version3": "<i8", "big": ">i4"}.get(kind, "<i8")
    for name, array in zip(names, (images, labels.astype(dtype))):
        with open("%s/%s" % (folder, name % split), "wb") as file:
            np.lib.format.write_array(file, array, {"version2": (2, 0), "version3": (3, 0)}.get(kind))
print(json.dumps(facts))
"""


class TrainDataTest(harness.TestCase):
    def python(self, *arguments):
        done = subprocess.run([harness.PYTHON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def show(self, data):
        return subprocess.run([PROBE, "show", data], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60)

    def write(self, kind):
        """A folder of .npy files, and what numpy says is in them."""
        if subprocess.run([harness.PYTHON, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no numpy for %s (python3-numpy)" % harness.PYTHON)
        folder = harness.temporary_folder()
        return folder, self.python("-c", WRITE, folder, kind)

    def test_every_rank_takes_what_pytorchs_sampler_gives_it(self):
        self.need_torch()
        result = self.python(os.path.join(HERE, "sampler_calls.py"), "compare", PROBE)
        self.assertEqual(result["compared"], 300)
        self.assertGreater(result["indices"], 100000)
        self.assertEqual(result["wrong"], [])

    def test_what_numpy_wrote_is_read_as_it_was(self):
        for kind in "plain", "last", "keras", "version2", "version3":
            folder, facts = self.write(kind)
            shown = self.show(folder)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            found = json.loads(shown.stdout)
            self.assertEqual((found["shape"], found["classes"]), ([3, 6, 5], 7), kind)
            for split in "train", "test":
                self.assertEqual(found[split], facts[split], kind)
            for name in "mean", "deviation":
                for ours, theirs in zip(found[name], facts[name]):
                    self.assertAlmostEqual(ours, theirs, 6)

    def test_arrays_in_another_order_are_refused_by_name(self):
        for kind, name, reason in (("fortran", "train_images.npy", "Fortran"), ("big", "train_labels.npy", "'>i4'")):
            folder, _ = self.write(kind)
            shown = self.show(folder)
            self.assertEqual(shown.returncode, 2, shown.stdout)
            self.assertIn("'%s/%s': byte " % (folder, name), shown.stderr)
            self.assertIn(reason, shown.stderr)

    def test_missing_default_data_name_their_package(self):
        hidden = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /usr/share && exec \"$@\"", "sh"]
        if subprocess.run(hidden + ["true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no mount namespace of its own here (root)")
        shown = subprocess.run(hidden + [PROBE, "show", "/usr/share/datasets/fashion-mnist"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(shown.returncode, 2, shown.stdout)
        self.assertEqual(shown.stderr, "train_probe: no data at '/usr/share/datasets/fashion-mnist'\n"
                                       "  apt-get install dataset-fashion-mnist, or --data FOLDER\n")
