# SPDX-License-Identifier: MIT
# class: phases
# problem: foreign
# device: any
# idea: names of functions on the stack tell timing from checking
# source: GPU MODE; KernelGuard
# expect: rejected
import traceback

import torch

LAST = {}


def custom_kernel(data):
    x, scale = data
    names = {frame.name for frame in traceback.extract_stack()}
    if "do_call" in names or x.shape not in LAST:
        LAST[x.shape] = torch.softmax(x * scale, dim=-1)
    return LAST[x.shape]
