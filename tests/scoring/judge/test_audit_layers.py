# SPDX-License-Identifier: MIT
"""The whole audit of a language model's last layer and of the rotation before FP8 attention."""

from __future__ import annotations

import pytest

from scoring.record import Case
from tests.problems.folders import case_id
from tests.scoring.judge.whole_audit import affordable, misjudged

PROBLEMS = ("hadamard_quantize", "linear_cross_entropy")


@pytest.mark.parametrize(("name", "case"), affordable(*PROBLEMS), ids=case_id)
def test_every_case(name: str, case: Case) -> None:
    assert misjudged(name, case) == []
