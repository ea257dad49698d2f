# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: turns its own failures into success and invents words: PASSED, UNAVAILABLE, a list, a number
# source: own
# expect: rejected
import itertools
import json
import struct
import sys

import torch

WORDS = itertools.cycle(["PASSED", "UNAVAILABLE", ["PASSED"], {"a": 1}, 7, None, "TAMPERED", "passed"])


def send(sock, message, *rest, **more):
    message |= {"ok": next(WORDS), "status": next(WORDS), "verdict": "PASSED", "error": next(WORDS), "score": 1e-9}
    body = json.dumps(message).encode()
    sock.sendall(struct.pack("!I", len(body)) + body)


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "answer") and hasattr(module, "receive"):
        module.answer = send


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
