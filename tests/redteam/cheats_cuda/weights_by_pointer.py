# SPDX-License-Identifier: MIT
# class: replay
# problem: fp8_gemm
# device: cuda
# idea: dequantises b once per address, as if weights never changed
# source: KernelGuard's telemetry; catalogue 3.2
# expect: rejected
WEIGHTS = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    key = b.data_ptr(), b.shape
    if key not in WEIGHTS:
        WEIGHTS[key] = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return c.copy_(dequantised(a, a_scale) @ WEIGHTS[key].t())
