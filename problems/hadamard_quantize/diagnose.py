# SPDX-License-Identifier: MIT
"""Likely mistakes in hadamard_quantize, for the judge's diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from block_scales import spread_out
from reference import coded, expected, turned

AXES = {"codes": ("batch", "token", "head", "column"), "scale": ("batch", "block", "head")}
ROWS = 32

Values = tuple[Tensor, Tensor]


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(batch, token, head) vectors of a few rows around ``wrong`` and ``others``, positions in the output ``name``."""
    rows = torch.unique(torch.cat([wrong[: 2 * ROWS // 3, :3], others[: ROWS // 3, :3]]), dim=0)
    if name == "scale":                          # blocks are no tokens: the first of each batch and head
        rows = torch.unique(rows * torch.tensor([1, 0, 1], device=rows.device), dim=0)
    return rows.unbind(1)


def hypotheses(
    case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...],
) -> Iterator[tuple[str, str, Values]]:
    """(name, sentence, (codes at ``index``, scales)) of each mistake."""
    x, signs, rotated, _, largest = data
    scale = expected(data, index=index)[1].values
    each = spread_out(scale, x.shape[1]).expand(*x.shape[:3], 1)[index]
    y = turned(x[index], signs, rotated)

    def values(v: Tensor, scale: Tensor = scale) -> Values:
        return coded(v, largest).float(), scale

    yield "scale_inverted", "the scale is largest / max |y|: its inverse", values(y / each, 1 / scale)
    yield "multiplied", "codes are y times the scale, not y over it", values(y * each)
    yield "minus_zero", "zeros of negative numbers have code 0x80", _with_minus_zero(y / each, values(y / each))
    if rotated:
        yield "halves_swapped", "the two halves of each row are swapped after the rotation", values(
            y.roll(y.shape[-1] // 2, -1) / each)
        order = _bit_reversed(y.shape[-1], y.device)
        yield "bit_reversed", "columns come in bit-reversed order", values(y[..., order] / each)


def _with_minus_zero(v: Tensor, made: Values) -> Values:
    return torch.where((made[0] == 0) & (v < 0), 128.0, made[0]), made[1]


def _bit_reversed(size: int, device: torch.device) -> Tensor:
    bits = size.bit_length() - 1
    return torch.tensor([int(f"{i:0{bits}b}"[::-1], 2) for i in range(size)], device=device)
