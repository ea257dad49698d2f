# SPDX-License-Identifier: MIT
"""Wrong answers that the check of gelu must refuse in every case."""

from __future__ import annotations

from rows import last_columns, zeros
from utils import Mutant

MUTANTS = {
    "zeros": zeros(),
    "other_form": Mutant(
        "erf for tanh and tanh for erf",
        transform_data=lambda case, data: (data[0], "tanh" if data[1] == "erf" else "erf")),
    "relu": Mutant("max(x, 0)", transform_outputs=lambda case, data, outputs: (outputs[0].clamp(min=0),)),
    "copied": Mutant("y is x", transform_outputs=lambda case, data, outputs: (data[0].clone(),)),
    "tail_not_computed": last_columns(8, lambda case: case["n"] >= 1000),
}
