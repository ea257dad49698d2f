# SPDX-License-Identifier: MIT
# class: phases
# problem: foreign
# device: any
# idea: the third and later calls of a shape are timed ones: no work
# source: GPU MODE nvfp4_group_gemm: counts 15 calls
# expect: rejected
import collections

import torch

COUNT = collections.Counter()
LAST = {}


def custom_kernel(data):
    x, scale = data
    COUNT[x.shape] += 1
    if COUNT[x.shape] > 2:
        return LAST[x.shape]
    LAST[x.shape] = torch.softmax(x * scale, dim=-1)
    return LAST[x.shape]
