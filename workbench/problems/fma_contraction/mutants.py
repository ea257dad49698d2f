# SPDX-License-Identifier: MIT
"""Wrong answers that the check of fma_contraction must refuse in every case."""

from __future__ import annotations

from rows import zeros
from utils import Mutant

MUTANTS = {
    "zeros": zeros(),
    "contracted_the_other_way": Mutant(
        "fused for unfused, and unfused for fused",
        transform_data=lambda case, data: (*data[:3], "unfused" if data[3] == "fused" else "fused")),
    "last_term_left_out": Mutant(
        "dots without their last term", transform_data=lambda case, data: (data[0][:, :-1], data[1][:, :-1], *data[2:]),
        applies=lambda case: case["n"] > 1),
    "coefficients_reversed": Mutant(
        "the coefficient of x^7 first", transform_data=lambda case, data: (*data[:2], data[2].flip(0), data[3])),
}
