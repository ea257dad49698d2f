# SPDX-License-Identifier: MIT
"""Buffer loads and stores that convert: every data format with every number format, MUBUF and MTBUF."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Iterator

import numpy as np

from tests.emulator.isa import buffer_cases, buffer_formats, memory_cases, sources
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.buffer_model import IDENTITY, Access
from tests.emulator.isa.memory_cases import BASE, DATA_AT, MEMORY, RESULT_AT
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import Emulator, EmulatorError, Wave

BYTES = 8192
_COMPONENTS = ("x", "xy", "xyz", "xyzw")
_NUMBERS = (0, 1, 2, 3, 4, 5, 7)


@dataclasses.dataclass
class FormatCase:
    name: str
    text: str
    wave: Wave
    memory: Array
    access: Access
    formats: tuple[int, int]                # data, number
    components: int
    half: bool
    high: bool                              # 16 bits in the upper half of the register
    stores: bool
    code: bytes = b""


def names() -> list[str]:
    forms = [f"{verb}_format{half}_{parts}"
             for verb in ("load", "store") for half in ("", "_d16") for parts in _COMPONENTS]
    return [f"{kind}_{form}" for kind in ("buffer", "tbuffer") for form in forms] + [
        "buffer_load_format_d16_hi_x", "buffer_store_format_d16_hi_x"]


@functools.cache
def cases() -> list[FormatCase]:
    """Those that gfx942 has, assembled."""
    tried = [case for name in names() for case in _cases(name)]
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]


def _cases(name: str) -> Iterator[FormatCase]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    half, stores = "d16" in name, "store" in name
    for data_format in buffer_formats.LAYOUTS:
        for number_format in _NUMBERS:
            if buffer_formats.has(data_format, number_format, half, stores):
                yield _case(name, rng, data_format, number_format)


def _case(name: str, rng: np.random.Generator, data_format: int, number_format: int) -> FormatCase:
    typed, half, stores = name.startswith("t"), "d16" in name, "store" in name
    count = len(name.rsplit("_", 1)[1])
    wave = memory_cases.new_wave(rng, int(rng.integers(1, 1 << 63)) << 1 if rng.random() < 0.5 else (1 << 64) - 1)
    form = str(rng.choice(["raw", "indexed", "both"]))
    access = buffer_cases.access(rng, form, 16)
    select = IDENTITY
    if not typed and not stores and rng.random() < 0.5:
        select = tuple(int(s) for s in rng.choice([0, 1, 4, 5, 6, 7], 4))
    access.resource = dataclasses.replace(access.resource, select=select, number_format=number_format,
                                          data_format=data_format)
    address, modifiers = buffer_cases.put_access(wave, rng, access)
    registers = (count + 1) // 2 if half else count
    for i in range(4 if stores else 0):
        low, high = (sources.hard_numbers(rng, "F16", 16) for _ in range(2))
        if number_format in (4, 5):
            wave.vgprs[DATA_AT + i] = sources.hard_numbers(rng, "U32", 32).astype(np.uint32) >> rng.integers(0, 32)
        elif half:
            wave.vgprs[DATA_AT + i] = (low | high << np.uint64(16)).astype(np.uint32)
        else:
            wave.vgprs[DATA_AT + i] = sources.hard_numbers(rng, "F32", 32).astype(np.uint32)
    data = sources.register_text("v", DATA_AT if stores else RESULT_AT, registers)
    tail = f"dfmt:{data_format}, nfmt:{number_format}," if typed else ""
    parts = address.split(", ")
    text = f"{name} {data}, {parts[0]}, {parts[1]}, {tail} {parts[2]} {modifiers}" if typed else \
        f"{name} {data}, {address} {modifiers}"
    memory = rng.integers(0, 256, BYTES, dtype=np.uint8)
    formats = data_format, number_format
    return FormatCase(name, text, wave, memory, access, formats, count, half, "_hi_" in name, stores)


def differences(case: FormatCase, emulator: Emulator) -> list[str]:
    after, memory = (_stored if case.stores else _loaded)(case)
    MEMORY[:BYTES] = case.memory
    try:
        found = emulator.execute(case.code, case.wave)
    except EmulatorError as error:
        return [str(error)]
    wrong = memory_cases.state_differences(case.wave, after, found)
    wrong += memory_cases.byte_differences("memory", case.memory, memory, MEMORY[:BYTES])
    return [f"{line} ({case.formats})" for line in wrong]


def _loaded(case: FormatCase) -> tuple[Wave, Array]:
    data_format, number_format = case.formats
    after, bytes_ = case.wave.copy(), buffer_formats.size(data_format)
    address, inside = case.access.place(0, bytes_)
    offsets = np.where(inside, address.astype(np.int64) - BASE, 0)
    raw = [int.from_bytes(bytes(case.memory[o:o + bytes_]), "little") for o in offsets]
    fields = buffer_formats.components(raw, data_format)
    one = np.uint64(buffer_formats.one(number_format, case.half))
    by_code = {0: np.zeros(64, np.uint64), 1: np.full(64, one)}
    for i in range(4):
        there = i < len(fields)
        value = buffer_formats.loaded(fields[i], buffer_formats.LAYOUTS[data_format][i], number_format, case.half) \
            if there else np.full(64, one if i == 3 else 0, dtype=np.uint64)
        by_code[4 + i] = np.where(inside, value, np.uint64(0))
    typed = case.name.startswith("t")
    chosen = [by_code[(IDENTITY if typed else case.access.resource.select)[i]] for i in range(case.components)]
    if case.half:
        chosen.append(np.zeros(64, np.uint64))
        chosen = [chosen[i] | chosen[i + 1] << np.uint64(16) for i in range(0, case.components, 2)]
        if case.high:
            chosen = [chosen[0] << np.uint64(16)]
    for i, value in enumerate(chosen):
        after.vgprs[RESULT_AT + i][case.wave.exec] = value.astype(np.uint32)[case.wave.exec]
    return after, case.memory


def _stored(case: FormatCase) -> tuple[Wave, Array]:
    data_format, number_format = case.formats
    memory, bytes_ = case.memory.copy(), buffer_formats.size(data_format)
    address, inside = case.access.place(0, bytes_)
    raw, at = [0] * 64, 0
    for i, bits in enumerate(buffer_formats.LAYOUTS[data_format]):
        value = np.zeros(64, dtype=np.uint64)
        if i < case.components:
            register = case.wave.vgprs[DATA_AT + (i // 2 if case.half else i)].astype(np.uint64)
            value = register >> np.uint64(16 * (i % 2 or case.high)) & np.uint64(0xFFFF) if case.half else register
        field = buffer_formats.stored(value, bits, number_format, case.half)
        raw = [whole | int(f) << at for whole, f in zip(raw, field, strict=True)]
        at += bits
    for lane in np.flatnonzero(inside & case.wave.exec):
        offset = int(address[lane]) - BASE
        memory[offset:offset + bytes_] = np.frombuffer(raw[lane].to_bytes(bytes_, "little"), np.uint8)
    return case.wave.copy(), memory
