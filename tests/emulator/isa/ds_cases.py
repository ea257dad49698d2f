# SPDX-License-Identifier: MIT
"""LDS: every width, one and two addresses, atomics with and without return, lanes that are off or out of bounds."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator

import numpy as np

from tests.emulator.isa import memory_cases, sources
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.memory_cases import ADDRESS_AT, DATA2_AT, DATA_AT, RESULT_AT, MemoryCase, constant
from tests.emulator.isa.opcodes import Instruction, of_format
from tests.emulator.isa.values import Array, Value, value
from tests.emulator.isa.wave import M0

LDS_BYTES = 8192
# Cross-lane moves, the counters and what the emulator refuses: driven by tests of their own.
ELSEWHERE = re.compile(r"ds_(bpermute|permute|swizzle|gws|append|consume|nop)")
_TWO = re.compile(r"ds_(read|write|wrxchg)2(st64)?_")
_ATOMIC = re.compile(r"ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|mskor|wrxchg|cmpst|pk_add|wrap|condxchg)")


@functools.cache
def cases() -> list[MemoryCase]:
    """Those that gfx942 has, assembled."""
    tried = memory_cases.flatten(_cases(i) for i in of_format("DS") if not ELSEWHERE.match(i.name))
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]


def _cases(instruction: Instruction) -> Iterator[MemoryCase]:
    rng = np.random.default_rng(zlib.crc32(instruction.name.encode()))
    full, some, few = memory_cases.masks(rng)
    build = functools.partial(_case, instruction, rng)
    yield build(full)
    yield build(some)
    yield build(full, alias=True)
    yield build(full, file="a")
    yield build(some, outside=True)
    if _ATOMIC.match(instruction.name):
        yield build(few, meet=True)
        yield build(few, meet=True, file="a")
    else:
        yield build(full, misaligned=True)


def _case(instruction: Instruction, rng: np.random.Generator, exec_mask: int, *, file: str = "v", alias: bool = False,
          outside: bool = False, meet: bool = False, misaligned: bool = False) -> MemoryCase:
    name, operands = instruction.name, instruction.operands
    wave = memory_cases.new_wave(rng, exec_mask, LDS_BYTES)
    wave.lds = memory_cases.hard_bytes(rng, instruction, LDS_BYTES)
    two, spread = bool(_TWO.match(name)), 64 if "st64" in name else 1
    where, offsets = _places(rng, two, spread, _size(instruction), meet, misaligned)
    if outside:
        where = np.where(rng.random(64) < 0.3, where + 3 * LDS_BYTES, where)
    names: dict[str, Value] = {}
    texts = []
    result = operands.get("vdst")
    at = ADDRESS_AT if alias else RESULT_AT
    if result:
        texts.append(sources.register_text(file, at, max(1, result.width // 32)))
    if "addr" in operands:
        texts.append(memory_cases.fill(wave, "v", ADDRESS_AT, where, 32))
    else:
        wave.sgprs[M0] = int(rng.integers(0, 512)) * 4 | int(rng.integers(0, 1 << 16)) << 16
    for i, (key, register) in enumerate((("data0", DATA_AT), ("data1", DATA2_AT))):
        if key in operands:
            bits = memory_cases.data(rng, instruction, operands[key].width)
            memory_cases.put_zeros(rng, instruction, wave.lds, where + offsets[0], bits)
            if "cmpst" in name and i == 0:
                bits = _often_equal(rng, wave.lds, where + offsets[0], bits, operands[key].width)
            texts.append(memory_cases.fill(wave, file, register, bits, operands[key].width))
            names["DATA" if i == 0 else "DATA2"] = memory_cases.operand(wave, file, register, operands[key].width)
    width = max(32, result.width) if result else 32
    if result:
        names["RETURN_DATA"] = memory_cases.operand(wave, file, at, width)
    if "DATA" in names:
        names["DATA0"] = names["DATA"]
    number = offsets[0] | offsets[1] << 8 if two else offsets[0]
    names |= {"ADDR": memory_cases.operand(wave, "v", ADDRESS_AT, 32), "OFFSET": constant(number, 16),
              "OFFSET0": constant(number & 255, 8), "OFFSET1": constant(number >> 8, 8),
              "M0": constant(int(wave.sgprs[M0]), 32)}
    names["ADDR_BASE"] = names["ADDR"]
    text = f"{name} {', '.join(texts)} {_offset_text(two, offsets)}"
    return MemoryCase(instruction, text, wave, names, wave.lds, _addresses(names, number), wave.exec, lds=True, base=0,
                      result=(file, at) if result else None, loaded="RETURN_DATA", width=width, in_order=meet)


def _addresses(names: dict[str, Value], number: int) -> dict[str, functools.partial[Value]]:
    def whole(*given: Value, plain: bool = False) -> Value:
        # The program adds the offset itself where it asks for the address with offsets of zero.
        without = len(given) == 3 and given[1].width == 32 and not any(int(g.bits[0]) for g in given[1:])
        offset = 0 if without and not plain else number
        return value("U", 32, (names["ADDR"].bits + np.uint64(offset)) & np.uint64(0xFFFFFFFF))

    return {"CalcDsAddr": functools.partial(whole), "address": functools.partial(whole, plain=True)}


def _size(instruction: Instruction) -> int:
    match = re.search(r"_[biuf](8|16|32|64|96|128)(_|$)", instruction.name)
    return int(match.group(1)) // 8 if match and "pk" not in instruction.name else 4


def _places(rng: np.random.Generator, two: bool, spread: int, size: int, meet: bool, misaligned: bool
            ) -> tuple[Array, tuple[int, int]]:
    """What the address register holds, and the offsets."""
    if two and spread == 64:
        first, second = (int(x) for x in rng.choice(LDS_BYTES // (64 * size) - 2, 2, replace=False))
        return memory_cases.scattered(rng, size) + (4 if misaligned else 0), (first, second)
    if two and rng.random() < 0.5:          # the lanes' data one after the other, at two distant places
        first, second = (int(x) for x in rng.permutation([rng.integers(0, 100), rng.integers(165, 256)]))
        return memory_cases.scattered(rng, size) + (4 if misaligned else 0), (first, second)
    if two:                                 # both data of a lane close together
        first, second = (int(x) for x in rng.choice(min(64 // size, 8), 2, replace=False))
        return memory_cases.scattered(rng, 64) + (4 if misaligned else 0), (first, second)
    offset = int(rng.integers(0, 512)) * 8
    first = 0 if meet else 8 * int(rng.integers(0, 16))
    where = memory_cases.scattered(rng, 16, first) + (int(rng.integers(1, 4)) if misaligned else 0)
    return (where % 64 if meet else where), (offset, 0)


def _often_equal(rng: np.random.Generator, lds: Array, where: Array, bits: Array, width: int) -> Array:
    size = width // 8
    there = np.array([int.from_bytes(bytes(lds[w:w + size]), "little") for w in where.astype(int)], dtype=np.uint64)
    return np.where(rng.random(64) < 0.6, there, bits)


def _offset_text(two: bool, offsets: tuple[int, int]) -> str:
    return f"offset0:{offsets[0]} offset1:{offsets[1]}" if two else f"offset:{offsets[0]}"
