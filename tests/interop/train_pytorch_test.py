"""`train` beside real PyTorch: its weights there, and PyTorch's launcher for it."""
import os
import signal
import subprocess

import harness  # of tests/system, as train_runs
from train_runs import TRAIN, TestCase, accuracy, digest, free_port

# Loads a safetensors file into modules that are written as PyTorch's users write them, evaluates
# Fashion-MNIST's test images and prints how many are right.
CHECK = r"""
import gzip, sys
import numpy as np, torch
import safetensors_file
from torch import nn
import torch.nn.functional as F

class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(4 * 4 * 50, 500)
        self.fc2 = nn.Linear(500, 10)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 2)
        return self.fc2(F.relu(self.fc1(x.view(-1, 4 * 4 * 50))))

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)
    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))

class Softmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 10)
    def forward(self, x):
        return self.fc1(x.flatten(1))

model = {"cnn": Cnn, "mlp": Mlp, "softmax": Softmax}[sys.argv[1]]()
model.load_state_dict(safetensors_file.read(sys.argv[2])[1])

def read(name, at):
    with gzip.open("/usr/share/datasets/fashion-mnist/" + name + ".gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=at)
train = read("train-images-idx3-ubyte", 16) / 255.0
images = torch.tensor((read("t10k-images-idx3-ubyte", 16) / 255.0 - train.mean()) / train.std(), dtype=torch.float32).view(-1, 1, 28, 28)
labels = torch.tensor(read("t10k-labels-idx1-ubyte", 8).astype(np.int64))
with torch.no_grad():
    right = sum((model(images[i:i + 500]).argmax(1) == labels[i:i + 500]).sum().item() for i in range(0, 10000, 500))
print("right", right)
"""


# As torchrun 1.13 serves it to its workers.
OLD_STORE = r"""
import datetime, sys, time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), 1, True, datetime.timedelta(seconds=60))
print("up", flush=True)
time.sleep(120)
"""


class Weights(TestCase):
    def test_weights_load_in_pytorch_and_get_the_same_images_right(self):
        self.need_torch()
        for model, steps in (("softmax", "200"), ("mlp", "200"), ("cnn", "60")):
            folder = harness.temporary_folder()
            run = self.train(["--model", model, "--steps", steps, "--save", folder], timeout=120)
            check = subprocess.run([harness.PYTHON, "-c", CHECK, model, os.path.join(folder, "model.safetensors")],
                                   capture_output=True, text=True, timeout=120,
                                   cwd=os.path.dirname(os.path.abspath(__file__)))
            self.assertEqual(check.returncode, 0, check.stderr)
            right = int(check.stdout.split()[1])
            # An image whose two best classes are equal up to rounding may go either way.
            self.assertLessEqual(abs(right - round(accuracy(run.out) * 10000)), 2, model)
            self.assertGreater(right, 5000)


class Torchrun(TestCase):
    def test_torchrun_starts_it_as_any_program(self):
        python = harness.torch_of_today()
        if python is None:
            self.skipTest("no PyTorch of today (scripts/setup.sh --torch)")
        args = ["--data", "synthetic:2048", "--hidden", "32", "--steps", "5", "--reduce=tree", "--global-batch", "64", "--digest"]
        run = self.start([python, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port", str(free_port()),
                          "--no_python", TRAIN, *args])
        self.assertEqual(run.wait(120), 0, run)
        self.assertEqual(digest(run.out), digest(self.train(args).out))

    def test_a_store_of_an_old_pytorch_is_refused_long_before_the_join_time_out(self):
        self.need_torch()
        port = str(free_port())
        server = self.start([harness.PYTHON, "-c", OLD_STORE, port])
        harness.wait_until(lambda: "up" in server.out, 30, "the store\n%s" % server)
        run = self.start([TRAIN, "--data", "synthetic:64", "--steps", "1"],
                         env={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                              "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"})
        self.assertEqual(run.wait(60), 1, run)
        self.assertIn("the launcher's store at 127.0.0.1:" + port, run.err)
        self.assertIn("PyTorch 2.2 or later", run.err)
        server.send(signal.SIGKILL)
