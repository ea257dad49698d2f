# SPDX-License-Identifier: MIT
"""HIP programs with their host halves, by clang, unoptimised and optimised; each checks itself."""

from __future__ import annotations

import pytest

from tests.emulator.programs.conftest import Run

running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.parametrize("level", running.LEVELS)
@pytest.mark.parametrize("name", running.hip_names())
def test_program(name: str, level: str, run: Run) -> None:
    assert run(f"hip {name} {level}") is None
