# SPDX-License-Identifier: MIT
"""Audits of whole problems, case by case, for tests that lie in several files so that they run side by side."""

from __future__ import annotations

from typing import Any

import pytest

from scoring.judge.audit import AuditRow, audit_case
from scoring.record import Case
from tests.problems.folders import problem

AFFORDABLE = 10**10           # FLOP of a benchmark case
QUICK = (3 * 10**8, 4 * 10**6)        # FLOP and bytes of a case that every test run audits


def affordable(*names: str) -> list[Any]:
    """(problem, case) of every test case and of benchmark cases up to AFFORDABLE, as parameters of a test. Those beyond
    QUICK are marked slow. The others take many minutes: `python -m scoring audit` has them."""
    cases = [
        (name, case, problem(name).binding.flops(case.params), problem(name).binding.bytes_moved(case.params))
        for name in names for case in problem(name).cases
    ]
    return [
        pytest.param(name, case, marks=() if flops <= QUICK[0] and moved <= QUICK[1] else pytest.mark.slow)
        for name, case, flops, moved in cases if case.group == "tests" or flops <= AFFORDABLE
    ]


def misjudged(name: str, case: Case) -> list[AuditRow]:
    """Rows of a case that are not good."""
    return [row for row in audit_case(problem(name), case, device="cpu") if not row.good]
