# SPDX-License-Identifier: MIT
"""FLAT, GLOBAL and SCRATCH: loads, stores and atomics in every way to form an address."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator

import numpy as np

from tests.emulator.isa import memory_cases, sources, values
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.memory_cases import ADDRESS_AT, BASE, DATA_AT, LANES, RESULT_AT, WINDOW_BYTES, MemoryCase
from tests.emulator.isa.opcodes import Instruction, of_format
from tests.emulator.isa.values import Array, Value, value
from tests.emulator.isa.wave import Wave

BYTES = 16384
SCALAR_AT = 8
LDS_APERTURE, OWN_APERTURE = 0x00010000 << 32, 0x00020000 << 32
_OWN_FIRST = 256                    # where in a lane's own memory the window lies
_SMALL_LOAD = re.compile(r"_load_[us](byte|short)$")


@functools.cache
def cases() -> list[MemoryCase]:
    """Those that gfx942 has, assembled."""
    tried = memory_cases.flatten(_cases(i) for i in of_format("FLAT", "GLOBAL", "SCRATCH"))
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]


def _cases(instruction: Instruction) -> Iterator[MemoryCase]:
    rng = np.random.default_rng(zlib.crc32(instruction.name.encode()))
    full, some, few = memory_cases.masks(rng)
    if instruction.format == "SCRATCH":
        for vector, scalar in ((True, False), (False, True), (True, True), (False, False)):
            yield _own(instruction, rng, full, vector, scalar)
            yield _own(instruction, rng, some, vector, scalar, file="a")
        return
    build = functools.partial(_case, instruction, rng)
    forms = (False, True) if instruction.format == "GLOBAL" else (False,)
    for scalar in forms:
        yield build(full, scalar)
        yield build(some, scalar, file="a")
        yield build(some, scalar, alias=True)
        if "atomic" in instruction.name:
            yield build(full, scalar, returns=True)
            yield build(few, scalar, meet=True, returns=True)
            yield build(few, scalar, meet=True)
    if instruction.format == "FLAT":
        yield build(full, False, aperture=LDS_APERTURE, returns=True)
        yield build(some, False, aperture=LDS_APERTURE)
        if "atomic" not in instruction.name:
            yield _own(instruction, rng, some, True, False)


def _data(instruction: Instruction, rng: np.random.Generator, wave: Wave, file: str, names: dict[str, Value],
          memory: Array | None = None, where: Array | None = None) -> str:
    operand = instruction.operands.get("data")
    if not operand:
        return ""
    bits = memory_cases.data(rng, instruction, operand.width)
    if memory is not None and where is not None:
        memory_cases.put_zeros(rng, instruction, memory, where, bits)
    if "cmpswap" in instruction.name:
        # Half of the comparisons should hold; memory is full of few different numbers in these cases.
        half = operand.width // 2
        bits = bits & ((1 << half) - 1) | np.where(rng.random(64) < 0.6, bits & 7, bits >> half) << half \
            if operand.width > 64 else \
            bits & np.uint64(0xFFFFFFFF) | np.where(rng.random(64) < 0.6, bits & np.uint64(7), bits) << np.uint64(32)
    text = memory_cases.fill(wave, file, DATA_AT, bits, operand.width)
    names["DATA"] = memory_cases.operand(wave, file, DATA_AT, operand.width)
    names["VDATA"] = names["DATA"]
    return text


def _memory(instruction: Instruction, rng: np.random.Generator, size: int) -> Array:
    if "cmpswap" in instruction.name:
        width = "<u8" if "x2" in instruction.name else "<u4"
        return rng.integers(0, 8, size // int(width[2:])).astype(width).view(np.uint8).copy()
    return memory_cases.hard_bytes(rng, instruction, size)


def _case(instruction: Instruction, rng: np.random.Generator, exec_mask: int, scalar: bool, *, file: str = "v",
          alias: bool = False, returns: bool = False, meet: bool = False, aperture: int = 0) -> MemoryCase:
    wave = memory_cases.new_wave(rng, exec_mask, BYTES if aperture else 0)
    memory = _memory(instruction, rng, BYTES)
    base = aperture or BASE
    atomic = "atomic" in instruction.name
    result = instruction.operands.get("vdst")
    low, high = (0, 4095) if instruction.format == "FLAT" else (-4096, 4095)
    offset = int(rng.integers(low, high + 1)) & (~7 if atomic else ~0)
    if aperture:
        wave.lds, offset = memory, offset & 0xFF8
    where = memory_cases.scattered(rng, 16, 4096 + 8 * int(rng.integers(0, 100)))
    where = where % 64 + 4096 if meet else where if atomic else where + int(rng.integers(0, 4))
    text = _address(wave, base + where - offset, scalar, rng)
    names: dict[str, Value] = {}
    at = ADDRESS_AT if alias else RESULT_AT
    words = [text]
    if data := _data(instruction, rng, wave, file, names, memory, where):
        words.append(data)
    loads = result is not None and (returns or not atomic)
    width = max(32, result.width) if result else 32
    if loads:
        words.insert(0, sources.register_text(file, at, width // 32))
        names["RETURN_DATA"] = memory_cases.operand(wave, file, at, width)
        names.setdefault("VDATA", names["RETURN_DATA"])
    if instruction.format == "GLOBAL":
        words.append(sources.register_text("s", SCALAR_AT, 2) if scalar else "off")
    found = value("U", 64, (base + where).astype(np.uint64))
    tail = f"offset:{offset}" + (" sc0" if atomic and loads else "")
    return MemoryCase(instruction, f"{instruction.name} {', '.join(words)} {tail}", wave, names, memory, _always(found),
                      wave.exec, lds=bool(aperture), base=base, result=(file, at) if loads else None,
                      loaded="RETURN_DATA" if atomic else "VDATA", width=width, in_order=meet)


def _always(found: Value) -> dict[str, functools.partial[Value]]:
    def same(*given: Value) -> Value:
        return found

    names = ("CalcFlatAddr", "CalcGlobalAddr", "CalcScratchAddr", "address")
    return {name: functools.partial(same) for name in names}


def _address(wave: Wave, address: Array, scalar: bool, rng: np.random.Generator) -> str:
    """Into a VGPR pair, or split between an SGPR pair and one VGPR."""
    if not scalar:
        return memory_cases.fill(wave, "v", ADDRESS_AT, address.astype(np.uint64), 64)
    # The VGPR is an unsigned distance: sometimes beyond 2 GB.
    low = int(address.min()) - (int(rng.integers(0, 4096)) * 4 if rng.random() < 0.5 else 0xE000_0000)
    wave.set_scalar(SCALAR_AT, 64, low)
    return memory_cases.fill(wave, "v", ADDRESS_AT, (address - low).astype(np.uint64), 32)


def _own(instruction: Instruction, rng: np.random.Generator, exec_mask: int, vector: bool, scalar: bool, *,
         file: str = "v") -> MemoryCase:
    """A lane's own memory: a window of it is stored before and loaded afterwards."""
    flat = instruction.format == "FLAT"
    wave = memory_cases.new_wave(rng, exec_mask)
    result = instruction.operands.get("vdst")
    distance = rng.integers(0, WINDOW_BYTES - 16, 64)
    if not vector:
        distance[:] = distance[0]
    offset = int(rng.integers(0, 200)) if flat or not (vector or scalar) else int(rng.integers(-200, 200))
    base = int(rng.integers(0, 200)) if scalar else 0
    if not (vector or scalar):
        offset = _OWN_FIRST + int(distance[0])
    part = (_OWN_FIRST + distance - offset - base).astype(np.int64)
    if not vector and scalar:
        base = int(part[0]) + base
    words = []
    if vector:
        address = (OWN_APERTURE + part) if flat else part & 0xFFFFFFFF
        words.append(memory_cases.fill(wave, "v", ADDRESS_AT, address.astype(np.uint64), 64 if flat else 32))
    else:
        words.append("off")
    names: dict[str, Value] = {}
    if data := _data(instruction, rng, wave, file, names):
        words.append(data)
    width = max(32, result.width) if result else 32
    if result:
        words.insert(0, sources.register_text(file, RESULT_AT, width // 32))
        names["VDATA"] = memory_cases.operand(wave, file, RESULT_AT, width)
    if not flat:
        wave.sgprs[SCALAR_AT] = base & 0xFFFFFFFF
        words.append(f"s{SCALAR_AT}" if scalar else "off")
    memory = memory_cases.window(wave)
    zero = values.constant("U", 64, 0)

    def place(further: int, size: int) -> tuple[Array, Array]:
        return (LANES * WINDOW_BYTES + distance + further).astype(np.uint64), np.ones(64, dtype=bool)

    first, last = memory_cases.WINDOW_AT, memory_cases.WINDOW_AT + WINDOW_BYTES // 4
    quads = [(_OWN_FIRST + 4 * (r - first), sources.register_text("v", r, 4)) for r in range(first, last, 4)]
    text = "\n".join([*(f"scratch_store_dwordx4 off, {r}, off offset:{at}" for at, r in quads),
                      f"{instruction.name} {', '.join(words)} offset:{offset}",
                      *(f"scratch_load_dwordx4 {r}, off, off offset:{at}" for at, r in quads)])
    return MemoryCase(instruction, text, wave, names, memory, _always(zero), wave.exec, base=0,
                      result=(file, RESULT_AT) if result else None, width=width, window=True, mapped=place)
