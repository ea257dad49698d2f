# SPDX-License-Identifier: MIT
# class: timers
# problem: matmul
# device: any
# idea: the worker's own modules see a clock that runs a thousand times slower
# source: own
# expect: no-gain
import sys
import time
import types

import torch

REAL = time.perf_counter
FAKE = types.SimpleNamespace(**{**vars(time), "perf_counter": lambda: 1e-3 * REAL()})
for name, module in list(sys.modules.items()):
    if (name == "__main__" or name.startswith("scoring")) and getattr(module, "time", None) is time:
        module.time = FAKE


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
