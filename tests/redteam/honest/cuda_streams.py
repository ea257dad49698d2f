# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: two streams of its own, forked from the current one and joined by events before the return
# source: patterns of accepted GPU MODE submissions
import torch

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
    start, current = torch.cuda.Event(), torch.cuda.current_stream()
    start.record(current)
    middle = len(a) // 2
    for stream, rows in zip(STREAMS, (slice(0, middle), slice(middle, len(a))), strict=True):
        stream.wait_event(start)
        with torch.cuda.stream(stream):
            if rows.stop > rows.start:
                c[rows].copy_(product(a[rows], b, a_scale[rows], b_scale))
            done = torch.cuda.Event()
            done.record(stream)
        current.wait_event(done)
    return c
