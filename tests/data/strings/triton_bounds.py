#!POPCORN leaderboard strings
#!POPCORN gpus MI300
# SPDX-License-Identifier: MIT
"""Triton that reads and writes one element behind its vectors."""

import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index <= count
    tl.store(out + index, tl.load(x + index, inside) + tl.load(y + index, inside), inside)


def custom_kernel(data: input_t) -> output_t:
    a, b, out = data
    half = a.shape[1] // 2
    first, second = (a[:, :half] @ b[:half]).contiguous(), (a[:, half:] @ b[half:]).contiguous()
    total = torch.empty_like(out, device="cuda")
    add[(triton.cdiv(out.numel(), 256),)](first, second, total, out.numel(), BLOCK=256)
    torch.cuda.synchronize()
    return total
