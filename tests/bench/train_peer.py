"""PyTorch's side of train.py: the same network, batch and optimizer, in its fastest plain form: images lie in
memory as normalised floats, a step takes its rows by index_select, DistributedDataParallel (Gloo) only from
two ranks on, one thread a rank, the loss is never read. Rank 0 prints one line of JSON.

    dlaunch --nproc_per_node=N train_peer.py MODEL GLOBAL_BATCH WARM_UP STEPS DATA
"""
import gzip
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def read(folder, name, offset):
    with gzip.open(os.path.join(folder, name + ".gz")) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=offset)


def main():
    kind, (batch, warm_up, steps), folder = sys.argv[1], map(int, sys.argv[2:5]), sys.argv[5]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if world > 1:
        dist.init_process_group("gloo")
    images = (read(folder, "train-images-idx3-ubyte", 16).view(-1, 1, 28, 28).float() - 72.94) / 90.02
    labels = read(folder, "train-labels-idx1-ubyte", 8).long()
    model = {"mlp": Mlp, "cnn": Cnn}[kind]()
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)

    def batches():
        epoch = 0
        while True:
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))[rank::world]
            yield from order.split(batch // world)[:len(order) // (batch // world)]
            epoch += 1

    source = batches()

    def train(count):
        for _ in range(count):
            rows = next(source)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images.index_select(0, rows)), labels.index_select(0, rows))
            loss.backward()
            optimizer.step()
        return loss.item()

    train(warm_up)
    if world > 1:
        dist.barrier()
    started = time.perf_counter()
    loss = train(steps)
    if world > 1:
        dist.barrier()
    seconds = time.perf_counter() - started
    if rank == 0:
        print(json.dumps({"images_per_s": steps * batch / seconds, "loss": loss, "torch": torch.__version__}))


main()
