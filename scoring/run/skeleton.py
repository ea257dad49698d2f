# SPDX-License-Identifier: MIT
"""What a new problem or kernel starts from: a working example to be changed, as texts by file name. Writes nothing."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path

from backends.base import Backend
from backends.source import KernelSource, Signature, kernels
from scoring.run.select import SelectionError

HOME = Path(__file__).parents[1] / "skeleton"
_FILES = ("task.yml", "task.py", "reference.py", "binding.py", "mutants.py", "kernel.h")
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def problem_files(name: str, problems: Path, evaluator: Path) -> dict[Path, str]:
    """All files of a new problem below the folder ``problems``, with a kernel for the CPU beside it.

    ``evaluator``: the eval.py that a leaderboard runs. Raises ``SelectionError`` (2) for a name that C or Python cannot
    have, or that is taken.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise SelectionError(f"{name!r}: a problem is called like a C function: small letters, digits and _", 2)
    folder = problems / name
    if folder.exists():
        raise SelectionError(f"{folder} is there already", 2)
    values = {"NAME": name, "GUARD": f"WARPWAVE_{name.upper()}",
              "EVAL": Path(os.path.relpath(evaluator, folder)).as_posix()}
    return {folder / file: _filled(file, values) for file in _FILES}


def kernel_file(root: Path, problem: str, variant: str, backend: Backend, like: str | None) -> tuple[Path, str, str]:
    """The file of a new kernel of the checkout ``root``, its text, and what it starts from in a few words.

    That is the example of ``problem_files`` where the problem still has its prototype, else a copy of ``like`` or of
    the shortest kernel of the same backend, else a stub. Raises ``SelectionError`` (2) and ``SourceError``.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", variant, re.ASCII):
        raise SelectionError(f"{variant!r}: a kernel is called by letters, digits and _", 2)
    header = root / "problems" / problem / "kernel.h"
    if not header.is_file():
        raise SelectionError(f"{header.parent}: no kernel.h there, so no kernel can be bound to it", 2)
    path = root / "kernels" / backend.language / problem / f"{variant}{backend.suffix}"
    if path.exists():
        raise SelectionError(f"{path} is there already", 2)
    signature = Signature.read(header)
    there = kernels(root, backend.language, problem)
    if like is not None:
        chosen = [each for each in there if each.stem == like]
        if not chosen:
            names = ", ".join(each.stem for each in there) or "none"
            raise SelectionError(f"no {backend.name} kernel of {problem} is called {like!r}; there are: {names}", 2)
        return path, _copy(chosen[0], root, variant), f"a copy of {chosen[0].stem}"
    if signature.params == _example().params:
        suffix = "cpp" if backend.on_host else "gpu"
        values = {"NAME": signature.symbol, "ARCHES": " ".join(_arches(backend))}
        return path, _filled(f"kernel.{suffix}", values), "an example that works"
    if there:
        shortest = min(there, key=lambda each: each.stat().st_size)
        return path, _copy(shortest, root, variant), f"a copy of {shortest.stem}"
    return path, _stub(signature, backend), "a stub that supports no shape yet"


def _filled(file: str, values: Mapping[str, str]) -> str:
    text = (HOME / f"{file}.in").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _example() -> Signature:
    return Signature.parse(_filled("kernel.h", {"NAME": "example", "GUARD": "EXAMPLE"}), HOME / "kernel.h")


def _arches(backend: Backend) -> tuple[str, ...]:
    """The architectures that the backend's usual GPUs have."""
    return tuple(dict.fromkeys(backend.target(name).arch for name in reversed(backend.default_gpus())))


def _copy(path: Path, root: Path, variant: str) -> str:
    """The text of a kernel, which says in ``list`` where it comes from."""
    source = KernelSource.read(path, root)
    line = f"//!KERNEL summary {variant}, started from {source.variant}"
    if not source.summary:
        return source.text
    return re.sub(r"^//!KERNEL summary .*$", lambda _match: line, source.text, count=1, flags=re.MULTILINE)


def _stub(signature: Signature, backend: Backend) -> str:
    """A kernel that compiles and says that it supports no shape."""
    gpu = not backend.on_host
    params = ",\n    ".join(f"{param.ctype} {param.name}" for param in signature.params)
    unused = "\n".join(f"    (void){param.name};" for param in signature.params)
    arches = f"//!KERNEL arch {' '.join(_arches(backend))}\n" if gpu else ""
    how = "    // Launch: LAUNCH(kernel, grid, block, shared_bytes, queue)(…); return LAUNCH_STATUS();\n" if gpu else ""
    return f"""// SPDX-License-Identifier: MIT
//!KERNEL summary not written yet
{arches}//
// What it does, its tiles, threads and shared memory, what it supports and what limits it.
#include "kernel.h"
#include "{'launch' if gpu else 'status'}.h"

extern "C" int {signature.symbol}(
    {params}) {{
    // Return kUnsupportedShape, before any launch, for a shape that this kernel does not implement.
{how}{unused}
    return kUnsupportedShape;
}}
"""
