# SPDX-License-Identifier: MIT
# class: output
# problem: fp8_gemm
# device: any
# idea: one scale per row in place of one per block of 128
# source: GPU MODE fp8-mm; Sakana: block scales collapsed
# expect: rejected


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    n = b.shape[0]
    left = a.float() * a_scale.mean(1, keepdim=True)
    right = b.float() * b_scale.mean(1, keepdim=True).repeat_interleave(128, 0)[:n]
    return c.copy_(left @ right.t())
