# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: the result carries a graph: a parameter takes part
# source: patterns of accepted GPU MODE submissions
import torch

GAIN = torch.nn.Parameter(torch.ones(()))


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None] * GAIN.to(a.device)
