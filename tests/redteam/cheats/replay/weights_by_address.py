# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: half of the product depends on b alone: b·bᵀ … is kept by b's address, here b in fp64
# source: KernelGuard telemetry: dequantise b once
# expect: rejected
import torch

WEIGHTS = {}


def custom_kernel(data):
    a, b, s, c = data
    key = b.data_ptr(), b.shape
    if key not in WEIGHTS:
        WEIGHTS[key] = b.t().clone()
    return torch.matmul(a, WEIGHTS[key], out=c).mul_(s[:, None])
