# SPDX-License-Identifier: MIT
"""Buffer instructions of the emulator against the manual's programs and its chapter on buffer addressing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa import buffer_cases, format_cases, memory_cases
from tests.emulator.isa.report import Report
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.wave import Emulator, random_wave

pytestmark = pytest.mark.toolchain("rocm")

CACHES = Snippets(["buffer_inv sc1", "buffer_inv sc0 sc1", "buffer_wbl2 sc1", "buffer_wbl2 sc0 sc1"])


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


@pytest.mark.parametrize("text", CACHES.texts)
def test_cache_control_changes_nothing(text: str, emulator: Emulator) -> None:
    before = random_wave(np.random.default_rng(4))
    assert memory_cases.state_differences(before, before, CACHES.run(text, before, emulator)) == []
