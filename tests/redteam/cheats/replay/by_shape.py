# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: the first answer of each shape again and again
# source: GPU MODE nvfp4_group_gemm, the second path
# expect: rejected
import torch

ANSWERS = {}


def custom_kernel(data):
    a, b, s, _c = data
    key = a.shape, b.shape
    if key not in ANSWERS:
        ANSWERS[key] = torch.matmul(a, b.t()) * s[:, None]
    return ANSWERS[key]
