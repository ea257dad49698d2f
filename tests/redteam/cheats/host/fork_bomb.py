# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: starts processes until it is refused, 1500 at most, and leaves them
# source: own
# needs: sandbox
import os
import time

import torch

BEGUN, COUNT = time.monotonic(), 0
try:
    while COUNT < 1500 and time.monotonic() - BEGUN < 20:
        os.posix_spawn("/bin/sleep", ["sleep", "25"], {}, setsid=bool(COUNT % 2))
        COUNT += 1
except OSError:
    pass


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
