# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: one output buffer per shape, overwritten by the next call: what memoising looks like
# source: patterns of accepted GPU MODE submissions
import torch

BUFFERS = {}


def custom_kernel(data):
    a, b, s, c = data
    key = (*c.shape, a.device)
    if key not in BUFFERS:
        BUFFERS[key] = torch.empty_like(c)
    return torch.mm(a, b.t(), out=BUFFERS[key]).mul_(s[:, None])
