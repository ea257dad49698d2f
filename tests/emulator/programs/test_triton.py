# SPDX-License-Identifier: MIT
"""Kernels whose code generator nobody here wrote: Triton's for AMD, run on the emulator and compared with torch."""

from __future__ import annotations

import pytest

from tests.emulator.programs.conftest import Run

pytest.importorskip("triton", reason="the triton wheel compiles these programs")
running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


PROGRAMS = [f"triton {name}" for name in running.triton_names()]


@pytest.mark.parametrize("program", [      # with checks on, more of them run in test_silence.py
    pytest.param(program, marks=pytest.mark.slow if number % 8 else ()) for number, program in enumerate(PROGRAMS)])
def test_program(program: str, run: Run) -> None:
    assert run(program) is None
