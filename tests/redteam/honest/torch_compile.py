# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: torch.compile: seconds on the first call of a shape, compiler processes and cache files
# source: patterns of accepted GPU MODE submissions
import torch


@torch.compile(dynamic=False)
def scaled_product(a, b, s):
    return torch.mm(a, b.t()) * s[:, None]


def custom_kernel(data):
    a, b, s, _ = data
    return scaled_product(a, b, s)
