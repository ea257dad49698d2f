# SPDX-License-Identifier: MIT
# class: phases
# problem: matmul
# device: any
# idea: small shapes are tests and get an answer, large ones are benchmarks and get none
# source: CUDA-L1
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    if a.shape[0] * b.shape[0] > 1 << 14:
        return c.zero_()
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
