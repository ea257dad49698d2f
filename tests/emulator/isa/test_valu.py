# SPDX-License-Identifier: MIT
"""Vector arithmetic of the emulator against the manual's programs: every instruction in every encoding it has."""

from __future__ import annotations

import collections
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.isa import valu_oracle
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.opcodes import of_format
from tests.emulator.isa.report import Report
from tests.emulator.isa.valu_cases import Case, cases
from tests.emulator.isa.wave import Emulator, EmulatorError

FORMATS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")


def generated(form: str) -> list[Case]:
    found = []
    for instruction in of_format(form):
        seed = zlib.crc32(f"{instruction.name} {form}".encode())
        found += list(cases(instruction, np.random.default_rng(seed)))
    return found


@pytest.mark.parametrize("form", FORMATS)
def test_vector_arithmetic(form: str, emulator: Emulator, implemented: set[str], tmp_path: Path) -> None:
    tried = generated(form)
    for case, code in zip(tried, assemble([c.text for c in tried], tmp_path), strict=True):
        case.code = code or b""
    possible = [c for c in tried if c.code]
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
    counts = collections.Counter(c.instruction.name for c in possible)
    assert counts, "the assembler knows none of them"
    report.check(least=10 * len(counts) // 2)
