# SPDX-License-Identifier: MIT
# class: output
# problem: fp8_gemm
# device: any
# idea: scales and dequantised operands in bf16
# source: KernelGuard's precision rules
# expect: rejected


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    left = a.bfloat16().view(m, k // 128, 128) * a_scale.bfloat16()[:, :, None]
    right = b.bfloat16().view(n, k // 128, 128) * b_scale.bfloat16().repeat_interleave(128, 0)[:n, :, None]
    return c.copy_(left.view(m, k) @ right.view(n, k).t())
