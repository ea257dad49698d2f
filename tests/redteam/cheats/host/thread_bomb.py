# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: starts threads until it is refused, 1500 at most, all asleep
# source: own
import threading

import torch

threading.stack_size(64 << 10)
STOP, COUNT = threading.Event(), 0
try:
    while COUNT < 1500:
        threading.Thread(target=STOP.wait, args=(25,), daemon=True).start()
        COUNT += 1
except RuntimeError:
    pass


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
