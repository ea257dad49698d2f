# SPDX-License-Identifier: MIT
"""Audits of whole problems, case by case, for tests that lie in several files so that they run side by side."""

from __future__ import annotations

from scoring.audit import AuditRow, audit_case
from scoring.model import Case
from tests.problems.folders import problem

AFFORDABLE = 10**10           # FLOP of a benchmark case


def affordable(*names: str) -> list[tuple[str, Case]]:
    """(problem, case) of every test case and of benchmark cases up to AFFORDABLE; the others, which take many minutes,
    are left to `python -m scoring audit`."""
    return [
        (name, case) for name in names for case in problem(name).cases
        if case.group == "tests" or problem(name).binding.flops(case.params) <= AFFORDABLE
    ]


def misjudged(name: str, case: Case) -> list[AuditRow]:
    """Rows of a case that are not good."""
    return [row for row in audit_case(problem(name), case, device="cpu") if not row.good]
