# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: a million brackets, so that the judge's parser runs out of stack
# source: own
# expect: rejected
import json
import struct
import sys

import torch


def send(sock, message, *rest, **more):
    depth = 1_000_000
    body = json.dumps(message).encode()[:-1] + b',"findings":' + b"[" * depth + b"]" * depth + b"}"
    sock.sendall(struct.pack("!I", len(body)) + body)


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "answer") and hasattr(module, "receive"):
        module.answer = send


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
