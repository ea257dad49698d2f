# SPDX-License-Identifier: MIT
# class: phases
# problem: matmul
# device: any
# idea: a buffer of NaN is about to be checked, one of other bytes perhaps not
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    if not torch.isnan(c[0, 0]):
        return c
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
