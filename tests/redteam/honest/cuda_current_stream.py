# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: makes a stream of its own the current one for the call, and puts the old one back
# source: patterns of accepted GPU MODE submissions
import torch

STREAM = []


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    if not STREAM:
        STREAM.append(torch.cuda.Stream(priority=-1))
    ours, before = STREAM[0], torch.cuda.current_stream()
    ours.wait_stream(before)
    torch.cuda.set_stream(ours)
    try:
        c = data[4].copy_(product(*data[:4]))
    finally:
        torch.cuda.set_stream(before)
        before.wait_stream(ours)
    return c
