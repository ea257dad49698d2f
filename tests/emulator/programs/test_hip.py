# SPDX-License-Identifier: MIT
"""HIP programs with their host halves, by clang, unoptimised and optimised; each checks itself."""

from __future__ import annotations

import pytest

from tests.emulator.programs.conftest import Run

running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


PROGRAMS = [f"hip {name} {level}" for name in running.hip_names() for level in running.LEVELS]


@pytest.mark.parametrize("program", [      # with checks on, more of them run in test_silence.py
    pytest.param(program, marks=pytest.mark.slow if number % 8 else ()) for number, program in enumerate(PROGRAMS)])
def test_program(program: str, run: Run) -> None:
    assert run(program) is None
