# SPDX-License-Identifier: MIT
# class: channel
# ends: never
# problem: matmul
# device: cpu
# idea: one byte of the answer every half second, for ever nearly done
# source: own
# expect: rejected
import json
import struct
import sys
import time

import torch

CALLED = []


def send(sock, message, *rest, **more):
    body = json.dumps({**message, "filler": "x" * 4000}).encode()
    for byte in struct.pack("!I", len(body)) + body:
        sock.sendall(bytes([byte]))
        time.sleep(0.5 if CALLED else 0)


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "answer") and hasattr(module, "receive"):
        module.answer = send


def custom_kernel(data):
    a, b, s, _ = data
    CALLED.append(len(a))
    return torch.mm(a, b.t()) * s[:, None]
