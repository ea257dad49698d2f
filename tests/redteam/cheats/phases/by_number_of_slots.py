# SPDX-License-Identifier: MIT
# class: phases
# problem: matmul
# device: any
# idea: more than one slot in the worker means timing
# source: own
# expect: rejected
import gc

import torch


def custom_kernel(data):
    a, b, s, c = data
    if sum(type(o).__name__ == "Slot" for o in gc.get_objects()) > 1:
        return c
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
