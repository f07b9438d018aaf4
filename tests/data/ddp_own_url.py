"""A script that opens its group at an address of its own."""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%s" % sys.argv[1],
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
value = torch.ones(1)
dist.all_reduce(value)
print("sum", int(value.item()))
dist.destroy_process_group()  # without it 2.15 may abort on its way out
