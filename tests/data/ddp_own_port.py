"""A script that chooses its port itself, as many do: the launcher's MASTER_PORT is overwritten."""
import os
import sys

import torch
import torch.distributed as dist

os.environ["MASTER_PORT"] = sys.argv[1]
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
print("sum", int(value.item()))
dist.destroy_process_group()  # without it 2.15 may abort on its way out
