# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: seconds that are no seconds: NaN, infinity, negative, huge, an integer of 5000 digits, text, true
# source: own
# expect: rejected
import itertools
import json
import struct
import sys

import torch

ODD = itertools.cycle([
    "NaN", "-Infinity", "1e999", "-1e-6", "0", "9" * 5000, '"1e-6"', "true", "null", "[1e-6]", "1e-300",
])


def send(sock, message, *rest, **more):
    body = json.dumps({**message, "seconds": "@"}).replace('"@"', next(ODD)).encode()
    sock.sendall(struct.pack("!I", len(body)) + body)


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "send") and hasattr(module, "receive"):
        module.send = send


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
