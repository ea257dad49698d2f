# SPDX-License-Identifier: MIT
# class: output
# problem: fp8_gemm
# device: cuda
# idea: multiplies the scales into bf16: three decimal digits of every product are gone
# source: KernelBench-Hard; catalogue 3.1
# expect: rejected


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    left = dequantised(a, a_scale).bfloat16()
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)]).bfloat16()
    return c.copy_(left @ right.t())
