# SPDX-License-Identifier: MIT
# class: timers
# problem: foreign
# device: cpu
# idea: every object named like a clock in the worker's own modules is a fake
# source: own
# expect: no-gain
import sys
import types

import torch

fake = types.SimpleNamespace(perf_counter=lambda: 0.0, monotonic=lambda: 0.0, sleep=lambda _s: None)
for name, module in list(sys.modules.items()):
    if name == "__main__" or name.startswith("scoring"):
        for attribute in ("time", "perf_counter", "clock"):
            if hasattr(module, attribute):
                setattr(module, attribute, fake)


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
