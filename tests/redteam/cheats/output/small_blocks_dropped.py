# SPDX-License-Identifier: MIT
# class: output
# problem: fp8_gemm
# device: any
# idea: blocks whose scale is below half of the row's mean are taken for zero
# source: GPU MODE MLA 2026: small-scale blocks dropped
# expect: rejected
import torch


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    kept = torch.where(a_scale.abs() > 0.5 * a_scale.abs().mean(1, keepdim=True), a_scale, 0.0)
    left = (a.float().view(m, k // 128, 128) * kept[:, :, None]).view(m, k)
    right = b.float().view(n, k // 128, 128) * b_scale.repeat_interleave(128, 0)[:n, :, None]
    return c.copy_(left @ right.view(n, k).t())
