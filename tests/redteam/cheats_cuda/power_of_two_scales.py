# SPDX-License-Identifier: MIT
# class: output
# problem: fp8_gemm
# device: cuda
# idea: rounds the scales to powers of two, so that tensor cores of other formats can apply them
# source: own
# expect: rejected
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    rounded = [torch.where(x == 0, x, x.sign() * torch.exp2(x.abs().log2().round())) for x in (a_scale, b_scale)]
    return c.copy_(product(a, b, *rounded))
