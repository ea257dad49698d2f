# SPDX-License-Identifier: MIT
"""HIP programs for tests: built with ``warpwave-hipcc``, run on the emulated device as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.emulator import hipcc
from tests.emulator import runtime

DATA = runtime.DATA / "native"


def compile_program(out: Path, *words: str) -> Path:
    """The program ``out`` of sources in ``data/native`` and options; skips where there is no compiler."""
    runtime.built(hipcc.build.library)
    arguments = [str(DATA / word) if word.endswith(".hip") else word for word in words]
    assert hipcc.main([*arguments, "-o", str(out)]) == 0
    return out


def run(program: Path, *arguments: str, options: str = "checks=all", **environment: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100, check=False,
                            env={**os.environ, "WARPWAVE_EMULATOR": options, **environment})
    return result.returncode, result.stdout, result.stderr


def backends(*words: str) -> tuple[int, str, str]:
    """The same of ``python -m backends``."""
    result = subprocess.run([sys.executable, "-m", "backends", *words], capture_output=True, text=True, timeout=100,
                            check=False, cwd=runtime.ROOT)
    return result.returncode, result.stdout, result.stderr


def need(program: str) -> str:
    """The path of a program of the system; skips where it is not installed."""
    found = hipcc.shutil.which(program)
    if not found:
        pytest.skip(f"{program} is not installed")
    return found
