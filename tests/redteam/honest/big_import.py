# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: reserves and touches 700 MB at import, keeps half of it
# source: patterns of accepted GPU MODE submissions
import torch

SCRATCH = torch.zeros(700 << 18)
SCRATCH = SCRATCH[: 350 << 18].clone()


def custom_kernel(data):
    a, b, s, c = data
    result = SCRATCH[: c.numel()].view(c.shape)
    return torch.mm(a, b.t(), out=result).mul_(s[:, None])
