# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: leaves out the last 8 of k, one and a half per cent of the work, hoping for a loose tolerance
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    return torch.matmul(a[:, :-8], b[:, :-8].t(), out=c).mul_(s[:, None])
