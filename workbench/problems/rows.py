# SPDX-License-Identifier: MIT
"""What problems share whose outputs are computed element by element or row by row: samples and common mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from utils import Mutant, sample_positions

Outputs = tuple[Tensor, ...]


def sample_rows(count: int, sample: int | None, seed: int, device: torch.device) -> tuple[Tensor, ...] | None:
    """Index of about ``sample`` of ``count`` rows, the first and the last among them; None for all of them."""
    if sample is None:
        return None
    rows = sample_positions(count, sample, 64, torch.Generator().manual_seed(seed))
    return None if len(rows) == count else (rows.to(device),)


def taken(x: Tensor, index: tuple[Tensor, ...] | None) -> Tensor:
    """The rows of ``x`` that ``index`` names, in fp64."""
    return (x if index is None else x[index[0]]).double()


def in_fp32(number: float) -> float:
    """The number that a kernel gets: its parameter is a C float."""
    return float(torch.tensor(number, dtype=torch.float32))


def zeros() -> Mutant:
    """All outputs are zero."""
    return Mutant("all zeros", transform_outputs=lambda case, data, outputs: tuple(map(torch.zeros_like, outputs)))


def last_columns(count: int, applies: Callable[[Mapping[str, Any]], bool] = lambda case: True) -> Mutant:
    """The last ``count`` elements of every row of the first output are zero: a vector loop without its tail."""
    def change(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
        first = outputs[0].clone()
        first[..., -count:] = 0
        return (first, *outputs[1:])
    return Mutant(f"the last {count} elements of a row left at zero", transform_outputs=change, applies=applies)


def lengths_of(batch: int, longest: int) -> list[int]:
    """Lengths of a batch before a seed permutes them: the longest, 0, 1, and others spread in between."""
    others = [1 + (longest - 1) * (i - 2) // (batch - 2) for i in range(3, batch)]
    return [longest, 0, min(1, longest), *others][:batch]


def tf32(x: Tensor) -> Tensor:
    """Rounded to 10 fraction bits, as the tensor cores' TF32 operands are."""
    bits = x.contiguous().view(torch.int32)
    return (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).view(torch.float32)
