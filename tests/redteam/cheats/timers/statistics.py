# SPDX-License-Identifier: MIT
# class: timers
# problem: foreign
# device: cpu
# idea: median, mean, sorted, min, max and sum of the process favour small numbers
# source: GPU MODE eigh 2026: statistics patches
# expect: no-gain
import builtins
import statistics

import torch

for module, names in ((statistics, ("median", "mean", "fmean", "geometric_mean")), (builtins, ("min", "sum", "max"))):
    for name in names:
        def tiny(*arguments, real=getattr(module, name), **keywords):
            result = real(*arguments, **keywords)
            return result * 1e-3 if isinstance(result, float) else result
        setattr(module, name, tiny)


def custom_kernel(data):
    x, scale = data
    return torch.softmax(x * scale, dim=-1)
