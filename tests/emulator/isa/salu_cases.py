# SPDX-License-Identifier: MIT
"""Scalar arithmetic: cases, and what the manual's programs make of them."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tests.emulator.isa import sources, values
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.evaluate import environment
from tests.emulator.isa.opcodes import Instruction, Operand, of_format
from tests.emulator.isa.pcode import compiled
from tests.emulator.isa.sources import Source
from tests.emulator.isa.wave import EXEC, M0, VCC, Wave, random_wave

# The program counter, hardware registers, indexed registers and modes: driven by hand-written tests.
ELSEWHERE = re.compile(r"s_(call|cbranch|getpc|setpc|swappc|rfe|getreg|setreg|movrel|set_gpr_idx|setvskip)")
FORMATS = ("SOP1", "SOP2", "SOPC", "SOPK")
SOURCE_AT, DESTINATION, CASES = (8, 12), 20, 24
_SPECIAL = {"vcc": VCC, "exec": EXEC}


@dataclass
class ScalarCase:
    instruction: Instruction
    text: str
    wave: Wave
    operands: list[int]
    destination: int
    width: int                              # of the destination, 0 for none
    immediate: int = 0
    code: bytes = b""


def cases(instruction: Instruction, rng: np.random.Generator) -> Iterator[ScalarCase]:
    if ELSEWHERE.match(instruction.name):
        return
    for number in range(CASES):
        yield _case(instruction, rng, number)


def _case(instruction: Instruction, rng: np.random.Generator, number: int) -> ScalarCase:
    wave = random_wave(rng, int(rng.integers(0, 1 << 63)) << 1 | 1)
    operands = [instruction.operands[k] for k in ("ssrc0", "ssrc1") if k in instruction.operands]
    given = [_source(wave, rng, i, o, number) for i, o in enumerate(operands)]
    result = instruction.operands.get("sdst")
    destination, width, parts = DESTINATION, 0, []
    if result:
        width = max(32, result.width)
        destination, text = _destination(rng, width, number)
        parts.append(text)
        if number % 5 == 0:
            wave.set_scalar(destination, width, int(sources.hard_numbers(rng, result.kind, width, 1)[0]))
    parts += [g.text for g in given]
    immediate = 0
    if "simm16" in instruction.operands:
        immediate = int(rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF, int(rng.integers(0, 65536))]))
        if instruction.name.startswith("s_cmpk") and number % 3 == 0:
            extended = immediate | (0xFFFF0000 if immediate & 0x8000 and instruction.name.endswith("i32") else 0)
            wave.set_scalar(destination, 32, extended)
        parts.append(f"0x{immediate:x}")
    if instruction.format == "SOPC" and number % 4 == 0 and len(operands) == 2 and given[1].text.startswith("s"):
        given[1].bits[:] = given[0].bits[0]
        wave.set_scalar(SOURCE_AT[1], max(32, operands[1].width), int(given[0].bits[0]))
    # A later operand may have been put where an earlier one, or the destination, already was.
    found = [_read(wave, g, o) for g, o in zip(given, operands, strict=True)]
    return ScalarCase(instruction, f"{instruction.name} {', '.join(parts)}", wave, found, destination, width, immediate)


def _source(wave: Wave, rng: np.random.Generator, i: int, operand: Operand, number: int) -> Source:
    width = max(32, operand.width)
    if number % 6 == 1 + i and (constant := sources.inline(rng, operand)):
        return constant
    if number % 6 == 3 + i and i == 0 and operand.width <= 32:
        bits = int(rng.integers(0x1000, 1 << 31))
        return Source(f"0x{bits:x}", sources.splat(bits))
    if number % 12 == 5 and i == 0:
        name = str(rng.choice(["vcc", "exec"])) if width == 64 else str(rng.choice(["vcc_lo", "exec_hi", "m0"]))
        at = {"vcc": VCC, "exec": EXEC, "vcc_lo": VCC, "exec_hi": EXEC + 1, "m0": M0}[name]
        return Source(name, sources.splat(wave.pair(at) if width == 64 else int(wave.sgprs[at])))
    bits = int(sources.hard_numbers(rng, operand.kind, operand.width, 1)[0])
    if operand.width < 32:
        bits |= int(rng.integers(0, 1 << (32 - operand.width))) << operand.width
    return sources.sgpr(wave, SOURCE_AT[i], bits, width)


def _read(wave: Wave, source: Source, operand: Operand) -> int:
    places = {"vcc": VCC, "exec": EXEC, "vcc_lo": VCC, "exec_hi": EXEC + 1, "m0": M0}
    if match := re.match(r"s\[?(\d+)", source.text):
        at = int(match.group(1))
    elif source.text in places:
        at = places[source.text]
    else:
        return int(source.bits[0])
    return wave.pair(at) if operand.width == 64 else int(wave.sgprs[at])


def _destination(rng: np.random.Generator, width: int, number: int) -> tuple[int, str]:
    if number % 7 == 6:
        return (VCC, "vcc") if width == 64 else (M0, "m0")
    if number % 7 == 5:
        return SOURCE_AT[0], sources.register_text("s", SOURCE_AT[0], width // 32)
    return DESTINATION, sources.register_text("s", DESTINATION, width // 32)


def expected(cases: Sequence[ScalarCase]) -> Iterable[tuple[ScalarCase, Wave]]:
    groups: dict[Instruction, list[ScalarCase]] = {}
    for case in cases:
        groups.setdefault(case.instruction, []).append(case)
    for instruction, group in groups.items():
        yield from _together(instruction, group)


def _together(instruction: Instruction, group: list[ScalarCase]) -> Iterable[tuple[ScalarCase, Wave]]:
    def row(numbers: Iterable[int], kind: str = "B", width: int = 64) -> values.Value:
        return values.value(kind, width, np.array(list(numbers), dtype=np.uint64))

    destination = [(c.wave.pair(c.destination) if c.width == 64 else int(c.wave.sgprs[c.destination])) for c in group]
    names = {f"S{i}": row(c.operands[i] for c in group) for i in range(len(group[0].operands))}
    immediate = row((c.immediate for c in group), "B", 16)
    if instruction.name.startswith("s_cmpk"):
        names["S0"], names["S1"] = row(destination), immediate
    elif instruction.format == "SOPK":
        names["S0"] = immediate
    names |= {"SIMM16": immediate, "D0": row(destination, "B", group[0].width or 64),
              "SCC": row((c.wave.scc for c in group), "U", 1), "EXEC": row((c.wave.pair(EXEC) for c in group), "U"),
              "M0": row((int(c.wave.sgprs[M0]) for c in group), "U", 32)}
    env = environment(names, len(group))
    compiled(instruction.program).run(env)
    found = {name: np.broadcast_to(values.extended(env.names[name], 64), len(group)) for name in ("D0", "SCC", "EXEC")}
    for i, case in enumerate(group):
        after = case.wave.copy()
        after.set_scalar(EXEC, 64, int(found["EXEC"][i]))
        if case.width and not instruction.name.startswith("s_cmpk"):
            after.set_scalar(case.destination, case.width, int(found["D0"][i]))
        after.scc = int(found["SCC"][i])
        yield case, after


@functools.cache
def assembled(form: str) -> list[ScalarCase]:
    """The cases of one format that gfx942 has."""
    tried = []
    for instruction in of_format(form):
        tried += list(cases(instruction, np.random.default_rng(zlib.crc32(instruction.name.encode()))))
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]
