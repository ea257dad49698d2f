# SPDX-License-Identifier: MIT
"""What vector arithmetic leaves behind, by the manual's program; and whether that is what the emulator left."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from tests.emulator.isa import fast, floats, values
from tests.emulator.isa.compare import differences
from tests.emulator.isa.evaluate import environment
from tests.emulator.isa.opcodes import formats
from tests.emulator.isa.pcode import compiled
from tests.emulator.isa.valu_cases import Case
from tests.emulator.isa.values import Array, Value
from tests.emulator.isa.wave import EXEC, Wave

_FORMATS = {"f16": floats.F16, "f32": floats.F32, "f64": floats.F64}
_HALF = re.compile(r"D0\.(b16|[fiu]16)\s*=[^=]")
_LANES = np.arange(64)
_KEEP_DENORMALS = 0xF0


def expected(cases: Sequence[Case]) -> Iterable[tuple[Case, Wave]]:
    """The state after each case. Cases that differ in operands alone run together."""
    def key(case: Case) -> tuple[str, str, int, bool, str]:
        fixed = ",".join(f"{k}={v.bits[0]}" for k, v in sorted(case.names.items()))
        return case.instruction.name, case.instruction.format, case.wave.mode, case.saturates, fixed

    for _, group in itertools.groupby(sorted(cases, key=key), key):
        yield from _together(list(group))


def _together(cases: list[Case]) -> Iterable[tuple[Case, Wave]]:
    first = cases[0]
    lanes = 64 * len(cases)
    names: dict[str, Value] = dict(first.names)
    for i in range(3):
        rows = [c.operands[i] for c in cases if i < len(c.operands)]
        width = 128 if any(r.dtype == object for r in rows) else 64
        names[f"S{i}"] = values.value("B", width, np.concatenate(rows)) if rows else values.constant("B", 32, 0)
    result = first.instruction.operands.get("vdst")
    is_compare = first.instruction.name.startswith("v_cmp")
    width = 64 if is_compare else max(32, result.width if result else 32)
    old = np.concatenate([np.zeros(64, np.uint64) if is_compare else register(c.wave, c.destination, width)
                          for c in cases])
    names["D0"] = values.value("B", width, old)
    carry = np.repeat(np.array([c.carry_in for c in cases], dtype=np.uint64), 64)
    names["VCC"] = values.value("U", 64, carry)
    names["D1"] = values.constant("U", 1, 0)
    names["EXEC"] = values.value("U", 64, np.zeros(lanes, np.uint64))
    # Denormals have a class of their own in every mode.
    mode = first.wave.mode | (_KEEP_DENORMALS if "class" in first.instruction.name else 0)
    env = environment(names, lanes, mode, first.saturates)
    compiled(first.instruction.program).run(env)
    found = np.broadcast_to(values.extended(env.names["D0"], width), lanes)
    for i, case in enumerate(cases):
        part = slice(64 * i, 64 * (i + 1))
        after = case.wave.copy()
        if is_compare:
            _write_mask(case, after, found[part])
        else:
            bits = _finished(case, found[part], old[part])
            _write_register(case, after, bits, width)
            if case.writes_mask:
                source = "D1" if "D1.u1" in first.instruction.program or "D1.i1" in first.instruction.program else "VCC"
                mask = np.broadcast_to(values.extended(env.names[source], 64), lanes)[part]
                _write_mask(case, after, mask << _LANES.astype(np.uint64) if source == "D1" else mask)
        yield case, after


def register(wave: Wave, at: int, width: int) -> Array:
    if width <= 32:
        return wave.vgprs[at].astype(np.uint64)
    if width == 64:
        return wave.vgprs[at].astype(np.uint64) | wave.vgprs[at + 1].astype(np.uint64) << np.uint64(32)
    return sum(wave.vgprs[at + i].astype(object) << (32 * i) for i in range(width // 32))


def _write_mask(case: Case, after: Wave, bits: Array) -> None:
    """One bit a lane; lanes that are off give zero."""
    found = sum(1 << lane for lane in range(64) if case.enabled[lane] and int(bits[lane]) >> lane & 1)
    after.set_scalar(case.mask_to, 64, found)
    if case.instruction.name.startswith("v_cmpx"):
        after.set_scalar(EXEC, 64, found)


def _finished(case: Case, bits: Array, old: Array) -> Array:
    """Output modifiers, then the place in the register."""
    result = case.instruction.operands["vdst"]
    fmt = _FORMATS.get(result.floating)
    if fmt and (case.scale != 1.0 or case.clamp):
        elements = range(16, 32, 16) if "mixhi" in case.instruction.name else range(0, result.width, fmt.width)
        whole = np.zeros_like(bits)
        for at in elements:
            part = bits >> np.uint64(at) & np.uint64((1 << fmt.width) - 1) if fmt.width < 64 else bits
            if case.scale != 1.0:
                factor = fast.encodings(fmt, np.array([case.scale]))
                part = fast.each(lambda a, b, f=fmt: floats.multiply(f, a, b, 0, True), part, factor)
                part = np.where(part == np.uint64(fmt.sign), np.uint64(0), part)
            if case.clamp:
                part = _clamped(fmt, part)
            whole |= part << np.uint64(at)
        kept = 0 if result.width >= 32 else 0xFFFF if "mixhi" in case.instruction.name else 0xFFFF0000
        bits = whole | bits & np.uint64(kept)
    if _HALF.search(case.instruction.program) or (result.width == 16 and "D0 = {" in case.instruction.program):
        low = bits & np.uint64(0xFFFF)
        if case.place:
            return case.place(low, old)
        if case.high:
            return old & np.uint64(0xFFFF) | low << np.uint64(16)
        # What only has the long encoding can choose halves, and leaves the other one alone.
        keeps = formats(case.instruction.name) == ["VOP3"] and "legacy" not in case.instruction.name
        return low | old & np.uint64(0xFFFF0000) if keeps else low
    return case.place(bits, old) if case.place else bits


def _clamped(fmt: floats.Format, bits: Array) -> Array:
    """To 0..1; NaN becomes 0 (DX10_CLAMP)."""
    one = np.uint64(fmt.bias << fmt.mbits)
    bits = np.where(fast.is_nan(fmt, bits) | (bits >= np.uint64(fmt.sign)), np.uint64(0), bits)
    return np.where(bits > one, one, bits)


def _write_register(case: Case, after: Wave, bits: Array, width: int) -> None:
    for i in range(width // 32):
        word = (bits >> 32 * i) & 0xFFFFFFFF if bits.dtype == object else bits >> np.uint64(32 * i)
        row = after.vgprs[case.destination + i]
        row[case.enabled] = (word & 0xFFFFFFFF if bits.dtype == object else word & np.uint64(0xFFFFFFFF)).astype(
            np.uint32)[case.enabled]


def mismatches(case: Case, right: Wave, found: Wave) -> list[str]:
    """What differs, in words; empty when nothing does."""
    return differences(case.instruction, case.wave, right, found, case.destination, case.operands, case.enabled,
                       case.high, case.place is not None, case.clamp or case.scale != 1.0)
