# SPDX-License-Identifier: MIT
"""Scalar memory: loads, stores and atomics by address and by buffer, within bounds and not."""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from collections.abc import Iterator

import numpy as np

from tests.emulator.isa import memory_cases, sources, values
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.evaluate import environment
from tests.emulator.isa.memory import Bytes, Mapped
from tests.emulator.isa.memory_cases import BASE, MEMORY
from tests.emulator.isa.opcodes import Instruction, of_format
from tests.emulator.isa.pcode import compiled
from tests.emulator.isa.values import Array, Value
from tests.emulator.isa.wave import M0, Emulator, EmulatorError, Wave, random_wave

BYTES = 4096
BASE_AT, OFFSET_AT, DATA_AT = 8, 2, 16
# Clocks and caches; and what names a wave's scratch memory by where the hardware keeps it.
ELSEWHERE = re.compile("s_(memtime|memrealtime|dcache|atc|scratch)")


@dataclasses.dataclass
class ScalarMemoryCase:
    instruction: Instruction
    text: str
    wave: Wave
    memory: Array
    address: int
    limit: int                      # bytes from BASE that may be accessed
    width: int
    returned: int                   # bits that come back, 0 for none
    code: bytes = b""


@functools.cache
def cases() -> list[ScalarMemoryCase]:
    """Those that gfx942 has, assembled."""
    tried = [c for i in of_format("SMEM") if not ELSEWHERE.match(i.name) for c in _cases(i)]
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]


def _cases(instruction: Instruction) -> Iterator[ScalarMemoryCase]:
    rng = np.random.default_rng(zlib.crc32(instruction.name.encode()))
    for form in ("immediate", "register", "both", "m0", "negative", "beyond", "edge"):
        yield _case(instruction, rng, form)


def _case(instruction: Instruction, rng: np.random.Generator, form: str) -> ScalarMemoryCase:
    name = instruction.name
    wave = random_wave(rng)
    buffer, atomic = "buffer" in name, "atomic" in name
    memory = rng.integers(0, 8, BYTES // 4).astype("<u4").view(np.uint8).copy() if atomic else \
        rng.integers(0, 256, BYTES, dtype=np.uint8)
    width = max(32, instruction.operands["sdata"].width)
    size = width // 16 if "cmpswap" in name else width // 8
    align = size if atomic else 4
    offset = int(rng.integers(0, 200)) * align
    begin = 1024 + int(rng.integers(0, 16)) * 16
    if form == "negative" and not buffer:
        begin += 1024
        offset = -offset
    stride = int(rng.choice([0, 16])) if buffer else 0
    records = 2000 // 16 * 16
    if form == "beyond":
        offset = records + 64
    if form == "edge":
        offset = records - (size if atomic else max(4, size // 2))  # the second half is out of range
    wave.set_scalar(BASE_AT, 64, BASE + begin | stride << 48)
    if buffer:
        wave.sgprs[BASE_AT + 2] = records // stride if stride else records
    texts, uniform = [], 0
    if form in ("register", "both", "m0"):
        uniform = int(rng.integers(0, 20)) * align
        at, register = (M0, "m0") if form == "m0" else (OFFSET_AT, f"s{OFFSET_AT}")
        # The two lowest bits count as zero.
        wave.sgprs[at] = uniform | (int(rng.integers(0, 4)) if not atomic else 0)
        texts.append(f"{register} offset:0x{offset:x}" if form == "both" else register)
        if form != "both":
            offset = 0
    else:
        texts.append(str(offset) if offset < 0 else f"0x{offset:x}")
    if "store" in name or atomic:
        for i in range(width // 32):
            wave.sgprs[DATA_AT + i] = int(rng.integers(0, 8)) if atomic else int(rng.integers(0, 1 << 32))
    returned = size * 8 if atomic else width if "load" in name else 0
    if atomic and form in ("register", "m0", "beyond"):
        texts[-1] += " glc"
    elif atomic:
        returned = 0
    data = sources.register_text("s", DATA_AT, width // 32)
    base = sources.register_text("s", BASE_AT, 4 if buffer else 2)
    limit = begin + records if buffer else BYTES
    return ScalarMemoryCase(instruction, f"{name} {data}, {base}, {', '.join(texts)}", wave, memory,
                            BASE + begin + offset + uniform, limit, width, returned)


def differences(case: ScalarMemoryCase, emulator: Emulator) -> list[str]:
    after, memory = expected(case)
    MEMORY[:BYTES] = case.memory
    try:
        found = emulator.execute(case.code, case.wave)
    except EmulatorError as error:
        return [str(error)]
    wrong = memory_cases.state_differences(case.wave, after, found)
    return wrong + memory_cases.byte_differences("memory", case.memory, memory, MEMORY[:BYTES])


def expected(case: ScalarMemoryCase) -> tuple[Wave, Array]:
    after, memory = case.wave.copy(), case.memory.copy()
    buffer = "buffer" in case.instruction.name

    def place(further: int, size: int) -> tuple[Array, Array]:
        where = case.address + further
        return np.array([where], np.uint64), np.array([not buffer or where - BASE + size <= case.limit])

    data = sum(int(case.wave.sgprs[DATA_AT + i]) << (32 * i) for i in range(case.width // 32))
    loads = "load" in case.instruction.name
    given = values.value("B", case.width, np.array([0 if loads else data], dtype=object))
    names = {"SDATA": given, "DATA": given, "RETURN_DATA": values.constant("B", max(32, case.returned), 0)}
    names |= {name: values.constant("B", 64, 0) for name in ("SBASE", "SOFFSET", "OFFSET")}
    env = environment(names, 1)
    env.memory = Mapped(Bytes(memory, BASE), place)
    zero = values.constant("U", 64, 0)
    calls = ("CalcScalarGlobalAddr", "CalcScalarBufferAddr", "address")
    env.functions = {name: functools.partial(_always, zero) for name in calls}
    compiled(case.instruction.program).run(env)
    if case.returned:
        result = env.names["SDATA" if loads else "RETURN_DATA"]
        after.set_scalar(DATA_AT, case.returned, int(values.extended(result, max(32, case.returned))[0]))
    return after, memory


def _always(zero: Value, *given: Value) -> Value:
    return zero
