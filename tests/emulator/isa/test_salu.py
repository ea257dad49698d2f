# SPDX-License-Identifier: MIT
"""Scalar arithmetic of the emulator against the manual's programs."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.isa import salu_cases
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.compare import scalar_differences
from tests.emulator.isa.opcodes import of_format
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator, EmulatorError


@pytest.mark.parametrize("form", ["SOP1", "SOP2", "SOPC", "SOPK"])
def test_scalar_arithmetic(form: str, emulator: Emulator, tmp_path: Path) -> None:
    tried = []
    for instruction in of_format(form):
        tried += list(salu_cases.cases(instruction, np.random.default_rng(zlib.crc32(instruction.name.encode()))))
    for case, code in zip(tried, assemble([c.text for c in tried], tmp_path), strict=True):
        case.code = code or b""
    report = Report()
    for case, right in salu_cases.expected([c for c in tried if c.code]):
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
