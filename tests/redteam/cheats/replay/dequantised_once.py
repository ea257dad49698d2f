# SPDX-License-Identifier: MIT
# class: replay
# problem: fp8_gemm
# device: any
# idea: b is dequantised once for each address and kept
# source: KernelGuard telemetry: weight-preprocessing cache
# expect: rejected

WEIGHTS = {}


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    key = b.data_ptr(), n, k
    if key not in WEIGHTS:
        right = b.float().view(n, k // 128, 128) * b_scale.repeat_interleave(128, 0)[:n, :, None]
        WEIGHTS[key] = right.view(n, k).t().contiguous()
    left = (a.float().view(m, k // 128, 128) * a_scale[:, :, None]).view(m, k)
    return c.copy_(left @ WEIGHTS[key])
