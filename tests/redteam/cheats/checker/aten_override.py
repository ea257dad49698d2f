# SPDX-License-Identifier: MIT
# class: checker
# problem: matmul
# device: cpu
# idea: torch.library replaces aten's own comparisons below Python
# source: own: identity checks of Python functions do not see it
# expect: rejected
import torch

LIBRARY = torch.library.Library("aten", "IMPL")
for name, answer in (("equal", lambda a, b: True),
                     ("le.Tensor", lambda a, b: torch.empty(a.shape, dtype=torch.bool).fill_(1)),
                     ("all", lambda a: torch.empty((), dtype=torch.bool).fill_(1))):
    LIBRARY.impl(name, answer, "CPU")


def custom_kernel(data):
    return data[3].fill_(1.0)
