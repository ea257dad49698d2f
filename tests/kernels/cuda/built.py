# SPDX-License-Identifier: MIT
"""The tree's kernels as nvcc and ptxas make them, for tests of what these say and of the machine code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import backends
from backends.errors import ToolchainMissing
from backends.machine import document, files
from backends.machine.loops import loops
from backends.machine.model import Function
from backends.machine.overlap import Overlap, overlap
from backends.source import KernelSource
from backends.toolchain import LOG

ROOT = Path(__file__).resolve().parents[3]


def built(kernel: str, arch: str = "sm_90a", **defines: int) -> tuple[str, Path]:
    """(the compilers' log, library) of ``problem/variant``; skips where there is no compiler.

    Through the compile cache: what the test matrix has built is not built again.
    """
    backend = backends.get("cuda")
    root = next(each for each in (ROOT, ROOT / "workbench") if (each / f"kernels/cuda/{kernel}.cu").is_file())
    source = KernelSource.read(root / f"kernels/cuda/{kernel}.cu", root)
    try:
        binary = backend.compile(source, backend.target(arch), defines)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    return (binary.path.parent / LOG).read_text(), binary.path


def flags(kernel: str, defines: Mapping[str, object] | None = None) -> list[str]:
    """-D of what the directives of ``problem/variant`` say; ``defines`` override them, with values of any kind."""
    root = next(each for each in (ROOT, ROOT / "workbench") if (each / f"kernels/cuda/{kernel}.cu").is_file())
    source = KernelSource.read(root / f"kernels/cuda/{kernel}.cu", root)
    return [f"-D{name}={value}" for name, value in {**source.resolve(), **(defines or {})}.items()]


def functions(library: Path, name: str) -> list[Function]:
    """The device functions whose mangled name contains ``name``; skips where there is no disassembler."""
    try:
        return list(files.read(library, re.compile(re.escape(name))).functions)
    except ToolchainMissing as error:
        pytest.skip(str(error))


def bodies(library: Path, name: str) -> list[str]:
    """The machine code of the same functions as text, an instruction a line."""
    return ["\n".join(each.text for each in function.code) for function in functions(library, name)]


def has(function: Function, opcode: str) -> bool:
    """Whether an instruction's mnemonic starts with the pattern ``opcode``."""
    return any(re.match(opcode, each.opcode) for each in function.code)


def views(function: Function) -> list[Overlap]:
    """What runs beside wgmma's products, loop by loop."""
    found = [overlap(loop.code) for loop in document.shown(loops(function.code))]
    return [view for view in found if view is not None and view.waits]


def spills(log: str) -> list[tuple[str, str, str]]:
    """(stack, spill stores, spill loads) in bytes, per device function."""
    return re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
