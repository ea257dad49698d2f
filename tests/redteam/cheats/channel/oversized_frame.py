# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: announces a message of four gigabytes and starts to send it
# source: own
# expect: rejected
import contextlib
import sys

import torch


def send(sock, message, *rest, **more):
    with contextlib.suppress(OSError):
        sock.sendall(b"\xff\xff\xff\xff" + b"[" * (64 << 20))


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "answer") and hasattr(module, "receive"):
        module.answer = send


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
