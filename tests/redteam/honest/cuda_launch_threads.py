# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: two host threads launch halves on streams of their own; joined on the host and on the device
# source: patterns of accepted GPU MODE submissions
from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(2)
STREAMS = []


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    if not STREAMS:
        STREAMS.extend(torch.cuda.Stream() for _half in range(2))
    current = torch.cuda.current_stream()

    def work(half):
        rows = slice(half * len(a) // 2, (half + 1) * len(a) // 2)
        with torch.cuda.stream(STREAMS[half]):
            if rows.stop > rows.start:
                c[rows].copy_(product(a[rows], b, a_scale[rows], b_scale))

    for stream in STREAMS:
        stream.wait_stream(current)
    list(POOL.map(work, range(2)))
    for stream in STREAMS:
        current.wait_stream(stream)
    return c
