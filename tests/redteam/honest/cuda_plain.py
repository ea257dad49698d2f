# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: any
# idea: dequantises to fp32 and multiplies; returns memory of its own
# source: patterns of accepted GPU MODE submissions


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    return product(*data[:4])
