# SPDX-License-Identifier: MIT
"""Buffer instructions of the emulator against the manual's programs and its chapter on buffer addressing."""

from __future__ import annotations

from tests.emulator.isa import buffer_cases, format_cases, memory_cases
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator


def test_buffer_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in buffer_cases.cases():
        report.case(case.instruction.name, case.text, memory_cases.differences(case, emulator))
    report.check(least=400)


def test_buffer_formats(emulator: Emulator) -> None:
    report = Report()
    for case in format_cases.cases():
        report.case(case.name, case.text, format_cases.differences(case, emulator))
    report.check(least=1500)
