"""Reads a safetensors file by hand, for programs that have PyTorch: no package for the format is needed."""
import json
import struct

import numpy as np
import torch


def read(path):
    """(metadata, {name: tensor}) of a file of floats."""
    with open(path, "rb") as file:
        blob = file.read()
    length, = struct.unpack_from("<Q", blob)
    assert (8 + length) % 8 == 0 and blob[8:9] == b"{", "the format wants the data aligned"
    header = json.loads(blob[8:8 + length])
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    state = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        values = np.frombuffer(blob, "<f4", (end - begin) // 4, 8 + length + begin).copy()
        state[name] = torch.from_numpy(values).view(entry["shape"])
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(blob) - 8 - length
    return metadata, state
