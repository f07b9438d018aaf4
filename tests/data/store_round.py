"""Leaves a key in the store in round 0 and fails; in round 1 says how many keys are there."""
import os
import socket
import struct
import sys

store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 10)
store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))  # VALIDATE


def number_of_keys():
    store.sendall(b"\7")  # GETNUMKEYS
    return struct.unpack("<q", store.recv(8, socket.MSG_WAITALL))[0]


if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    store.sendall(b"\1" + struct.pack("<Q", 2) + b"/x" + struct.pack("<Q", 1) + b"1")  # SET
    print("round 0:", number_of_keys(), "key")
    sys.exit(9)
print("round 1:", number_of_keys(), "keys")
