# SPDX-License-Identifier: MIT
"""Wrong answers that the check of wgmma_tile must refuse: what a wrong descriptor or map makes of a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rows import zeros
from utils import Mutant

Case = Mapping[str, Any]
_BYTES = {"tfloat": 4, "eight": 1}


def _bytes(case: Case) -> int:
    return int(case["k"]) * _BYTES.get(case["type"], 2)


def _random(case: Case) -> bool:
    return bool(case["pattern"] == "random")


def _a(change: Callable[[Case, Tensor], Tensor]) -> Callable[[Case, Any], Any]:
    """A change of a's bytes, [repeat, 64, row bytes]."""
    def transform(case: Case, data: Any) -> Any:
        a, b, pattern = data
        raw = a.view(torch.uint8).view(*a.shape[:2], -1).clone()
        return change(case, raw).contiguous().view(torch.uint8).view(a.dtype).view(a.shape), b, pattern
    return transform


def _swapped(case: Case, raw: Tensor) -> Tensor:
    order = torch.arange(64, device=raw.device)
    order[8:16] = order[8:16].flip(0)
    return raw[:, order]


def _unswizzled(case: Case, raw: Tensor) -> Tensor:
    """Pieces of 16 bytes where the swizzle of 32-byte rows puts them, read as if there were none."""
    pieces = raw.view(raw.shape[0], 64, -1, 2, 16)
    odd = torch.arange(64, device=raw.device) // 4 % 2 == 1
    return torch.where(odd[None, :, None, None, None], pieces.flip(3), pieces).view(raw.shape)


def _slice_left_out(case: Case, raw: Tensor) -> Tensor:
    raw[:, :, -32:] = 0
    return raw


def _not_cleared(case: Case, data: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (outputs[0] + outputs[0].roll(1, 2) + 1,)


def _bfloat_operands(case: Case, data: Any) -> Any:
    return (*(x.bfloat16().float() for x in data[:2]), data[2])


MUTANTS = {
    "zeros": zeros(),
    "rows_swapped": Mutant("eight rows of a in reverse order", transform_data=_a(_swapped)),
    "swizzle_undone": Mutant(
        "pieces of 16 bytes in the wrong half of 32", transform_data=_a(_unswizzled), applies=_random),
    "k_slice_left_out": Mutant(
        "the last 32 bytes of K", transform_data=_a(_slice_left_out), applies=lambda case: _random(case)),
    "accumulator_not_cleared": Mutant("sums that begin with something else", transform_outputs=_not_cleared),
    "transposed": Mutant(
        "rows and columns exchanged", applies=lambda case: case["n"] == 64,
        transform_outputs=lambda case, data, outputs: (outputs[0].transpose(1, 2).contiguous(),)),
    "bfloat_operands": Mutant(
        "TF32 operands cut to bf16", transform_data=_bfloat_operands,
        applies=lambda case: case["type"] == "tfloat" and _random(case)),
}
