# SPDX-License-Identifier: MIT
# class: phases
# problem: fp8_gemm
# device: cuda
# idea: sees that it is being captured and records nothing; plain calls are honest
# source: own
# expect: rejected
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    if torch.cuda.is_current_stream_capturing():
        return data[4]
    return data[4].copy_(product(*data[:4]))
