# SPDX-License-Identifier: MIT
"""The block-scaled fp8 product in fp64, and wrong answers to it: shared by fp8_gemm and amd_fp8_mm.

Layouts are the problems' affair; here matrices are logical, with any strides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from utils import CHUNK, sample_positions

K_BLOCK = 128                 # columns of K that share one scale
N_BLOCK = 128                 # rows of B that share one scale


def dequantise(x: Tensor, scale: Tensor) -> Tensor:
    """fp64 [rows, k] = fp8 x [rows, k] times scale [rows, k/128] (fp32), one scale per row and block of 128 columns."""
    rows, k = x.shape
    blocks = x.to(torch.float64).reshape(rows, k // K_BLOCK, K_BLOCK)
    return blocks.mul_(scale.double()[:, :, None]).reshape(rows, k)


def block_scaled_product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, index: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Tensor]:
    """(values, magnitude) of the dequantised product, both fp32: sum_k a·b and sum_k |a|·|b|, scales included.

    a fp8 [m, k], b fp8 [n, k] (any strides), a_scale fp32 [m, k/128], b_scale fp32 [ceil(n/128), k/128]. ``index``
    is (rows [r, 1], columns [c]) or None for all. Computed in fp64 in chunks; stored in fp32, whose rounding (2^-24)
    is far below every bound that uses them.
    """
    m, k = a.shape
    device = a.device
    rows = torch.arange(m, device=device) if index is None else index[0].flatten().to(device)
    columns = torch.arange(b.shape[0], device=device) if index is None else index[1].flatten().to(device)
    values = torch.empty(len(rows), len(columns), device=device)
    magnitude = torch.empty_like(values)
    step = max(1, 2 * CHUNK // k)
    for c in range(0, len(columns), step):
        column = columns[c : c + step]
        b_part = dequantise(_take(b, column), b_scale[column // N_BLOCK])
        b_size = b_part.abs()
        for r in range(0, len(rows), step):
            row = rows[r : r + step]
            a_part = dequantise(_take(a, row), a_scale[row])
            values[r : r + step, c : c + step] = a_part @ b_part.T
            magnitude[r : r + step, c : c + step] = a_part.abs_() @ b_size.T
    return values, magnitude


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of an fp8 matrix: torch gathers bytes on every device, fp8 not on all."""
    return x.view(torch.uint8).index_select(0, rows).view(x.dtype)


def sample_matrix(m: int, n: int, sample: int, seed: int, device: torch.device) -> tuple[Tensor, ...] | None:
    """Index (rows [r, 1], columns [c]) of about ``sample`` rows and 8·``sample`` columns; None if that is all."""
    rng = torch.Generator().manual_seed(seed)
    rows = sample_positions(m, sample, 64, rng)
    columns = sample_positions(n, 8 * sample, N_BLOCK, rng)
    if len(rows) == m and len(columns) == n:
        return None
    return rows[:, None].to(device), columns.to(device)
