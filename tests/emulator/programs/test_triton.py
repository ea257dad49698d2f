# SPDX-License-Identifier: MIT
"""Kernels whose code generator nobody here wrote: Triton's, run on the emulators and compared with torch."""

from __future__ import annotations

import json

import pytest

from tests.emulator.programs.conftest import Run

pytest.importorskip("triton", reason="the triton wheel compiles these programs")
running = pytest.importorskip("tests.emulator.programs.running")

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.sampled(12)        # more of them run with checks on (test_silence.py)
@pytest.mark.parametrize("program", [f"triton {name}" for name in running.triton_names()])
def test_program(program: str, run: Run) -> None:
    assert run(program) is None


# What the emulated NVIDIA GPUs lack, and what a program really does: every warp reads what the first one then
# overwrites, and throws it away.
LACKS = {"library_f64": "'call.uni", "function_calls": "'call.uni", "tensor_descriptor_copy": "global scratch"}
FOUND = {"atomic_cas_lock": {"global-race"}}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("program", running.triton_names("H100"))
def test_program_on_an_emulated_nvidia_gpu(program: str, run_on_nvidia: Run) -> None:
    """Right, and no check finds anything."""
    result, *findings = (run_on_nvidia(f"triton {program}") or "").split("\n")
    if program in LACKS and result:
        assert LACKS[program] in result, result
        pytest.xfail(result)
    assert result == ""
    found = {finding["check"]: finding["text"] for finding in map(json.loads, findings)}
    assert set(found) == FOUND.get(program, set()), found
