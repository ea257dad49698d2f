# SPDX-License-Identifier: MIT
"""Cases for instructions that access memory, and what the manual's programs make of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tests.emulator.isa import floats, sources, values
from tests.emulator.isa.evaluate import environment
from tests.emulator.isa.memory import Bytes, Mapped, host_buffer
from tests.emulator.isa.opcodes import Instruction
from tests.emulator.isa.pcode import compiled
from tests.emulator.isa.values import Array, Value, value
from tests.emulator.isa.wave import Emulator, EmulatorError, Wave, random_wave

LANES = np.arange(64)
ADDRESS_AT, DATA_AT, DATA2_AT, RESULT_AT = 4, 8, 12, 20
AGPRS = 40
MEMORY = host_buffer(1 << 15)       # what addresses of global memory in the cases point into
BASE = MEMORY.ctypes.data
# Arguments of the functions that calculate addresses, which in the cases know them already.
_UNREAD = ("ADDR", "SADDR", "VADDR", "SRSRC", "SBASE", "SOFFSET", "OFFSET")
_ADDS_FLOATS = re.compile(r"(add(_rtn)?|pk_add(_rtn)?)_(b?f16|f32|f64)")
_FLOAT_KINDS = {"f16": ("F16", 16), "bf16": ("BF16", 16), "f32": ("F32", 32), "f64": ("F64", 64)}


@dataclasses.dataclass
class MemoryCase:
    """``names``: operands of the program; ``addresses``: what its functions return; ``memory``: the bytes before, of
    the wave's LDS if ``lds``, at address ``base``; ``result``: register file and first register that are loaded, with
    ``loaded`` the program's name of it; ``in_order``: lanes meet at one address, so each is done for itself;
    ``window``: the memory is the lanes' own, and what is in it afterwards is loaded into registers."""

    instruction: Instruction
    text: str
    wave: Wave
    names: dict[str, Value]
    memory: Array
    addresses: Mapping[str, Callable[..., Any]]
    active: Array
    lds: bool = False
    base: int = BASE
    result: tuple[str, int] | None = None
    loaded: str = "VDATA"
    width: int = 32
    in_order: bool = False
    window: bool = False
    mapped: Callable[[int, int], tuple[Array, Array]] | None = None
    code: bytes = b""


def element(instruction: Instruction) -> tuple[str, int]:
    """Kind and width of what is in memory, for numbers that are hard for it."""
    match = re.search(r"_(b?f16|f32|f64)$", instruction.name)
    if match:
        return _FLOAT_KINDS[match.group(1)]
    operand = instruction.operands.get("data0", instruction.operands.get("data", instruction.operands.get("vdata")))
    width = operand.width if operand else 32
    if "cmpswap" in instruction.name:
        width //= 2
    return "U64" if width == 64 else "U32", 64 if width == 64 else 32


def hard_bytes(rng: np.random.Generator, instruction: Instruction, size: int) -> Array:
    kind, width = element(instruction)
    count = size * 8 // width
    bits = finite(instruction, kind, width, sources.hard_numbers(rng, kind, width, count))
    return bits.astype(f"<u{width // 8}").view(np.uint8).copy()


def finite(instruction: Instruction, kind: str, width: int, bits: Array) -> Array:
    """Without NaN and infinity where they would be added: which NaN comes out is not published."""
    if not _ADDS_FLOATS.search(instruction.name):
        return bits
    fmt = {"F16": floats.F16, "BF16": floats.BF16, "F32": floats.F32, "F64": floats.F64}[kind]
    special = (bits >> np.uint64(fmt.mbits) & np.uint64(fmt.emax)) == fmt.emax
    return np.where(special, bits ^ np.uint64(1 << (fmt.mbits + fmt.width - fmt.mbits - 3)), bits)


def data(rng: np.random.Generator, instruction: Instruction, width: int) -> Array:
    """64 operands of ``width`` bits, hard for what the instruction does with them."""
    kind, part = element(instruction)
    pieces = [finite(instruction, kind, part, sources.hard_numbers(rng, kind, part)).astype(object) << (part * i)
              for i in range(max(1, width // part))]
    whole = np.bitwise_or.reduce(np.array(pieces, dtype=object)) & ((1 << width) - 1)
    return whole if width > 64 else whole.astype(np.uint64)


def put_zeros(rng: np.random.Generator, instruction: Instruction, memory: Array, where: Array, bits: Array) -> None:
    """Zeros of either sign in memory and in the operands of some lanes, for what compares floats."""
    kind, width = element(instruction)
    if kind not in ("F32", "F64"):
        return
    size = width // 8
    for lane in rng.choice(64, 12, replace=False):
        at = int(where[lane])
        if at + size <= len(memory):
            memory[at:at + size] = 0
            memory[at + size - 1] = int(rng.integers(0, 2)) << 7
            bits[lane] = int(rng.integers(0, 2)) << (width - 1)


def fill(wave: Wave, letter: str, at: int, bits: Array, width: int) -> str:
    """Puts the operand into registers; the assembler's text for them."""
    registers = max(1, width // 32)
    numbers = bits.astype(object)
    for i in range(registers):
        wave.file(letter)[at + i] = ((numbers >> (32 * i)) & 0xFFFFFFFF).astype(np.uint32)
    return sources.register_text(letter, at, registers)


def operand(wave: Wave, letter: str, at: int, width: int) -> Value:
    bits = sum(wave.file(letter)[at + i].astype(object) << (32 * i) for i in range(max(1, width // 32)))
    return value("B", width, bits)


def new_wave(rng: np.random.Generator, exec_mask: int, lds_bytes: int = 0) -> Wave:
    wave = random_wave(rng, exec_mask, lds_bytes)
    wave.agprs = rng.integers(0, 1 << 32, (AGPRS, 64), dtype=np.uint32)
    return wave


def masks(rng: np.random.Generator) -> tuple[int, int, int]:
    """All lanes, some, few."""
    few = sum(1 << int(i) for i in rng.choice(64, 9, replace=False))
    return (1 << 64) - 1, int(rng.integers(1, 1 << 63)) << 1, few


def expected(case: MemoryCase) -> tuple[Wave, Array]:
    """The state and the memory afterwards."""
    after, memory = case.wave.copy(), case.memory.copy()
    names = {name: value("B", 64, np.zeros(1, np.uint64)) for name in _UNREAD} | case.names
    names["laneID"] = value("U", 32, LANES)
    env = environment(names, 64, case.wave.mode)
    target = Bytes(memory, case.base, strict=not case.lds)
    env.memory = Mapped(target, case.mapped) if case.mapped else target
    env.functions = dict(case.addresses)
    program = compiled(case.instruction.program)
    if case.in_order:
        for lane in np.flatnonzero(case.active):
            program.run(env, lane == LANES)
    else:
        program.run(env, case.active)
    if case.result:
        letter, at = case.result
        bits = np.broadcast_to(values.extended(env.names[case.loaded], case.width), 64).astype(object)
        for i in range(max(1, case.width // 32)):
            row = after.file(letter)[at + i]
            row[case.active] = (bits >> (32 * i) & 0xFFFFFFFF).astype(np.uint32)[case.active]
    if case.lds:
        after.lds = memory
    return after, memory


def differences(case: MemoryCase, emulator: Emulator) -> list[str]:
    """What the emulator does otherwise."""
    right, right_memory = expected(case)
    if case.window:
        put_window(right, right_memory, case.active)
    MEMORY[:len(case.memory)] = case.memory
    try:
        found = emulator.execute(case.code, case.wave)
    except EmulatorError as error:
        return [str(error)]
    wrong = state_differences(case.wave, right, found)
    if not case.lds and not case.window:
        wrong += byte_differences("memory", case.memory, right_memory, MEMORY[:len(case.memory)])
    return wrong


WINDOW_AT, WINDOW_BYTES = 24, 64


def window(wave: Wave) -> Array:
    """The lanes' own memory, one after the other: what is in registers from WINDOW_AT."""
    return np.ascontiguousarray(wave.vgprs[WINDOW_AT:WINDOW_AT + WINDOW_BYTES // 4].T).view(np.uint8).reshape(-1).copy()


def put_window(wave: Wave, memory: Array, active: Array) -> None:
    rows = memory.view(np.uint32).reshape(64, WINDOW_BYTES // 4)
    wave.vgprs[WINDOW_AT:WINDOW_AT + WINDOW_BYTES // 4, active] = rows[active].T


def state_differences(before: Wave, right: Wave, found: Wave) -> list[str]:
    wrong = []
    for letter in "va":
        for at in np.flatnonzero((right.file(letter) != found.file(letter)).any(axis=1)):
            lane = int(np.flatnonzero(right.file(letter)[at] != found.file(letter)[at])[0])
            numbers = [f"{w.file(letter)[at][lane]:#010x}" for w in (found, right, before)]
            wrong.append(f"{letter}{at} lane {lane}: {numbers[0]}, right is {numbers[1]} (before {numbers[2]})")
    for at in np.flatnonzero(right.sgprs != found.sgprs):
        wrong.append(f"scalar {int(at)}: {found.sgprs[at]:#010x}, right is {right.sgprs[at]:#010x}")
    for name in ("scc", "mode"):
        if getattr(right, name) != getattr(found, name):
            wrong.append(f"{name}: {getattr(found, name):#x}, right is {getattr(right, name):#x}")
    return wrong + byte_differences("lds", before.lds, right.lds, found.lds)


def byte_differences(what: str, before: Array, right: Array, found: Array) -> list[str]:
    bad = np.flatnonzero(right != found)
    if not len(bad):
        return []
    at = int(bad[0]) & ~7
    words = [bytes(m[at:at + 8]).hex() for m in (found, right, before)]
    return [f"{what} byte {at} ({len(bad)} bytes): {words[0]}, right is {words[1]} (before {words[2]})"]


def scattered(rng: np.random.Generator, span: int, first: int = 0) -> Array:
    """A place for each lane, ``span`` bytes apart, in any order."""
    return first + rng.permutation(64) * span


def constant(number: int, width: int) -> Value:
    return values.constant("U", width, number)


def flatten(groups: Iterable[Iterable[MemoryCase]]) -> list[MemoryCase]:
    return [case for group in groups for case in group]
