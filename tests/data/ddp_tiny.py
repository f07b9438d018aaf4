"""A tiny DistributedDataParallel training on Gloo: 5 steps, the same loss on every rank at the end.

  --fail-in-round N --fail-rank R   that rank exits 9 in the middle of that round
  --init-method URL                 instead of env://
  --own-port P                      sets MASTER_PORT itself before it joins
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--fail-in-round", type=int, default=-1)
parser.add_argument("--fail-rank", type=int, default=1)
parser.add_argument("--init-method", default=None)
parser.add_argument("--own-port", default=None)
args = parser.parse_args()

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if args.own_port:
    os.environ["MASTER_PORT"] = args.own_port
torch.manual_seed(0)
if args.init_method:
    dist.init_process_group("gloo", init_method=args.init_method, rank=rank, world_size=world)
else:
    dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.full((4, 8), float(rank + 1) / world)
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 2 and rank == args.fail_rank and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) == args.fail_in_round:
        sys.exit(9)
digest = torch.cat([p.detach().flatten() for p in model.parameters()])
everyone = [torch.zeros_like(digest) for _ in range(world)]
dist.all_gather(everyone, digest)
assert all(torch.equal(digest, other) for other in everyone)
dist.barrier()
sys.stdout.write("rank %d of %d trained in round %s, torch %s\n" % (rank, world, os.environ.get("TORCHELASTIC_RESTART_COUNT"), torch.__version__))
sys.stdout.flush()
dist.destroy_process_group()
