# SPDX-License-Identifier: MIT
"""fp8 operands of attention: what shares a scale, how they are rotated and quantised.

Shared by flash_attention_fp8 and hadamard_quantize; imports torch only, as it is staged on a runner.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128                   # tokens that share a scale, where blocks do
SMALLEST = 1e-4               # magnitude that a scale is made for at least


def shared(x: Tensor, scales: str) -> tuple[int, int, int]:
    """The shape of the scales of x [batch, tokens, heads, dim]."""
    batch, tokens, heads, _ = x.shape
    shapes = {"tensor": (1, 1, 1), "head": (batch, 1, heads), "block": (batch, (tokens + BLOCK - 1) // BLOCK, heads)}
    if scales not in shapes:
        raise ValueError(f"unknown scales {scales!r}; there are {', '.join(shapes)}")
    return shapes[scales]


def spread_out(scale: Tensor, tokens: int) -> Tensor:
    """Scales as [batch or 1, tokens or 1, heads or 1, 1], one per token where blocks have them."""
    return (scale if scale.shape[1] == 1 else scale.repeat_interleave(BLOCK, 1)[:, :tokens]).unsqueeze(-1)


def levelled(x: Tensor, scales: str, rng: torch.Generator) -> Tensor:
    """What shares one of several scales larger or smaller by 2^U(1/4, 1/2), in turns along blocks and heads: neighbours
    differ by a factor of 1.4 to 2, so that no scale can stand for another one.
    """
    shape = shared(x, scales)
    if shape == (1, 1, 1):
        return x
    steps = [torch.arange(size, device=x.device).view(*(-1 if i == axis else 1 for i in range(3)))
             for axis, size in enumerate(shape)]
    signs = 1 - 2 * ((steps[0] + steps[1] + steps[2]) % 2)
    exponents = signs * (1 + torch.rand(shape, generator=rng, device=x.device)) / 4
    return x * spread_out(exponents.exp2(), x.shape[1])


def with_outliers(x: Tensor, rng: torch.Generator) -> Tensor:
    """0.1 % of all entries 10 to 100 times larger."""
    chosen = torch.rand(x.shape, generator=rng, device=x.device) < 1e-3
    return torch.where(chosen, x * (10 + 90 * torch.rand(x.shape, generator=rng, device=x.device)), x)


def hadamard(size: int, device: torch.device) -> Tensor:
    """Sylvester's matrix [size, size], orthonormal, fp32; ``size`` is a power of two."""
    matrix = torch.ones(1, 1, device=device)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix * size**-0.5


def quantise(x: Tensor, scales: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(codes of ``dtype`` in the shape of x, scales fp32): x is about codes · scales."""
    shape, largest = shared(x, scales), torch.finfo(dtype).max
    size = x.abs().amax(-1)                      # [batch, tokens, heads]
    if scales == "block":
        size = torch.nn.functional.pad(size, (0, 0, 0, -size.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK)).amax(2)
    else:
        size = size.amax(1, keepdim=True) if scales == "head" else size.amax().view(1, 1, 1)
    scale = (size.clamp_min(SMALLEST) / largest).view(shape).contiguous()
    codes = (x / spread_out(scale, x.shape[1])).clamp_(-largest, largest).to(dtype)
    return codes, scale
