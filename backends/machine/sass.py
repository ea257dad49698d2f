# SPDX-License-Identifier: MIT
"""NVIDIA machine code: cubins through nvdisasm, with the lines each instruction came from. The text parser is pure."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from backends import _process
from backends.errors import BackendError
from backends.machine import units
from backends.machine.model import Instruction, Place

_SECTION = re.compile(r"\s*\.section\s+\.text\.([\w$.]+),")
_LABEL = re.compile(r"(\.L_[\w$]*):")
_LINE = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at)?')
_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\((\.L_[\w$]*)\)")
_HEX = re.compile(r"0x([0-9a-f]+)$")
_ADDRESSED = ("BRA", "BSSY", "JMP", "WARPSYNC", "CALL", "BREAK")


def disassemble(cubin: bytes, tools: Sequence[Path], symbols: Sequence[int] = ()) -> str:
    """nvdisasm's text with source lines; of the functions at ``symbols`` (indices of the symbol table) alone, if any.

    The first of ``tools`` that can read the cubin does it. Raises ``BackendError`` if none can.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        chosen = ["-fun", ",".join(map(str, symbols))] if symbols else []
        for tool in tools:
            text = _process.ask([str(tool), "-gi", "-c", *chosen, file.name], timeout=300.0)
            if text is not None:
                return text
    raise BackendError(f"{', '.join(map(str, tools))} cannot read this cubin: the tool is older than the compiler, or "
                       "the file is damaged; pip install -U nvidia-cuda-nvdisasm")


def sections(text: str) -> dict[str, str]:
    """``disassemble``'s text of each function, by symbol."""
    return {name: "\n".join(lines) for name, lines in _sections(text)}


def parse(text: str) -> dict[str, tuple[Instruction, ...]]:
    """Instructions of all functions by symbol, from ``disassemble``'s text."""
    return {name: _without_padding(tuple(_instructions(lines))) for name, lines in _sections(text)}


def _without_padding(code: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """A function ends with an endless branch and NOPs up to the next cache line, which nothing reaches."""
    end = len(code)
    while end and code[end - 1].opcode == "NOP":
        end -= 1
    return code[: end - 1] if end and code[end - 1].target == code[end - 1].address else code[:end]


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    name = ""
    lines: list[str] = []
    for line in text.splitlines():
        if match := _SECTION.match(line):
            if name:
                yield name, lines
            name, lines = match[1], []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def _instructions(lines: Sequence[str]) -> Iterator[Instruction]:
    labels = _labels(lines)
    places: list[Place] = []
    cached: tuple[Place, ...] = ()
    fresh = True
    for line in lines:
        if match := _LINE.match(line):
            places = [*([] if fresh else places), Place(match[1], int(match[2]))]
            fresh, cached = False, tuple(places)
        elif match := _CODE.match(line):
            fresh = True
            address, guard, opcode, operands = int(match[1], 16), match[2], match[3], match[4]
            target = None
            if found := _TARGET.search(operands):
                where = labels.get(found[1])
                if where is not None:
                    operands = operands.replace(found[0], f"{where:#x}")
                    target = where if opcode.startswith(_ADDRESSED[:3]) else None
            elif opcode.startswith(_ADDRESSED[:3]) and (plain := _HEX.search(operands)):
                target = int(plain[1], 16)
            text = f"{guard} {opcode} {operands}" if guard else f"{opcode} {operands}"
            yield Instruction(address, text.strip(), opcode, units.sass(opcode), cached, target, guard is not None)


def _labels(lines: Sequence[str]) -> dict[str, int]:
    """Addresses of labels: each names the instruction that follows."""
    found: dict[str, int] = {}
    waiting: list[str] = []
    for line in lines:
        if match := _LABEL.match(line):
            waiting.append(match[1])
        elif waiting and (code := _CODE.match(line)):
            found |= dict.fromkeys(waiting, int(code[1], 16))
            waiting = []
    return found
