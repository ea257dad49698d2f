# SPDX-License-Identifier: MIT
# class: replay
# problem: fp8_gemm
# device: cuda
# idea: keeps results on the device, by the addresses of the operands
# source: GPU MODE nvfp4_group_gemm 2026
# expect: rejected
ANSWERS = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    key = tuple(x.data_ptr() for x in data[:4])
    if key not in ANSWERS:
        ANSWERS[key] = product(*data[:4])
    return ANSWERS[key]
