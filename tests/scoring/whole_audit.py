# SPDX-License-Identifier: MIT
"""Audits of whole problems, for tests that lie in several files so that they run side by side."""

from __future__ import annotations

from typing import Any

from scoring.audit import AuditRow, audit
from tests.problems.folders import problem

AFFORDABLE = 10**10           # FLOP of a benchmark case


def misjudged(name: str) -> list[AuditRow]:
    """Rows that are not good, of every test case and of benchmark cases up to AFFORDABLE; the others, which take many
    minutes, are left to `python -m scoring audit`."""
    def chosen(case: Any) -> bool:
        return case.group == "tests" or problem(name).binding.flops(case.params) <= AFFORDABLE

    return [row for row in audit([problem(name)], select=chosen, device="cpu") if not row.good]
