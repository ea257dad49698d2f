# SPDX-License-Identifier: MIT
"""MUBUF without formats: loads, stores and atomics through raw, linear and swizzled buffers, within bounds and not."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator

import numpy as np

from tests.emulator.isa import memory_cases, sources, values
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.buffer_model import Access, Resource
from tests.emulator.isa.memory_cases import ADDRESS_AT, BASE, DATA_AT, RESULT_AT, MemoryCase
from tests.emulator.isa.opcodes import Instruction, of_format
from tests.emulator.isa.values import Array, Value
from tests.emulator.isa.wave import M0, Wave

BYTES = 16384
RESOURCE_AT, OFFSET_AT = 8, 2
ELSEWHERE = re.compile("buffer_(load|store)_format|buffer_(wbl2|inv)")


@functools.cache
def cases() -> list[MemoryCase]:
    """Those that gfx942 has, assembled."""
    tried = memory_cases.flatten(_cases(i) for i in of_format("MUBUF") if not ELSEWHERE.match(i.name))
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]


def _cases(instruction: Instruction) -> Iterator[MemoryCase]:
    rng = np.random.default_rng(zlib.crc32(instruction.name.encode()))
    full, some, _ = memory_cases.masks(rng)
    build = functools.partial(_case, instruction, rng)
    yield build(full, "raw", returns=True)
    yield build(some, "raw", file="a")
    yield build(full, "raw", alias=True, returns=True)
    yield build(full, "uniform")
    yield build(full, "indexed")
    yield build(some, "both", returns=True)
    yield build(full, "cache swizzled", returns=True)
    yield build(full, "lanes", returns=True)
    if "atomic" not in instruction.name:
        yield build(full, "straddling")
        yield build(some, "straddling")
    if "atomic" not in instruction.name or size_of(instruction) == 4:     # elements of 4 bytes lie apart
        yield build(full, "swizzled")
        yield build(some, "swizzled both", returns=True)


def access(rng: np.random.Generator, form: str, size: int) -> Access:
    """An access to 64 places of ``size`` bytes, some of them out of range."""
    uniform, base = int(rng.integers(0, 32)) * 16, BASE + int(rng.integers(0, 32)) * 16
    span = max(16, size)
    if form == "straddling":                # the buffer ends within a lane's data
        records = uniform + int(rng.integers(30, 60)) * span + 4 * int(rng.integers(1, 4))
        return Access(Resource(base, records), None, memory_cases.scattered(rng, span), 0, uniform)
    if form in ("raw", "uniform"):
        immediate = int(rng.integers(0, 200)) * 16
        offset = memory_cases.scattered(rng, span) if form == "raw" else None
        records = uniform + immediate + (int(rng.integers(30, 65)) * span if form == "raw" else span)
        return Access(Resource(base, records), None, offset, immediate, uniform)
    stride = span * int(rng.integers(1, 3))
    index = rng.permutation(64).astype(np.int64)
    offset = (rng.integers(0, stride // span, 64) * span).astype(np.int64)
    if form.startswith("swizzled"):
        stride = span * 2
        records, width = int(rng.integers(40, 64)), int(rng.choice([8, 16, 32, 64]))
        resource = Resource(base, records, stride, True, width)
        if "both" in form:
            return Access(resource, index, (rng.integers(0, 3, 64) * span).astype(np.int64), 0, uniform)
        return Access(resource, index, None, int(rng.integers(0, 2)) * span, uniform)
    records = uniform + int(rng.integers(40, 64)) * stride
    if form == "lanes":
        resource = Resource(base, records, stride, add_lane=True)
        return Access(resource, None, None, int(rng.integers(0, 2)) * span, uniform)
    if form == "cache swizzled":            # as the kernels do that use it: no index
        resource = Resource(base, records, stride, True, int(rng.choice([8, 16, 32, 64])), cache_swizzle=True)
        return Access(resource, None, memory_cases.scattered(rng, span), 0, uniform)
    if form == "indexed":
        return Access(Resource(base, records, stride), index, None, int(rng.integers(0, 10)) * 16, uniform)
    return Access(Resource(base, records, stride), index, offset, 0, uniform)


def put_access(wave: Wave, rng: np.random.Generator, given: Access) -> tuple[str, str]:
    """The operands in registers; the address operands' text and the modifiers'."""
    for i, word in enumerate(given.resource.words()):
        wave.sgprs[RESOURCE_AT + i] = word
    parts = [p for p in (given.index, given.offset) if p is not None]
    for i, part in enumerate(parts):
        wave.vgprs[ADDRESS_AT + i] = part.astype(np.uint32)
    vector = sources.register_text("v", ADDRESS_AT, len(parts)) if parts else "off"
    if given.uniform <= 64 and rng.random() < 0.5:
        scalar = str(given.uniform)
    else:
        at, scalar = (M0, "m0") if rng.random() < 0.3 else (OFFSET_AT, f"s{OFFSET_AT}")
        wave.sgprs[at] = given.uniform
    words = ["idxen"] * (given.index is not None) + ["offen"] * (given.offset is not None)
    return (f"{vector}, {sources.register_text('s', RESOURCE_AT, 4)}, {scalar}",
            " ".join([*words, f"offset:{given.immediate}"]))


def size_of(instruction: Instruction) -> int:
    """Bytes that a lane accesses at once; several dwords are placed and checked one by one."""
    width = instruction.operands["vdata"].width // 8
    return width // 2 if "cmpswap" in instruction.name else width


def _case(instruction: Instruction, rng: np.random.Generator, exec_mask: int, form: str, *, file: str = "v",
          alias: bool = False, returns: bool = False) -> MemoryCase:
    name = instruction.name
    wave = memory_cases.new_wave(rng, exec_mask)
    memory = _memory(instruction, rng)
    given = access(rng, form, size_of(instruction))
    if form == "uniform" and "load" not in name:
        # All lanes write the same place: one lane is enough.
        wave.set_scalar(126, 64, 1 << int(rng.integers(0, 64)))
    address, modifiers = put_access(wave, rng, given)
    atomic, width = "atomic" in name, max(32, instruction.operands["vdata"].width)
    loads = "load" in name
    at = ADDRESS_AT if alias and loads else RESULT_AT if loads else DATA_AT
    names: dict[str, Value] = {}
    if loads:
        data = sources.register_text(file, at, width // 32)
    else:
        bits = memory_cases.data(rng, instruction, width)
        if "cmpswap" in name:
            bits = _often_equal(rng, bits, width)
        data = memory_cases.fill(wave, file, at, bits, width)
    names["DATA"] = names["VDATA"] = memory_cases.operand(wave, file, at, width)
    returned = size_of(instruction) * 8
    names["RETURN_DATA"] = memory_cases.operand(wave, file, at, max(32, returned))
    back = loads or (atomic and returns)
    zero = values.constant("U", 64, 0)
    functions = {"CalcBufferAddr": functools.partial(_zero, zero), "address": functools.partial(_zero, zero)}
    if back and not loads:
        modifiers += " sc0"
    if loads:
        # What is out of range reads as zero.
        names["VDATA"] = values.value("B", width, np.zeros(64, object))
    return MemoryCase(instruction, f"{name} {data}, {address} {modifiers}", wave, names, memory, functions, wave.exec,
                      result=(file, at) if back else None, loaded="RETURN_DATA" if atomic else "VDATA",
                      width=width if loads else max(32, returned), mapped=given.place)


def _zero(zero: Value, *given: Value) -> Value:
    return zero


def _memory(instruction: Instruction, rng: np.random.Generator) -> Array:
    if "cmpswap" in instruction.name:
        width = "<u8" if "x2" in instruction.name else "<u4"
        return rng.integers(0, 4, BYTES // int(width[2:])).astype(width).view(np.uint8).copy()
    return memory_cases.hard_bytes(rng, instruction, BYTES)


def _often_equal(rng: np.random.Generator, bits: Array, width: int) -> Array:
    half, numbers = width // 2, bits.astype(object)
    compare = np.where(rng.random(64) < 0.7, rng.integers(0, 4, 64).astype(object), numbers >> half)
    whole = numbers & ((1 << half) - 1) | compare << half
    return whole if width > 64 else whole.astype(np.uint64)
