# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: returns the judge's own buffer as a negated view: the worker sees its own address and copies nothing
# source: own: lazy negation bit
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    torch.matmul(a[:1], b.t(), out=c[:1])
    return torch._neg_view(c)
