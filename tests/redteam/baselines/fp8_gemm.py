# SPDX-License-Identifier: MIT
"""fp8_gemm: an honest call, what cheats on it are paid by: both operands dequantised to fp32."""


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    left = (a.float().view(m, k // 128, 128) * a_scale[:, :, None]).view(m, k)
    rows = b_scale.repeat_interleave(128, 0)[:n]
    right = (b.float().view(n, k // 128, 128) * rows[:, :, None]).view(n, k)
    return c.copy_(left @ right.t())
