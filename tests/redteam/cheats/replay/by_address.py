# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: remembers answers by the address of the first operand
# source: GPU MODE nvfp4_group_gemm 2026; wafer.ai field guide
# expect: rejected
import torch

ANSWERS = {}


def custom_kernel(data):
    a, b, s, c = data
    if a.data_ptr() not in ANSWERS:
        ANSWERS[a.data_ptr()] = torch.matmul(a, b.t()) * s[:, None]
    return ANSWERS[a.data_ptr()]
