# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: any
# idea: remembers answers by id(tensor), which Python reuses
# source: KernelGuard's replay rules
# expect: rejected
import torch

ANSWERS = {}


def custom_kernel(data):
    x, scale = data
    key = id(x)
    if key not in ANSWERS:
        ANSWERS[key] = torch.softmax(x * scale, dim=-1)
    return ANSWERS[key]
