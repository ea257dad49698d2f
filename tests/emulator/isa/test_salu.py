# SPDX-License-Identifier: MIT
"""Scalar arithmetic of the emulator against the manual's programs."""

from __future__ import annotations

import pytest

from tests.emulator.isa import salu_cases
from tests.emulator.isa.compare import scalar_differences
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator, EmulatorError

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.parametrize("form", salu_cases.FORMATS)
def test_scalar_arithmetic(form: str, emulator: Emulator) -> None:
    report = Report()
    for case, right in salu_cases.expected(salu_cases.assembled(form)):
        try:
            found = emulator.execute(case.code, case.wave)
        except EmulatorError as error:
            report.wrong(case.instruction.name, case.text, [str(error)])
            continue
        problems = scalar_differences(right, found)
        if problems:
            problems.append("operands " + ", ".join(hex(o) for o in case.operands))
        report.case(case.instruction.name, case.text, problems)
    report.check(least=200)
