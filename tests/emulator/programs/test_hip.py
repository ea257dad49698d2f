# SPDX-License-Identifier: MIT
"""HIP programs with their host halves, by clang, unoptimised and optimised; each checks itself."""

from __future__ import annotations

import pytest

from tests.emulator.programs.conftest import Run

running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.sampled(3)        # more of them run with checks on (test_silence.py)
@pytest.mark.parametrize("program", [f"hip {name} {level}" for name in running.hip_names() for level in running.LEVELS])
def test_program(program: str, run: Run) -> None:
    assert run(program) is None
