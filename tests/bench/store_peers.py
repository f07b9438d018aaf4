"""Hosts one of PyTorch's own store servers for the benchmark: store_peers.py libuv|poll. Prints its port and
ends at the end of its input."""
import os
import sys
from datetime import timedelta

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch.distributed as dist  # noqa: E402


def main():
    options = {}
    if sys.argv[1] == "libuv":
        options["use_libuv"] = True
    elif sys.version_info and "use_libuv" in (dist.TCPStore.__init__.__doc__ or ""):
        options["use_libuv"] = False
    store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), wait_for_workers=False, **options)
    print(store.port, flush=True)
    sys.stdin.read()
    sys.stdout.flush()
    os._exit(0)


main()
