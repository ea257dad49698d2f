# SPDX-License-Identifier: MIT
"""The block-scaled fp8 product in high precision, and wrong answers to it: shared by fp8_gemm and amd_fp8_mm.

Layouts are the problems' affair; here matrices are logical, with any strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from utils import CHUNK, Mutant, reference_dtype, sample_positions

K_BLOCK = 128                 # columns of K that share one scale
N_BLOCK = 128                 # rows of B that share one scale

Case = Mapping[str, Any]


def dequantise(x: Tensor, scale: Tensor) -> Tensor:
    """[rows, k] = fp8 x [rows, k] times scale [rows, k/128] (fp32), one scale per row and block of 128 columns."""
    rows, k = x.shape
    dtype = reference_dtype(x.device)
    blocks = x.to(dtype).reshape(rows, k // K_BLOCK, K_BLOCK)
    return blocks.mul_(scale.to(dtype)[:, :, None]).reshape(rows, k)


def block_scaled_product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, index: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Tensor]:
    """(values, magnitude) of the dequantised product, both fp32: sum_k a·b and sum_k |a|·|b|, scales included.

    a fp8 [m, k], b fp8 [n, k] (any strides), a_scale fp32 [m, k/128], b_scale fp32 [ceil(n/128), k/128]. ``index``
    is (rows [r, 1], columns [c]) or None for all. Computed in ``reference_dtype``, fp64 as a rule, in chunks; stored in
    fp32, whose rounding (2^-24) is far below every bound that uses them.
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


# ---- wrong answers --------------------------------------------------------------------------------------------------

def _data(function: Callable[..., tuple[Tensor, ...]]) -> Callable[[Case, Any], Any]:
    """Lift a change of (a, b, a_scale, b_scale) to one of a problem's data."""
    return lambda case, data: (*function(*data[:4]), data[4])


def _output(function: Callable[[Any, Tensor], Tensor]) -> Callable[[Case, Any, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """Lift a change of c, given data, to one of a problem's outputs."""
    return lambda case, data, outputs: (function(data, outputs[0]),)


def _first_blocks(count: int) -> Callable[[Case, Any], Any]:
    """K cut after ``count`` blocks of 128 (negative: counted from the end)."""
    def cut(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> tuple[Tensor, ...]:
        blocks = count if count > 0 else a_scale.shape[1] + count
        return a[:, : blocks * K_BLOCK], b[:, : blocks * K_BLOCK], a_scale[:, :blocks], b_scale[:, :blocks]
    return _data(cut)


def _half_of_k(case: Case, data: Any) -> Any:
    return _first_blocks(max(1, case["k"] // K_BLOCK // 2))(case, data)


def _copied(data: Any, c: Tensor) -> Tensor:
    """The codes of a as numbers, repeated until c is full."""
    flat = data[0][: -(-c.numel() // data[0].shape[1])].reshape(-1).to(c.dtype)
    return flat.repeat(-(-c.numel() // flat.numel()))[: c.numel()].view(c.shape)


def _blanked(rows: int, columns: int) -> Callable[[Any, Tensor], Tensor]:
    """c with its last ``rows`` rows or ``columns`` columns left at zero, the plausible content of fresh memory."""
    def blank(data: Any, c: Tensor) -> Tensor:
        c = c.clone()
        if rows:
            c[-rows:] = 0
        if columns:
            c[:, -columns:] = 0
        return c
    return blank


def _several_blocks(case: Case) -> bool:
    return case["k"] > K_BLOCK


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("c is zero", transform_outputs=_output(lambda data, c: torch.zeros_like(c))),
    "input_copied": Mutant("c holds the numbers of a", transform_outputs=_output(_copied)),
    "half_of_k_skipped": Mutant("only the first half of K", transform_data=_half_of_k, applies=_several_blocks),
    "last_k_block_skipped": Mutant(
        "all of K but its last 128", transform_data=_first_blocks(-1), applies=_several_blocks),
    "scales_ignored": Mutant(
        "every scale is 1",
        transform_data=_data(lambda a, b, sa, sb: (a, b, torch.ones_like(sa), torch.ones_like(sb)))),
    "scales_collapsed": Mutant(
        "one scale per row: that of its first block",
        transform_data=_data(lambda a, b, sa, sb: (a, b, sa[:, :1].expand_as(sa), sb[:, :1].expand_as(sb))),
        applies=_several_blocks),
    "scales_unsigned": Mutant(
        "the sign of every scale dropped, as a power-of-two exponent would",
        transform_data=_data(lambda a, b, sa, sb: (a, b, sa.abs(), sb.abs()))),
    "b_scale_of_first_columns": Mutant(
        "every 128 columns use the first ones' scales",
        transform_data=_data(lambda a, b, sa, sb: (a, b, sa, sb[:1].expand_as(sb))),
        applies=lambda case: case["n"] > N_BLOCK),
    "last_rows_not_computed": Mutant(
        "the last 32 rows left at zero", transform_outputs=_output(_blanked(32, 0))),
    "last_columns_not_computed": Mutant(
        "the last 64 columns left at zero", transform_outputs=_output(_blanked(0, 64))),
}
