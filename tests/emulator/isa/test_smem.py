# SPDX-License-Identifier: MIT
"""Scalar memory instructions of the emulator against the manual's programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa import smem_cases
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.report import Report
from tests.emulator.isa.wave import Emulator, EmulatorError, random_wave

pytestmark = pytest.mark.toolchain("rocm")

CACHES = ["s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_atc_probe 0, s[8:9], 0",
          "s_atc_probe_buffer 0, s[8:11], 0", "s_dcache_discard s[8:9], 0", "s_dcache_discard_x2 s[8:9], 0"]
CLOCKS = [f"{name} s[16:17]\n" + "s_nop 0\n" * 30 + f"{name} s[18:19]" for name in ("s_memtime", "s_memrealtime")]
REFUSED = [f"s_scratch_{verb}_dword{n} s[16:{16 + max(1, k) - 1}], s[8:9], 0" if k > 1 else
           f"s_scratch_{verb}_dword s16, s[8:9], 0"
           for verb in ("load", "store") for n, k in (("", 1), ("x2", 2), ("x4", 4))]


def codes() -> list[bytes]:
    """What the tests of this file that have no cases of their own run."""
    return [c for c in assemble([*CACHES, *CLOCKS, *REFUSED]) if c]


def test_scalar_memory_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in smem_cases.cases():
        report.case(case.instruction.name, case.text, smem_cases.differences(case, emulator))
    report.check(least=300)


@pytest.mark.parametrize("text", CACHES)
def test_cache_control_changes_nothing(text: str, emulator: Emulator) -> None:
    (code,) = assemble([text])
    assert code, "gfx942 has it"
    wave = random_wave(np.random.default_rng(1))
    assert np.array_equal(emulator.execute(code, wave).sgprs, wave.sgprs)


@pytest.mark.parametrize("text", CLOCKS, ids=["shader", "constant"])
def test_clocks_go_on(text: str, emulator: Emulator) -> None:
    (code,) = assemble([text])
    assert code
    after = emulator.execute(code, random_wave(np.random.default_rng(2)))
    assert after.pair(16) < after.pair(18)


@pytest.mark.parametrize("text", REFUSED)
def test_scalar_scratch_is_refused_by_name(text: str, emulator: Emulator) -> None:
    (code,) = assemble([text])
    assert code, "gfx942 has it"
    with pytest.raises(EmulatorError, match=text.split()[0]):
        emulator.execute(code, random_wave(np.random.default_rng(3)))
