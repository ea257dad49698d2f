# SPDX-License-Identifier: MIT
"""Audits of whole problems, for tests that lie in several files so that they run side by side."""

from __future__ import annotations

from typing import Any

from scoring.audit import AuditRow, audit
from tests.problems.folders import problem

LONG = {"flash_attention_bwd", "flash_attention_fp8", "mla_decode_fp8"}
AFFORDABLE = 10**9            # FLOP


def misjudged(name: str) -> list[AuditRow]:
    """Rows that are not good, of every case; of the problems of LONG only tests and benchmarks up to AFFORDABLE, since
    `python -m scoring audit` takes many minutes for the others."""
    def chosen(case: Any) -> bool:
        return name not in LONG or case.group == "tests" or problem(name).binding.flops(case.params) <= AFFORDABLE

    return [row for row in audit([problem(name)], select=chosen, device="cpu") if not row.good]
