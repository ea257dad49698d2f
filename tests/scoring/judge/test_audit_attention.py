# SPDX-License-Identifier: MIT
"""The whole audit of attention."""

from __future__ import annotations

import pytest

from scoring.record import Case
from tests.problems.folders import case_id
from tests.scoring.judge.whole_audit import affordable, misjudged

PROBLEMS = ("flash_attention", "flash_attention_bwd", "flash_attention_fp8", "flash_attention_varlen")


@pytest.mark.parametrize(("name", "case"), affordable(*PROBLEMS), ids=case_id)
def test_every_case(name: str, case: Case) -> None:
    assert misjudged(name, case) == []
