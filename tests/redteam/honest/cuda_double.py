# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: any
# idea: works in fp64, in place of the buffer that came with the data
# source: patterns of accepted GPU MODE submissions
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.double().view(rows, k // 128, 128) * scale.double()[:, :, None]).view(rows, k)


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return c.copy_(torch.mm(dequantised(a, a_scale), right.t()))
