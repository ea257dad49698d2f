# SPDX-License-Identifier: MIT
"""LDS instructions of the emulator against the manual's programs."""

from __future__ import annotations

from tests.emulator.isa import ds_cases, memory_cases
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator


def test_lds_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in ds_cases.cases():
        report.case(case.instruction.name, case.text, memory_cases.differences(case, emulator))
    report.check(least=600)
