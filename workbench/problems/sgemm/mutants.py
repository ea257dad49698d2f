# SPDX-License-Identifier: MIT
"""Wrong answers that the check of sgemm must refuse in every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rows import last_columns, tf32, zeros
from utils import Mutant

Outputs = tuple[Tensor, ...]


def _last_rows(case: Mapping[str, Any], data: Any, outputs: Outputs) -> Outputs:
    out = outputs[0].clone()
    out[-32:] = 0
    return (out,)


MUTANTS = {
    "zeros": zeros(),
    "last_k_slice_skipped": Mutant(
        "all of K but its last 8", transform_data=lambda case, data: (data[0][:, :-8], data[1][:-8], *data[2:]),
        applies=lambda case: case["k"] > 8),
    "last_rows_not_computed": Mutant("the last 32 rows are zero", transform_outputs=_last_rows),
    "last_columns_not_computed": last_columns(32),
    "beta_ignored": Mutant(
        "beta is 0", transform_data=lambda case, data: (*data[:4], 0.0), applies=lambda case: case["scale"] == "both"),
    "alpha_ignored": Mutant(
        "alpha is 1", transform_data=lambda case, data: (*data[:3], 1.0, data[4]),
        applies=lambda case: case["scale"] == "both"),
    "tf32_operands": Mutant(
        "both operands rounded to TF32", transform_data=lambda case, data: (tf32(data[0]), tf32(data[1]), *data[2:])),
}
