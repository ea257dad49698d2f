# SPDX-License-Identifier: MIT
"""LDS instructions of the emulator against the manual's programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa import ds_cases, fast, memory_cases
from tests.emulator.isa.floats import F32, F64
from tests.emulator.isa.memory_cases import ADDRESS_AT, DATA_AT
from tests.emulator.isa.report import Report
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.wave import Emulator

pytestmark = pytest.mark.toolchain("rocm")

SUMS = {"f32": "ds_add_f32 v4, v8", "f64": "ds_add_f64 v4, v[8:9]"}
SNIPPETS = Snippets(list(SUMS.values()))


def test_lds_instructions(emulator: Emulator) -> None:
    report = Report()
    for case in ds_cases.cases():
        report.case(case.instruction.name, case.text, memory_cases.differences(case, emulator))
    report.check(least=600)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", [0x3F0, 0x300, 0x3C0, 0x330])
def test_sums_in_lds_flush_denormals_as_mode_says(kind: str, mode: int, emulator: Emulator) -> None:
    """ISA reference, 11.3.1: MODE decides about denormals, and rounding is always to nearest."""
    fmt, size = (F32, 4) if kind == "f32" else (F64, 8)
    flushes = not mode >> (4 if kind == "f32" else 6) & 3
    rng = np.random.default_rng(mode)
    before = memory_cases.new_wave(rng, (1 << 64) - 1, 64 * size)
    before.mode = mode | 0xF                                    # MODE's rounding would be to zero
    smallest = 1 << fmt.mbits
    there, given = (rng.integers(0, 3 * smallest, 64, dtype=np.uint64) | rng.integers(0, 2, 64, dtype=np.uint64)
                    << np.uint64(fmt.width - 1) for _ in range(2))
    before.lds[:] = there.astype(f"<u{size}").view(np.uint8)
    before.vgprs[ADDRESS_AT] = np.arange(64) * size
    memory_cases.fill(before, "v", DATA_AT, given, fmt.width)
    flush = (lambda x: fast.flushed(fmt, x)) if flushes else (lambda x: x)
    right = before.copy()
    right.lds[:] = flush(fast.add(fmt, flush(there), flush(given))).astype(f"<u{size}").view(np.uint8)
    assert memory_cases.state_differences(before, right, SNIPPETS.run(SUMS[kind], before, emulator)) == []
