# SPDX-License-Identifier: MIT
# class: deferred
# problem: fp8_gemm
# device: cuda
# idea: a host thread launches the work after the call has returned
# source: CUDA-L1's defence notes; catalogue 3.5
import threading

import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    *inputs, c = data
    stream = torch.cuda.Stream()

    def work():
        with torch.cuda.stream(stream):
            c.copy_(product(*inputs))

    threading.Timer(1e-3, work).start()
    return c
