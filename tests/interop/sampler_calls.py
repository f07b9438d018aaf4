"""Run by Debian's python3, which has PyTorch. "sampler_calls.py compare PROBE" draws random cases, lets
train_probe and torch.utils.data.DistributedSampler give the lists, and prints as JSON how many were compared
and which differ. "sampler_calls.py store" prints the cases of tests/data/sampler_lists.json."""
import json
import random
import struct
import subprocess
import sys
import zlib

from torch.utils.data.distributed import DistributedSampler


def draw(rng, largest):
    images = rng.choice([rng.randint(1, 40), rng.randint(1, 2000), rng.randint(1, largest)])
    ranks = rng.randint(1, 16)
    return {"images": images, "ranks": ranks, "rank": rng.randrange(ranks), "shuffle": rng.random() < 0.8,
            "seed": rng.choice([0, rng.randrange(1000), rng.randrange(1 << 37)]), "drop_last": rng.random() < 0.5,
            "epoch": rng.randint(0, 300)}


def list_of(case):
    sampler = DistributedSampler(range(case["images"]), case["ranks"], case["rank"], case["shuffle"], case["seed"],
                                 case["drop_last"])
    sampler.set_epoch(case["epoch"])
    return list(sampler)


def store():
    rng = random.Random(40)
    cases = [draw(rng, 60000) for _ in range(36)]
    plain = {"ranks": 4, "rank": 1, "shuffle": True, "seed": 0, "drop_last": False, "epoch": 0}
    cases += [dict(plain, images=60000), dict(plain, images=2, ranks=5, rank=4), dict(plain, images=3, ranks=8, drop_last=True),
              dict(plain, images=60000, seed=(1 << 32) + 7)]
    for case in cases:
        indices = list_of(case)
        case.update(count=len(indices), crc32=zlib.crc32(struct.pack("<%dI" % len(indices), *indices)))
        case.update(first=indices[0] if indices else None, last=indices[-1] if indices else None)
    return "[\n%s\n]" % ",\n".join(json.dumps(case) for case in cases)


def compare(probe):
    rng = random.Random(300)
    cases = [draw(rng, 60000) for _ in range(300)]
    fields = ("images", "ranks", "rank", "shuffle", "seed", "drop_last", "epoch")
    lines = "".join(" ".join(str(int(case[field])) for field in fields) + "\n" for case in cases)
    answer = subprocess.run([probe, "lists"], input=lines, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    lists = [[int(index) for index in line.split()] for line in answer.stdout.splitlines()]
    wrong = [case for case, indices in zip(cases, lists) if indices != list_of(case)]
    return json.dumps({"compared": len(lists), "indices": sum(map(len, lists)), "wrong": wrong})


print(store() if sys.argv[1] == "store" else compare(sys.argv[2]))
