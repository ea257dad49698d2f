# SPDX-License-Identifier: MIT
"""Vector arithmetic of the emulator against the manual's programs: every instruction in every encoding it has."""

from __future__ import annotations

import pytest

from tests.emulator.isa import valu_cases, valu_oracle
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator, EmulatorError

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.parametrize("form", valu_cases.FORMATS)
def test_vector_arithmetic(form: str, emulator: Emulator, implemented: set[str]) -> None:
    possible = valu_cases.assembled(form)
    report = Report()
    for case, right in valu_oracle.expected(possible):
        name = case.instruction.assembly
        if name not in implemented:
            report.missing(name)
            continue
        try:
            found = emulator.execute(case.code, case.wave)
        except EmulatorError as error:
            report.wrong(name, case.text, [str(error)])
            continue
        report.case(name, case.text, valu_oracle.mismatches(case, right, found))
    report.check(least=5 * len({c.instruction.name for c in possible}))
