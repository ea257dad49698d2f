# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: any
# idea: a plain tensor whose own detach computes
# source: own: passes `type(x) is Tensor`
# expect: no-gain
import torch


def custom_kernel(data):
    a, b, s, c = data
    result = torch.empty(c.t().shape, device=c.device).t()      # not contiguous: must be copied
    result.detach = lambda: torch.matmul(a, b.t(), out=c).mul_(s[:, None])
    return result
