# SPDX-License-Identifier: MIT
"""Programs without a fault: whatever compilers make of them, no check may find anything, nor change a result."""

from __future__ import annotations

import json

import pytest

from tests.emulator.programs.conftest import Run

pytest.importorskip("triton", reason="the triton wheel compiles these programs")
running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")

# What a program does on purpose.
FOUND = {"unaligned": {"misaligned"}}
PROGRAMS = [*(f"triton {name}" for name in running.triton_names()),
            *(f"hip {name} {level}" for name in running.hip_names() for level in running.LEVELS)]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("program", PROGRAMS)
def test_checks_are_silent(program: str, run_checked: Run) -> None:
    result, *findings = (run_checked(program) or "").split("\n")
    assert result == ""
    found = [json.loads(finding) for finding in findings]
    unexpected = [finding["text"] for finding in found if finding["check"] not in FOUND.get(program.split()[1], ())]
    assert unexpected == []
    assert {finding["check"] for finding in found} == FOUND.get(program.split()[1], set())
