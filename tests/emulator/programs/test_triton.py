# SPDX-License-Identifier: MIT
"""Kernels whose code generator nobody here wrote: Triton's for AMD, run on the emulator and compared with torch."""

from __future__ import annotations

import pytest

from tests.emulator.programs.conftest import Run

pytest.importorskip("triton", reason="the triton wheel compiles these programs")
running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.sampled(12)        # more of them run with checks on (test_silence.py)
@pytest.mark.parametrize("program", [f"triton {name}" for name in running.triton_names()])
def test_program(program: str, run: Run) -> None:
    assert run(program) is None
