# SPDX-License-Identifier: MIT
"""Assemble many instructions with one run of clang."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

COMMAND = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-x",
            "assembler", "-ferror-limit=0", "-c"]


class AssemblerError(RuntimeError):
    """clang declined for another reason than single lines."""


def assemble(lines: Sequence[str], folder: Path | None = None) -> list[bytes | None]:
    """The encoding of each line; None for those that gfx942 has not (or not so). A case may be several
    lines. ``folder`` is for clang's files; without it there is one for a while."""
    if folder is None:
        with tempfile.TemporaryDirectory() as name:
            return assemble(lines, Path(name))
    wanted = dict(enumerate(lines))
    for _ in range(4):
        problems = _run(wanted, folder)
        if not problems:
            return _encodings(len(lines), folder)
        for at in problems:
            del wanted[at]
    raise AssemblerError(f"clang finds new errors in every run, the last in {sorted(problems)[:5]}")


def _run(wanted: dict[int, str], folder: Path) -> set[int]:
    """The numbers of the cases that are wrong. A table of (case, offset) goes into a section of its own."""
    source, output = folder / "lines.s", folder / "lines.o"
    text, owners = [".text", "first:"], [-1, -1]
    for at, code in wanted.items():
        lines = code.split("\n")
        text += [f"L{at}: {lines[0]}", *lines[1:]]
        owners += [at] * len(lines)
    table = [f".long {at}, L{at} - first" for at in wanted]
    source.write_text("\n".join([*text, "last:", ".section .offsets, \"a\"", *table, ".long -1, last - first", ""]))
    done = subprocess.run([*COMMAND, str(source), "-o", str(output)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return set()
    numbers = {int(n) - 1 for n in re.findall(r"lines\.s:(\d+):\d+: error:", done.stderr)}
    problems = {owners[n] for n in numbers if 2 <= n < len(owners)}
    if not problems:
        raise AssemblerError(done.stderr[-2000:])
    return problems


def _encodings(count: int, folder: Path) -> list[bytes | None]:
    with (folder / "lines.o").open("rb") as file:
        elf = ELFFile(file)
        code = elf.get_section_by_name(".text").data()
        raw = elf.get_section_by_name(".offsets").data()
    table = list(struct.iter_unpack("<iI", raw))
    found: list[bytes | None] = [None] * count
    for (at, start), (_, end) in itertools.pairwise(table):
        found[at] = code[start:end]
    return found
