# SPDX-License-Identifier: MIT
"""Wrong answers that the check of rmsnorm must refuse in every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rows import last_columns, zeros
from utils import Mutant


def _centred(case: Mapping[str, Any], data: Any) -> Any:
    x, weight, eps = data
    return (x.float() - x.float().mean(1, keepdim=True)).to(x.dtype), weight, eps


def _last_not_summed(case: Mapping[str, Any], data: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, _weight, eps = data
    squares = x.double().square()
    right = squares.mean(1, keepdim=True) + eps
    wrong = squares[:, :-8].sum(1, keepdim=True) / x.shape[1] + eps
    return ((outputs[0].double() * torch.sqrt(right / wrong)).to(outputs[0].dtype),)


MUTANTS = {
    "zeros": zeros(),
    "last_columns_not_computed": last_columns(8),
    "last_columns_not_summed": Mutant(
        "the last 8 columns left out of the sum", transform_outputs=_last_not_summed,
        applies=lambda case: case["width"] <= 1000),
    "mean_subtracted": Mutant("the mean subtracted first, as LayerNorm does", transform_data=_centred),
    "epsilon_left_out": Mutant(
        "eps is 0", transform_data=lambda case, data: (data[0], data[1], 1e-30), applies=lambda case: case["rows"] > 1),
    "weight_ignored": Mutant(
        "every weight is 1", transform_data=lambda case, data: (data[0], torch.ones_like(data[1]), data[2])),
}
