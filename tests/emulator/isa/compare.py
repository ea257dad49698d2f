# SPDX-License-Identifier: MIT
"""Compare states bit for bit, save where ``corrections.TOLERANCES`` grants more than one answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.emulator.isa import fast, floats
from tests.emulator.isa.corrections import TOLERANCES, Tolerance
from tests.emulator.isa.floats import Format
from tests.emulator.isa.opcodes import Instruction
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import Wave

_FORMATS = {"f16": floats.F16, "f32": floats.F32, "f64": floats.F64}


def differences(instruction: Instruction, before: Wave, right: Wave, found: Wave, destination: int,
                operands: Sequence[Array], enabled: Array, high: bool = False, placed: bool = False,
                modified: bool = False) -> list[str]:
    """``high``: the result is in the upper half; ``placed``: in either (SDWA); ``modified``: with OMOD or CLAMP."""
    wrong = []
    if (tolerance := TOLERANCES.get(instruction.name)) and tolerance.any:
        return []
    result = instruction.operands.get("vdst")
    compared = set()
    if result and result.where == "VGPR" and not instruction.name.startswith("v_cmp"):
        registers = max(1, result.width // 32)
        compared = set(range(destination, destination + registers))
        wrong += _result(instruction, right, found, destination, operands, (high, placed, modified))
    for at in np.flatnonzero((right.vgprs != found.vgprs).any(axis=1)):
        if at not in compared:
            lane = int(np.flatnonzero(right.vgprs[at] != found.vgprs[at])[0])
            wrong.append(f"v{at} lane {lane}: {found.vgprs[at][lane]:#010x}, right is {right.vgprs[at][lane]:#010x} "
                         f"(before {before.vgprs[at][lane]:#010x})")
    return wrong + scalar_differences(right, found)


def scalar_differences(right: Wave, found: Wave) -> list[str]:
    wrong = [f"scalar {int(at)}: {found.sgprs[at]:#010x}, right is {right.sgprs[at]:#010x}"
             for at in np.flatnonzero(right.sgprs != found.sgprs)]
    if right.scc != found.scc:
        wrong.append(f"scc: {found.scc}, right is {right.scc}")
    if right.mode != found.mode:
        wrong.append(f"mode: {found.mode:#x}, right is {right.mode:#x}")
    if not np.array_equal(right.lds, found.lds):
        at = int(np.flatnonzero(right.lds != found.lds)[0])
        wrong.append(f"lds byte {at}: {found.lds[at]:#04x}, right is {right.lds[at]:#04x}")
    return wrong


def _result(instruction: Instruction, right: Wave, found: Wave, at: int, operands: Sequence[Array],
            how: tuple[bool, bool, bool]) -> list[str]:
    high, placed, modified = how
    result = instruction.operands["vdst"]
    fmt = _FORMATS.get(result.floating)
    tolerance = TOLERANCES.get(instruction.name)
    count = max(1, result.width // 32)
    a = [right.vgprs[at + i].astype(np.uint64) for i in range(count)]
    b = [found.vgprs[at + i].astype(np.uint64) for i in range(count)]
    if fmt is floats.F64:
        a, b = [a[0] | a[1] << np.uint64(32)], [b[0] | b[1] << np.uint64(32)]
    good = np.ones(64, dtype=bool)
    for x, y in zip(a, b, strict=True):
        if fmt is floats.F16:
            for shift in (np.uint64(0), np.uint64(16)):
                mine, other = x >> shift & np.uint64(0xFFFF), y >> shift & np.uint64(0xFFFF)
                # Only the half that was computed may differ as floats do.
                computed = placed or result.kind != "F16" or (shift == 16) == (high or "mixhi" in instruction.name)
                good &= _close(fmt, mine, other, tolerance, operands, modified) if computed else mine == other
        elif fmt:
            good &= _close(fmt, x, y, tolerance, operands, modified)
        elif tolerance and tolerance.ulps:
            good &= _bytes_close(x, y)
        elif tolerance and tolerance.near_integer:
            good &= np.abs(x.astype(np.int64) - y.astype(np.int64)) <= 1
        else:
            good &= x == y
    if good.all():
        return []
    lane = int(np.flatnonzero(~good)[0])
    shown = ", ".join(f"{int(o[lane]):#x}" for o in operands)
    words = [f"{int(w[lane]):#x}" for w in b], [f"{int(w[lane]):#x}" for w in a]
    return [f"v{at} lane {lane} ({int((~good).sum())} lanes): {' '.join(words[0])}, right is {' '.join(words[1])}; "
            f"operands {shown}"]


def _bytes_close(x: Array, y: Array) -> Array:
    near = np.ones(len(x), dtype=bool)
    for shift in range(0, 32, 8):
        a, b = ((v >> np.uint64(shift) & np.uint64(0xFF)).astype(np.int64) for v in (x, y))
        # Sign and magnitude: the neighbours of 0 are 1 and 0x81.
        a, b = (np.where(v > 0x80, 0x80 - v, v) for v in (a, b))
        near &= np.abs(a - b) <= 1
    return near


def _close(fmt: Format, right: Array, found: Array, tolerance: Tolerance | None, operands: Sequence[Array],
           modified: bool) -> Array:
    nan = fast.is_nan(fmt, right)
    # Which NaN comes out is not published: any quiet one will do.
    quiet = (found & np.uint64(fmt.quiet)) != 0
    good = (right == found) | (nan & fast.is_nan(fmt, found) & quiet)
    if modified:
        # What CLAMP makes of -0 is not published, nor whether OMOD sees a denormal before it is flushed.
        magnitudes = [v & np.uint64(fmt.sign - 1) for v in (right, found)]
        good |= (magnitudes[0] == 0) & (magnitudes[1] < np.uint64(8 << fmt.mbits))
    if not tolerance:
        return good
    if tolerance.last:
        with np.errstate(all="ignore"):
            a, b, c = (fast.numbers(fmt, o).astype(np.float64) for o in operands)
            good |= ~(np.abs(a * b) < np.abs(c) / 4)
    if tolerance.quotient:
        above, below = (operands[i] >> np.uint64(fmt.mbits) & np.uint64(fmt.emax) for i in (2, 1))
        good |= np.abs(above.astype(np.int64) - below.astype(np.int64)) >= fmt.bias
    if tolerance.ulps:
        keys = [_ordered(fmt, v) for v in (right, found)]
        good |= ~nan & ~fast.is_nan(fmt, found) & (np.abs(keys[0] - keys[1]) <= tolerance.ulps)
    with np.errstate(invalid="ignore", over="ignore"):
        x, y = (fast.numbers(fmt, v).astype(np.float64) for v in (right, found))
        if tolerance.absolute:
            # Beyond 256 turns the result is not defined by the manual.
            turns = np.abs(fast.numbers(fmt, operands[0] & np.uint64((1 << fmt.width) - 1)).astype(np.float64))
            good |= (np.abs(x - y) <= tolerance.absolute) | (turns > 256)
        if tolerance.dot:
            good |= np.abs(x - y) <= _dot_bound(operands)
            good |= ~np.isfinite(x) & ~np.isfinite(y) & (np.isnan(x) | np.isnan(y))
    if tolerance.flushed:
        tiny = fast.flushed(fmt, right) != right
        good |= tiny & ((found & np.uint64(fmt.sign - 1)) == 0)
        if operands[0].dtype != object:
            denormal = fast.flushed(fmt, operands[0] & np.uint64(2 * fmt.sign - 1)) != operands[0] & np.uint64(
                2 * fmt.sign - 1)
            good |= denormal
    return good


def _ordered(fmt: Format, bits: Array) -> Array:
    magnitude = (bits & np.uint64(fmt.sign - 1)).astype(np.int64)
    return np.where(bits >= np.uint64(fmt.sign), -magnitude, magnitude)


def _dot_bound(operands: Sequence[Array]) -> Array:
    """Two roundings of the largest sum that could have been made on the way."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros(64)
        for shift in (0, 16):
            x, y = (fast.numbers(floats.F16, o >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.float64)
                    for o in operands[:2])
            total = total + np.abs(x * y)
        if len(operands) > 2:
            total = total + np.abs(fast.numbers(floats.F32, operands[2]).astype(np.float64))
        return np.nan_to_num(total * 2.0 ** -22, nan=0.0, posinf=0.0) + 2.0 ** -148
