# SPDX-License-Identifier: MIT
"""Wrong answers that the check of bias_mask_scale_add must refuse in every case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rows import last_columns, zeros
from utils import Mutant

Outputs = tuple[Tensor, ...]


def _formula(function: Callable[..., Tensor]) -> Callable[[Mapping[str, Any], Any, Outputs], Outputs]:
    """y by another formula of (x, residual, bias, mask, scale), rounded to fp16."""
    def change(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
        x, residual, bias, mask, scale = data
        return (function(x.float(), residual.float(), bias.float(), mask.float(), scale).half(),)
    return change


def _large(case: Mapping[str, Any]) -> bool:
    return bool(case["rows"] * case["width"] > 1)


MUTANTS = {
    "zeros": zeros(),
    "tail_not_computed": last_columns(1),
    "mask_multiplied": Mutant(
        "mask as a factor: 0 · inf is NaN", applies=_large,
        transform_outputs=_formula(lambda x, r, b, m, s: (x + b) * m * s + r)),
    "mask_ignored": Mutant(
        "everything kept", applies=_large,
        transform_outputs=_formula(lambda x, r, b, m, s: (x.nan_to_num() + b) * s + r)),
    "bias_ignored": Mutant(
        "no bias", transform_outputs=_formula(lambda x, r, b, m, s: torch.where(m != 0, x * s, 0) + r)),
    "scale_ignored": Mutant(
        "scale is 1", transform_outputs=_formula(lambda x, r, b, m, s: torch.where(m != 0, x + b, 0) + r)),
    "residual_scaled": Mutant(
        "residual scaled, too",
        transform_outputs=_formula(lambda x, r, b, m, s: (torch.where(m != 0, x + b, 0) + r) * s)),
    "rounded_twice": Mutant(
        "the masked sum rounded to fp16 before residual is added",
        applies=lambda case: case["rows"] * case["width"] > 100,
        transform_outputs=_formula(lambda x, r, b, m, s: torch.where(m != 0, (x + b) * s, 0).half().float() + r)),
}
