# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: scales its input in place, as a workspace that is free
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a.mul_(s[:, None]), b.t(), out=c)
