# SPDX-License-Identifier: MIT
"""Compiler output -> ``Diagnostic``s: nvcc and ptxas, gcc, clang, and the linkers they call.

Pure. A line that matches no form is left out; the full log stays with the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from backends.errors import Diagnostic

_SEVERITY = r"(?P<severity>fatal error|error|warning|remark|note|fatal|internal error)"
_FORMS = [re.compile(form) for form in (
    # gcc, clang:   a.hip:12:5: error: message
    rf"(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? {_SEVERITY}: (?P<message>.+)",
    # nvcc's front end:   a.cu(12): error #20-D: message
    rf"(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?{_SEVERITY}(?: #\d+(?:-D)?)?: (?P<message>.+)",
    # ptxas on a line of PTX:   ptxas /tmp/a.ptx, line 12; error   : message
    rf"ptxas (?P<ptx>[^,\n]+), line (?P<ptx_line>\d+); {_SEVERITY}\s*: (?P<message>.+)",
    # ptxas and nvcc about the whole:   ptxas fatal   : message
    rf"(?P<tool>ptxas|nvcc|nvlink|fatbinary|cudafe\+\+|cicc) {_SEVERITY}\s*: (?P<message>.+)",
    # drivers and lld:   clang++: error: message     ld.lld: error: undefined symbol: f
    rf"(?P<tool>[\w./+-]*(?:clang(?:\+\+)?(?:-\d+)?|hipcc|lld|ld|g\+\+|gcc|c\+\+|cc1plus|collect2)): {_SEVERITY}: "
    r"(?P<message>.+)",
    # LLVM's back end:   error: <unknown>:0:0: local memory (70000) exceeds limit (65536) in function 'f'
    rf"{_SEVERITY}: (?:<unknown>:0:0: )?(?P<message>.+)",
)]
# GNU ld says no severity:   /usr/bin/ld: a.o: in function `f': a.cpp:(.text+0x5): undefined reference to `g'
_GNU_LD = re.compile(r"(?P<tool>[\w./+-]*ld): (?:.*: )?(?P<message>(?:undefined reference to|cannot find|multiple "
                     r"definition of|relocation) .+)")
_LD_UNDEFINED = re.compile(r"\S+:\(\.[\w.]+\+0x[0-9a-f]+\): (?P<message>undefined reference to .+)")
# Info lines with a code of their own say that a Hopper kernel has lost some of its asynchrony: worth a warning.
_PTXAS_LOSS = re.compile(r"ptxas info\s*: (?P<message>\(C\d+\) .+)")
_RANK = {"fatal error": "error", "fatal": "error", "internal error": "error", "remark": "note"}
# Totals and echoes that repeat what a line above said.
_NOISE = re.compile(r"ld returned \d+ exit status|linker command failed with exit code"
                    r"|^\d+ errors? (?:generated|detected)|Compilation terminated|^ptxas .*aborted due to errors")


def parse(log: str, root: Path, file: str = "") -> tuple[Diagnostic, ...]:
    """All messages of a compiler's log, in order, without repetitions.

    Paths inside ``root`` become relative to it. ``file`` is what a message without a place of its own refers to.
    """
    found = []
    for diagnostic in _diagnostics(log.splitlines(), root, file):
        if diagnostic not in found:
            found.append(diagnostic)
    return tuple(found)


def errors(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The ones that made the compiler refuse."""
    return [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]


def _diagnostics(lines: Iterable[str], root: Path, file: str) -> Iterator[Diagnostic]:
    for raw in lines:
        line = raw.rstrip()
        if _NOISE.search(line):
            continue
        for form in _FORMS:
            if match := form.fullmatch(line):
                yield _diagnostic(match.groupdict(), root, file)
                break
        else:
            if match := _GNU_LD.fullmatch(line) or _LD_UNDEFINED.fullmatch(line):
                yield Diagnostic(file, 0, "error", match["message"])
            elif match := _PTXAS_LOSS.fullmatch(line):
                yield Diagnostic(file, 0, "warning", match["message"])


def _diagnostic(fields: dict[str, str | None], root: Path, file: str) -> Diagnostic:
    severity = fields["severity"] or "error"
    message = fields["message"] or ""
    if fields.get("ptx_line"):
        message = f"{message} (PTX line {fields['ptx_line']})"
    elif fields.get("tool"):
        message = f"{Path(fields['tool'] or '').name}: {message}"
    if fields.get("file"):
        file = shorten(fields["file"] or "", root)
    return Diagnostic(file, int(fields.get("line") or 0), _RANK.get(severity, severity), message)


def shorten(name: str, root: Path) -> str:
    """``name`` relative to ``root`` if it lies inside, else as it is."""
    path = Path(name)
    if not path.is_absolute():
        path = root / path
    # By text first: a checkout may be reached through a link.
    for base, candidate in ((root, path), (root.resolve(), path.resolve())):
        if candidate.is_relative_to(base):
            return candidate.relative_to(base).as_posix()
    return name
