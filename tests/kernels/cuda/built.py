# SPDX-License-Identifier: MIT
"""The tree's kernels as nvcc and ptxas make them, for tests of what these say and of the machine code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import backends
from backends.base import ToolchainMissing
from backends.source import KernelSource
from backends.toolchain import LOG

ROOT = Path(__file__).resolve().parents[3]


def built(kernel: str, arch: str = "sm_90a", **defines: int) -> tuple[str, Path]:
    """(the compilers' log, library) of ``problem/variant``; skips where there is no compiler.

    Through the compile cache: what the test matrix has built is not built again.
    """
    backend = backends.get("cuda")
    source = KernelSource.read(ROOT / "kernels/cuda" / f"{kernel}.cu", ROOT)
    try:
        binary = backend.compile(source, backend.target(arch), defines)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    return (binary.path.parent / LOG).read_text(), binary.path


def bodies(library: Path, name: str) -> list[str]:
    """Machine code of the device functions whose mangled name contains ``name``; skips where there is no cuobjdump."""
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/cu*/bin/cuobjdump"))
    tool = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or (str(wheels[-1]) if wheels else None)
    if tool is None:
        pytest.skip("no cuobjdump: not in $CUOBJDUMP, on the path or in a wheel")
    sass = subprocess.run([tool, "-sass", str(library)], capture_output=True, text=True, timeout=60, check=True).stdout
    return [body for body in re.split(r"Function : ", sass)[1:] if name in body.split("\n", 1)[0]]


def spills(log: str) -> list[tuple[str, str, str]]:
    """(stack, spill stores, spill loads) in bytes, per device function."""
    return re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
