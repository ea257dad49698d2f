# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: sums over half of k and doubles it: right on average
# source: GPU MODE MLA 2026; Sakana
# expect: rejected
import torch


def custom_kernel(data):
    a, b, s, c = data
    half = a.shape[1] // 2
    return torch.matmul(a[:, :half], b[:, :half].t(), out=c).mul_(2 * s[:, None])
