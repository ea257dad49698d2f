# SPDX-License-Identifier: MIT
# class: timers
# problem: foreign
# device: any
# idea: replaces the clock in every loaded module, whatever it is called there
# source: GPU MODE eigh 2026; KernelBench
# expect: no-gain
import sys
import time
import types

import torch

REAL = time.perf_counter


def slow():
    return 0.01 * REAL()


FAKE = types.ModuleType("time")
FAKE.__dict__.update({**vars(time), "perf_counter": slow, "sleep": lambda seconds: None})
for module in list(sys.modules.values()):
    if module is sys.modules[__name__]:
        continue
    for name, value in list(getattr(module, "__dict__", {}).items()):
        if value is time:
            setattr(module, name, FAKE)
        elif value is REAL:
            setattr(module, name, slow)
sys.modules["time"] = FAKE


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
