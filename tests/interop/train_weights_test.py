"""Weights to PyTorch and back: files written as other tools write them are read, and what is written loads
by name into a module, bit by bit the same."""
import os
import subprocess

import harness  # of tests/system

# write MODULE's weights / check them: what a file made by others looks like, by hand, so that no package
# for the format is needed. In such files tensors are sorted, and the header need not be padded.
SCRIPT = r"""
import json, struct, sys
import torch
import safetensors_file
from torch import nn

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.fc1 = nn.Linear(8, 3)
    def forward(self, x):
        return self.fc1(nn.functional.max_pool2d(self.conv1(x), 2).flatten(1))

torch.manual_seed(3)
module = Small()
mode, path = sys.argv[1:3]
if mode == "write":
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in sorted(module.state_dict().items()):
        values = tensor.numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, indent=1).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    sys.exit()

metadata, state = safetensors_file.read(path)
assert metadata["format"] == "pt"

loaded = Small()
with torch.no_grad():
    images = torch.rand(5, 1, 6, 6)
    assert not torch.equal(loaded(images), module(images)), "another module gives the same: this shows nothing"
    loaded.load_state_dict(state)
    assert torch.equal(loaded(images), module(images))
for (name, one), (_, other) in zip(loaded.named_parameters(), module.named_parameters()):
    assert torch.equal(one, other), name
print("same")
"""

# As the format's own package for Python does it, where there is one.
PACKAGE = r"""
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], "np") as file:
    print(sorted(file.keys()), file.get_tensor("fc1.weight").shape)
"""


class Weights(harness.TestCase):
    def setUp(self):
        self.tool = os.path.join(harness.BIN, "weights_copy")
        if not os.path.exists(self.tool):
            self.skipTest("no %s (DLAUNCH_TRAINER)" % self.tool)
        self.need_torch()
        folder = harness.temporary_folder()
        self.theirs, self.ours = os.path.join(folder, "theirs.safetensors"), os.path.join(folder, "ours.safetensors")
        self.python("write", self.theirs)

    def python(self, *args):
        done = subprocess.run([harness.PYTHON, "-c", SCRIPT, *args], capture_output=True, text=True, timeout=60,
                              cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def copy(self):
        return subprocess.run([self.tool, self.theirs, self.ours], capture_output=True, text=True, timeout=20)

    def test_weights_of_pytorch_come_back_to_it_unchanged(self):
        copied = self.copy()
        self.assertEqual(copied.returncode, 0, copied.stderr)
        self.assertEqual(self.python("check", self.ours), "same")

    def test_a_file_that_is_cut_is_refused(self):
        with open(self.theirs, "r+b") as file:
            file.truncate(os.path.getsize(self.theirs) - 1)
        copied = self.copy()
        self.assertEqual(copied.returncode, 1)
        self.assertIn("the file ends", copied.stderr)
        self.assertFalse(os.path.exists(self.ours))

    def test_the_package_of_the_format_reads_it(self):
        python = harness.torch_of_today() or harness.PYTHON
        if subprocess.run([python, "-c", "import safetensors, numpy"], capture_output=True).returncode:
            self.skipTest("no safetensors and numpy for %s" % python)
        self.copy()
        seen = subprocess.run([python, "-c", PACKAGE, self.ours], capture_output=True, text=True, timeout=60)
        self.assertEqual(seen.stdout.strip(), "['conv1.bias', 'conv1.weight', 'fc1.bias', 'fc1.weight'] (3, 8)", seen.stderr)
