# SPDX-License-Identifier: MIT
"""FLAT, GLOBAL and SCRATCH instructions of the emulator against the manual's programs."""

from __future__ import annotations

from tests.emulator.isa import flat_cases, memory_cases
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator


def test_flat_global_and_scratch_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in flat_cases.cases():
        report.case(case.instruction.name, case.text, memory_cases.differences(case, emulator))
    report.check(least=1000)
