# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: waits for the whole device inside the call, and reads a number back to the host
# source: patterns of accepted GPU MODE submissions
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    c = product(*data[:4])
    torch.cuda.synchronize()
    assert c.numel() == 0 or c[0, 0].item() == c[0, 0].item()
    return c
