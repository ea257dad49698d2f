# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: the result has the negative bit set: its bytes are not its values until resolved
# source: patterns of accepted GPU MODE submissions
import torch


def custom_kernel(data):
    a, b, s, _ = data
    return torch._neg_view(torch.mm(a, b.t()).mul_(-s[:, None]))
