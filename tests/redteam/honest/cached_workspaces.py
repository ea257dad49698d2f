# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: scratch memory kept from call to call, by shape
# source: patterns of accepted GPU MODE submissions
import functools

import torch


@functools.cache
def workspace(m, n, k, device):
    return torch.empty(m, k, device=device), torch.empty(k, n, device=device)


def custom_kernel(data):
    a, b, s, c = data
    left, right = workspace(a.shape[0], b.shape[0], a.shape[1], a.device)
    torch.mul(a, s[:, None], out=left)
    right.copy_(b.t())
    return torch.mm(left, right, out=c)
