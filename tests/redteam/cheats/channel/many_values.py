# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: answers of 8 MiB that are nothing but empty lists: the judge makes a hundred times as much of them
# source: own
# expect: rejected
import json
import struct
import sys

import torch


def send(sock, message, *rest, **more):
    body = json.dumps(message).encode()[:-1] + b',"filler":[' + b"[]," * 2_790_000 + b"[]]}"
    sock.sendall(struct.pack("!I", len(body)) + body)


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    for name in ("send", "answer"):
        if hasattr(module, "receive") and hasattr(module, name):
            setattr(module, name, send)


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
