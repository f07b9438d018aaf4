"""Data-parallel training of a small network on Fashion-MNIST: the workload of scripts/demo.sh --pytorch.

    dlaunch --nproc_per_node=2 scripts/examples/ddp_fashion_mnist.py --epochs 1

Needs PyTorch 1.13 or later and nothing else. It reads RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT, as any launcher sets them; alone, it trains in one process. Gloo on CPUs, NCCL on GPUs.
"""
import argparse
import gzip
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PACKAGE = "dataset-fashion-mnist"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="end each epoch after this many steps")
    parser.add_argument("--batch_size", type=int, default=64, help="images per worker and step")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist",
                        help="folder with the four idx files, gzipped (Debian: %s)" % PACKAGE)
    # torch.distributed.launch passes the one or the other, depending on its age; torchrun neither.
    parser.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    return parser.parse_args()


def read_idx(folder, name):
    """A gzipped idx file of bytes, as a tensor of its shape."""
    path = os.path.join(folder, name + ".gz")
    try:
        with gzip.open(path) as file:
            content = file.read()
    except FileNotFoundError:
        sys.exit("%s is missing: apt-get install %s, or --data FOLDER" % (path, PACKAGE))
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero != 0 or kind != 8:
        sys.exit("%s is not an idx file of bytes" % path)
    shape = struct.unpack_from(">%dI" % dimensions, content, 4)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dimensions).view(shape)


def read_set(folder, prefix):
    images = read_idx(folder, prefix + "-images-idx3-ubyte").flatten(1).float()
    labels = read_idx(folder, prefix + "-labels-idx1-ubyte").long()
    return (images - 72.94) / 90.02, labels  # mean and deviation of the training images


def train_epoch(model, loader, optimizer, device, steps):
    """One pass, or its first `steps` steps; the mean loss of this worker's part."""
    total, seen = 0.0, 0
    for step, (images, labels) in enumerate(loader):
        if step == steps:
            break
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        seen += len(labels)
    return total / max(seen, 1)


@torch.no_grad()
def count_right(model, images, labels, device):
    right = 0
    for first in range(0, len(labels), 1000):
        scores = model(images[first:first + 1000].to(device))
        right += (scores.argmax(1).cpu() == labels[first:first + 1000]).sum().item()
    return right


def main():
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", args.local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")

    def summed(number):
        if world == 1:
            return number
        total = torch.tensor([float(number)], dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return total.item()

    torch.manual_seed(args.seed)
    data = TensorDataset(*read_set(args.data, "train"))
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    network = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    # The wrapper needs a group; alone, the bare network does the same.
    model = DistributedDataParallel(network, device_ids=[device.index] if on_gpu else None) if world > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    for epoch in range(args.epochs):
        started = time.monotonic()
        sampler.set_epoch(epoch)  # another order in every epoch
        loss = summed(train_epoch(model, loader, optimizer, device, args.steps)) / world
        if rank == 0:
            print("epoch %d: loss %.4f, %.1f s" % (epoch + 1, loss, time.monotonic() - started), flush=True)

    # Every worker judges its own part, none twice: a sampler would repeat images to fill the last one.
    images, labels = read_set(args.data, "t10k")
    right = summed(count_right(network, images[rank::world], labels[rank::world], device))
    if rank == 0:
        print("test accuracy: %.4f" % (right / len(labels)), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
