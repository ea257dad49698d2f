# SPDX-License-Identifier: MIT
"""FLAT, GLOBAL and SCRATCH instructions of the emulator against the manual's programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa import flat_cases, memory_cases
from tests.emulator.isa.flat_cases import LDS_APERTURE, OWN_APERTURE
from tests.emulator.isa.memory_cases import ADDRESS_AT, BASE, MEMORY
from tests.emulator.isa.report import Report
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.wave import Emulator

pytestmark = pytest.mark.toolchain("rocm")

MIXED = "scratch_store_dwordx4 off, v[8:11], off offset:64\nflat_load_dword v20, v[4:5]"
SUM = "global_atomic_add_f32 v20, v[4:5], v8, off sc0"
SNIPPETS = Snippets([MIXED, SUM])


def test_flat_global_and_scratch_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in flat_cases.cases():
        report.case(case.instruction.name, case.text, memory_cases.differences(case, emulator))
    report.check(least=1000)


def test_lanes_of_one_flat_load_may_mean_different_memories(emulator: Emulator) -> None:
    rng = np.random.default_rng(8)
    before = memory_cases.new_wave(rng, 0x7FFF_FFFF_0FFF_FFFF, 1024)
    MEMORY[:1024] = rng.integers(0, 256, 1024, dtype=np.uint8)
    kind, where = rng.integers(0, 3, 64), rng.integers(0, 4, 64) * 4
    bases = np.array([BASE + 512, LDS_APERTURE + 256, OWN_APERTURE + 64], dtype=np.uint64)
    memory_cases.fill(before, "v", ADDRESS_AT, bases[kind] + where.astype(np.uint64), 64)
    right = before.copy()
    for lane in np.flatnonzero(before.exec):
        own = np.ascontiguousarray(before.vgprs[8:12, lane]).view(np.uint8)
        source, first = ((MEMORY, 512), (before.lds, 256), (own, 0))[kind[lane]]
        at = first + int(where[lane])
        right.vgprs[20][lane] = source[at:at + 4].view("<u4")[0]
    assert memory_cases.state_differences(before, right, SNIPPETS.run(MIXED, before, emulator)) == []


def test_sums_in_memory_keep_denormals_in_every_mode(emulator: Emulator) -> None:
    """LLVM: FeatureMemoryAtomicFAddF32DenormalSupport, which gfx940 and later have."""
    before = memory_cases.new_wave(np.random.default_rng(9), (1 << 64) - 1)
    before.mode = 0x300
    words = MEMORY[:256].view("<u4")
    words[:], before.vgprs[8] = 0x00000005, 0x00000003
    memory_cases.fill(before, "v", ADDRESS_AT, (BASE + np.arange(64) * 4).astype(np.uint64), 64)
    after = SNIPPETS.run(SUM, before, emulator)
    assert (words == 8).all()
    assert (after.vgprs[20] == 5).all()
