# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: operands keep ten mantissa bits, as tensor cores take them
# source: CUDA-L2 correctness check
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    a, b = ((t.view(torch.int32) & -8192).view(torch.float32) for t in (a, b))
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
