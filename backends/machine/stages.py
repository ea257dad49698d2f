# SPDX-License-Identifier: MIT
"""What stands between source and machine code: PTX as handed to ptxas, and LLVM IR before and after optimisation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import _diagnostics, _process
from backends.base import Target
from backends.cuda import ptx_command
from backends.errors import BackendError, CompileError
from backends.machine.files import Wanted, short_names
from backends.source import KernelSource
from backends.toolchain import CompilingBackend

NAMES = ("ir", "ptx", "asm")
PTX = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b[^;{]*?([A-Za-z_$][\w$]*)\s*\(", re.MULTILINE)
IR = re.compile(r'^define [^\n]*@"?([\w$.]+)"?\(', re.MULTILINE)
_TIMEOUT = 600.0


def of_source(
    stage: str, backend: CompilingBackend, source: KernelSource, target: Target, defines: Mapping[str, str]
) -> dict[str, str]:
    """Whole texts of a stage by title: ``PTX``, ``LLVM IR before optimisation``, …

    Raises ``BackendError`` for a stage that the vendor's compiler does not show, ``CompileError``.
    """
    refuse(stage, backend.name)
    with tempfile.TemporaryDirectory(prefix="warpwave-stage-") as name:
        folder = Path(name)
        plan = backend.plan(source, folder / "kernel.so", target, defines)
        for step in plan.steps[: plan.principal]:
            _run(step, folder, source.root)
        return texts(stage, plan.steps[plan.principal], folder, source.root)


def texts(stage: str, step: Sequence[str], folder: Path, root: Path) -> dict[str, str]:
    """As ``of_source``, of the command ``step`` that compiles for the device, run in ``root``."""
    out = folder / f"kernel.{stage}"
    if stage == "ptx":
        _run(ptx_command(step, out), folder, root, out)
        return {"PTX": out.read_text(errors="replace")}
    found = {}
    for title, flags in (("LLVM IR before optimisation", ["-Xclang", "-disable-llvm-passes"]),
                         ("LLVM IR after optimisation", [])):
        _run(ir_command(step, out, flags), folder, root, out)
        found[title] = out.read_text(errors="replace")
    return found


def refuse(stage: str, backend: str) -> None:
    """Raises ``BackendError`` for a stage that a backend has not."""
    if backend == "cuda" and stage == "ir":
        raise BackendError("NVIDIA's compiler shows no LLVM IR; --stage ptx shows what it hands to ptxas")
    if backend == "rocm" and stage == "ptx":
        raise BackendError("HIP kernels have no PTX; --stage ir shows LLVM IR before and after optimisation")
    if backend not in ("cuda", "rocm"):
        raise BackendError(f"a {backend} kernel is host code: inspect shows code for GPUs")


def ir_command(step: Sequence[str], out: Path, flags: Sequence[str]) -> list[str]:
    """``step``, a compilation of HIP device code, so that it writes LLVM IR as ``out``."""
    words = list(step)
    if "-emit-obj" in words:
        at = words.index("-emit-obj")
        del words[at - 1 : at + 1]
    words = [word for word in words if word not in ("-shared", "-fPIC", "-S")]
    words[words.index("-o") + 1] = str(out)
    device = [] if "--cuda-device-only" in words else ["--cuda-device-only"]
    return [*words, *device, "-S", "-emit-llvm", *flags]


def chosen(text: str, wanted: Wanted) -> str:
    """The functions of ``text`` whose symbol or short name is wanted; all of it where all are.

    Raises ``BackendError`` if there is none.
    """
    if wanted is None:
        return text
    matches = list((IR if "!DIFile(" in text else PTX).finditer(text))
    names = short_names([match[1] for match in matches])
    kept = []
    for match in matches:
        if wanted.search(match[1]) or wanted.search(names[match[1]]):
            end = re.compile(r"^}", re.MULTILINE).search(text, match.end())
            kept.append(text[match.start() : end.end() if end else len(text)])
    if not kept:
        raise BackendError(f"no function matches {wanted.pattern!r} in this stage; without --function all are shown")
    return "\n\n".join(kept)


def _run(step: Sequence[str], folder: Path, root: Path, out: Path | None = None) -> None:
    done = _process.run(step, folder / "log", root, _TIMEOUT, {"TMPDIR": str(folder)})
    if done.returncode != 0 and not (out and out.is_file()):
        parsed = _diagnostics.parse(done.output, root, step[0])
        first = next((str(each) for each in _diagnostics.errors(parsed)), done.output.strip()[:200])
        raise CompileError(f"the compiler refused it: {first}", parsed, done.output, step)




# Lines ---------------------------------------------------------------------------------------------------------------

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]+)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_DEBUG = re.compile(r"!dbg !(\d+)")
_NODE = re.compile(r"^!(\d+) = (?:distinct )?!DI(\w+)\((.*)\)$", re.MULTILINE)
_FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)"|(\w+))')


def lines(text: str, whole: str) -> list[dict[str, Any]]:
    """The lines of PTX or LLVM IR with the places they came from, innermost first, as in ``document``'s code.

    ``whole`` is the text of the entire stage, whose tables of files and metadata lie outside of functions.
    """
    place_of = _ir_places(whole) if "!DIFile(" in whole else None
    names = {match[1]: match[2] for match in map(_FILE.match, whole.splitlines()) if match}
    current: list[list[Any]] = []
    found = []
    for line in text.splitlines():
        if match := _LOC.match(line):
            current = [[names.get(match[1], "?"), int(match[2])]]
            continue
        if place_of is not None:
            match = _DEBUG.search(line)
            current = place_of(match[1]) if match else []
        found.append({"text": line, "places": current if line.strip() else []})
    return found


def _ir_places(whole: str) -> Callable[[str], list[list[Any]]]:
    """Places by the number of a DILocation: it, then where it was put inline."""
    nodes = {match[1]: (match[2], {field[1]: field[2] or field[3] or field[4] for field in _FIELD.finditer(match[3])})
             for match in _NODE.finditer(whole)}

    def file_of(scope: str | None) -> str:
        while scope in nodes:
            kind, fields = nodes[scope]
            if kind == "File":
                return fields.get("filename", "?")
            scope = fields.get("file") or fields.get("scope")
        return "?"

    def places(number: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        at: str | None = number
        while at in nodes and nodes[at][0] == "Location":
            fields = nodes[at][1]
            found.append([file_of(fields.get("scope")), int(fields.get("line", "0"))])
            at = fields.get("inlinedAt")
        return found

    return places
