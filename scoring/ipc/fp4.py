# SPDX-License-Identifier: MIT
"""Block-scaled products of 4-bit floats on the CPU, which torch has for GPUs only (``torch._scaled_mm``).

The values are those of E2M1, two in a byte, low half first. One scale belongs to 16 values of a row. Scales come in
tiles of 128 rows by 4 blocks, inside which row 32 i + j stands at [j, i] (cuBLAS, "1D block scaling factors layout").
"""

from __future__ import annotations

from typing import Any

import torch

BLOCK = 16
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def scaled_mm(torch_scaled_mm: Any, a: Any, b: Any, scale_a: Any = None, scale_b: Any = None, *rest: Any,
              **options: Any) -> Any:
    """``torch._scaled_mm``; for operands of 4-bit floats the product of what they stand for, in fp32.

    ``a`` packed [M, K / 2] row-major, ``b`` packed [K / 2, N] column-major, scales E4M3; the result is
    [M, N] of ``out_dtype``.
    """
    packed = getattr(torch, "float4_e2m1fn_x2", None)
    if packed is None or a.dtype is not packed:
        return torch_scaled_mm(a, b, scale_a, scale_b, *rest, **options)
    left, right = dequantize(a, scale_a), dequantize(b.t(), scale_b)
    product = left @ right.t()
    bias = options.get("bias")
    return (product if bias is None else product + bias).to(options.get("out_dtype") or torch.bfloat16)


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """fp32 [R, K] of packed E2M1 [R, K / 2] and the tiled scales of its rows."""
    table = torch.tensor([*_MAGNITUDES, *(-value for value in _MAGNITUDES)])
    codes = values.contiguous().view(torch.uint8)
    wide = torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], dim=-1).flatten(1)
    rows, blocks = wide.shape[0], -(-wide.shape[1] // BLOCK)
    tiles = scales.float().reshape(-(-rows // 128), -(-blocks // 4), 32, 4, 4)
    plain = tiles.permute(0, 3, 2, 1, 4).reshape(-(-rows // 128) * 128, -1)[:rows, :blocks]
    return wide * plain.repeat_interleave(BLOCK, dim=1)[:, : wide.shape[1]]
