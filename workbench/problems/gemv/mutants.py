# SPDX-License-Identifier: MIT
"""Wrong answers that the check of gemv must refuse in every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rows import last_columns, tf32, zeros
from utils import Mutant


def _without_last(count: int) -> Any:
    def change(case: Mapping[str, Any], data: Any) -> Any:
        a, x = data
        x = x.clone()
        x[-count:] = 0
        return a, x
    return change


MUTANTS = {
    "zeros": zeros(),
    "last_columns_not_summed": Mutant(
        "the last 4 columns left out", transform_data=_without_last(4), applies=lambda case: case["n"] >= 64),
    "last_rows_not_computed": last_columns(2),
    "tf32_operands": Mutant(
        "both operands rounded to TF32", transform_data=lambda case, data: (tf32(data[0]), tf32(data[1]))),
    "column_major": Mutant(
        "a read as if its columns were contiguous",
        transform_data=lambda case, data: (data[0].reshape(-1).view(case["n"], case["m"]).t(), data[1]),
        applies=lambda case: case["m"] > 1),
}
