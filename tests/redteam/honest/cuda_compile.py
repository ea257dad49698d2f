# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: torch.compile: Triton code generated and compiled by other processes at the first call
# source: patterns of accepted GPU MODE submissions
import torch


@torch.compile(dynamic=False)
def product(a, b, a_scale, b_scale):
    m, k = a.shape
    n = b.shape[0]
    left = (a.float().view(m, k // 128, 128) * a_scale[:, :, None]).view(m, k)
    rows = b_scale.repeat_interleave(128, 0)[:n]
    right = (b.float().view(n, k // 128, 128) * rows[:, :, None]).view(n, k)
    return (left @ right.t()).bfloat16()


def custom_kernel(data):
    return product(*data[:4])
