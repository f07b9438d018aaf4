"""Runs below an interpreter with PyTorch: train_arithmetic_calls.py MODE PROBE compares the trainer's arithmetic,
called through train_math_probe, with PyTorch's. Exit 0: they agree; otherwise the difference is told."""
import random
import subprocess
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as functional

PROBE = sys.argv[2]
torch.set_num_threads(1)


def probe(*arguments, feed=(), dtype=numpy.float32):
    done = subprocess.run([PROBE] + [str(a) for a in arguments], input=b"".join(a.tobytes() for a in feed),
                          stdout=subprocess.PIPE, timeout=100, check=True)
    return numpy.frombuffer(done.stdout, dtype)


class Mlp(nn.Module):
    def __init__(self, shape, classes, hidden):
        super().__init__()
        sizes = [shape[0] * shape[1] * shape[2]] + hidden + [classes]
        for i in range(len(sizes) - 1):
            setattr(self, "fc%d" % (i + 1), nn.Linear(sizes[i], sizes[i + 1]))
        self.layers = len(sizes) - 1

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.layers + 1):
            x = getattr(self, "fc%d" % i)(x)
            x = functional.relu(x) if i < self.layers else x
        return x


class Cnn(nn.Module):
    def __init__(self, shape, classes, _):
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(50 * (((shape[1] - 4) // 2 - 4) // 2) * (((shape[2] - 4) // 2 - 4) // 2), 500)
        self.fc2 = nn.Linear(500, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


MODELS = {"softmax": Mlp, "mlp": Mlp, "cnn": Cnn}


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).numpy()


def expect_near(what, ours, theirs, tolerance):
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    far = numpy.abs(ours.astype(numpy.float64) - theirs).max()
    size = max(numpy.abs(theirs).max(), 1e-3)
    assert far <= tolerance * size, "%s: differ by %g, the largest is %g" % (what, far, size)


def initial():
    for name, shape, classes, hidden, seed in [
            ("softmax", (1, 28, 28), 10, [], 1), ("mlp", (1, 28, 28), 10, [512, 512], 42),
            ("mlp", (3, 32, 32), 100, [77, 1, 33], 2**40 + 5), ("cnn", (1, 28, 28), 10, [], 0),
            ("cnn", (3, 32, 32), 10, [], 2**32 - 1)]:
        torch.manual_seed(seed)
        theirs = flat(MODELS[name](shape, classes, hidden).parameters())
        ours = probe("initial", name, *shape, classes, seed, *hidden)
        assert numpy.array_equal(ours, theirs), "%s, seed %d: not the same bits" % (name, seed)


def gradients():
    random.seed(4)
    for case in range(20):
        name = ("cnn", "mlp", "softmax")[case % 3]
        least = 16 if name == "cnn" else 1
        shape = (random.choice((1, 1, 2, 3)), random.randint(least, 34), random.randint(least, 34))
        classes, batch = random.randint(2, 12), random.randint(1, 9)
        hidden = [random.randint(1, 70) for _ in range(random.randint(1, 3))] if name == "mlp" else []
        what = "%s %s, %d classes, batch %d, hidden %s" % (name, shape, classes, batch, hidden)
        torch.manual_seed(case)
        model = MODELS[name](shape, classes, hidden)
        images = torch.rand(batch, *shape) * 2 - 1
        labels = torch.randint(classes, (batch,))
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        ours = probe("gradients", name, *shape, classes, batch, *hidden,
                     feed=(flat(model.parameters()), images.numpy(), labels.numpy().astype(numpy.int32)))
        count = batch * classes
        expect_near(what + ": logits", ours[:count], flat([logits]), 1e-5)
        expect_near(what + ": loss", ours[count:count + 1], flat([loss]), 1e-5)
        at = count + 1
        for key, parameter in model.named_parameters():
            end = at + parameter.numel()
            expect_near(what + ": " + key, ours[at:end], flat([parameter.grad]), 2e-5)
            at = end
        assert at == len(ours)


def optimizers():
    steps = 100
    for name, momentum, decay, clip in [("sgd", 0, 0, 0), ("sgd", 0.9, 0, 0), ("sgd", 0, 0.01, 0), ("sgd", 0.5, 0.1, 0.7),
                                        ("adamw", 0, 0, 0), ("adamw", 0, 0.1, 0), ("adamw", 0, 0.01, 0.7)]:
        torch.manual_seed(3)
        model = nn.Linear(37, 5)
        start = flat(model.parameters())
        groups = [{"params": [model.weight], "weight_decay": decay}, {"params": [model.bias], "weight_decay": 0}]
        if name == "sgd":
            optimizer = torch.optim.SGD(groups, lr=0.05, momentum=momentum)
        else:
            optimizer = torch.optim.AdamW(groups, lr=0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        rates, feed, theirs = [], [start], []
        for _ in range(steps):
            model.weight.grad, model.bias.grad = torch.randn(5, 37), torch.randn(5)
            feed.append(flat([model.weight.grad, model.bias.grad]))
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
            theirs.append(flat(model.parameters()))
        ours = probe("optimize", name, momentum, decay, clip, steps, 5, 37, *rates, feed=feed)
        expect_near("%s, momentum %g, decay %g, clip %g" % (name, momentum, decay, clip), ours,
                    numpy.concatenate(theirs), 2e-6)


def schedules():
    # The trainer's schedules start behind the warm-up, as SequentialLR has it.
    from torch.optim import lr_scheduler as torchs
    steps, warmup = 100, 10

    def rates_of(make):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
        scheduler = make(optimizer)
        rates = []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return numpy.array(rates)

    for name, make in [
            ("constant", lambda o, n: torchs.ConstantLR(o, factor=1)),
            ("step", lambda o, n: torchs.StepLR(o, 7, gamma=0.7)),
            ("cosine", lambda o, n: torchs.CosineAnnealingLR(o, n)),
            ("linear", lambda o, n: torchs.LinearLR(o, start_factor=1, end_factor=0, total_iters=n))]:
        ours = probe("schedule", name, 0.3, 0, steps, 7, 0.7, steps, dtype=numpy.float64)
        expect_near(name, ours, rates_of(lambda o: make(o, steps)), 1e-9)
        # PyTorch's warm-up from 1/10 takes 9 steps to the full rate, ours shows it at the tenth.
        ours = probe("schedule", name, 0.3, warmup, steps, 7, 0.7, steps, dtype=numpy.float64)
        warm = rates_of(lambda o: torchs.LinearLR(o, start_factor=1 / warmup, end_factor=1, total_iters=warmup - 1))
        after = rates_of(lambda o: make(o, steps - warmup))
        expect_near(name + " with warm-up", ours, numpy.concatenate([warm[:warmup], after[:steps - warmup]]), 1e-9)


{"initial": initial, "gradients": gradients, "optimizers": optimizers, "schedules": schedules}[sys.argv[1]]()
