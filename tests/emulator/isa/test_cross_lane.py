# SPDX-License-Identifier: MIT
"""Instructions in which lanes see each other, and those that move registers whole.

What is right is worked out here from the text of the "AMD Instinct MI300" ISA reference (DS_PERMUTE, DS_BPERMUTE,
DS_SWIZZLE, V_READLANE, V_SWAP, VGPR indexing, AccVGPRs), lane by lane.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.isa.memory_cases import new_wave, state_differences
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import M0, Emulator, EmulatorError, Wave

pytestmark = pytest.mark.toolchain("rocm")

FULL, SOME = (1 << 64) - 1, 0x8001_0F0F_3333_FFFE
LANES = np.arange(64)
MOVES = ["ds_permute_b32 v20, v4, v8", "ds_permute_b32 v4, v4, v8 offset:64", "ds_bpermute_b32 v20, v4, v8",
         "ds_bpermute_b32 v8, v4, v8 offset:20"]
# Masks: and, or, xor; 3 bits of quad permutation each; reductions, broadcasts, reversals within 32 lanes.
BITMASKS = list(itertools.product((0x1F, 0x1E, 0x10, 0), (0, 1, 0x0B), (0, 1, 0x10, 0x1F)))
QUADS = [(0, 1, 2, 3), (3, 2, 1, 0), (0, 0, 0, 0), (2, 3, 0, 1), (1, 1, 3, 3)]
ROTATIONS = [(by, down, mask) for by in (1, 7, 31) for down in (0, 1) for mask in (0, 0x18)]
FOURIER = [0, 0x10, 0x18, 0x1F]
READS = ["v_readlane_b32 s20, v8, s4", "v_readlane_b32 s20, v8, 37", "v_readlane_b32 vcc_lo, v8, m0",
         "v_readlane_b32 s7, v8, 63", "v_readlane_b32 s4, v8, s4"]
FIRSTS = ["v_readfirstlane_b32 s20, v8", "v_readfirstlane_b32 vcc_hi, v8"]
WRITES = ["v_writelane_b32 v8, s4, s4", "v_writelane_b32 v8, s5, m0", "v_writelane_b32 v8, 17, 60",
          "v_writelane_b32 v8, 1.0, s4", "v_writelane_b32 v8, m0, 3"]
SWAPS = ["v_swap_b32 v4, v9", "v_accvgpr_write_b32 a3, v5", "v_accvgpr_write_b32 a3, 1.0", "v_accvgpr_read_b32 v6, a7",
         "v_accvgpr_mov_b32 a3, a7"]
NOTHING = ["v_nop", "v_nop_e64", "v_clrexcp", "v_clrexcp_e64"]
BY_INDEX = "s_set_gpr_idx_on s4, gpr_idx({})\n{}\ns_set_gpr_idx_off"
INDEXED = [("SRC0", "v_mov_b32 v20, v8"), ("DST", "v_mov_b32 v20, v8"), ("SRC0,DST", "v_mov_b32 v20, v8"),
           ("SRC1", "v_add_u32 v20, v8, v9"), ("SRC2", "v_fma_f32 v20, v8, v9, v10"),
           ("DST,SRC2", "v_fmac_f32 v20, v8, v9"), ("SRC0", "v_mov_b32 v20, s5"), ("SRC0", "v_readlane_b32 s20, v8, 5"),
           ("SRC0", "v_readfirstlane_b32 s20, v8"), ("DST", "v_writelane_b32 v20, s5, 9"),
           ("SRC1", "v_mov_b32 v20, v8")]


def swizzle(offset: int) -> str:
    return f"ds_swizzle_b32 v20, v4 offset:0x{offset:x}"


def bitmask(mask: tuple[int, int, int]) -> int:
    return mask[0] | mask[1] << 5 | mask[2] << 10


def quad(lanes: tuple[int, ...]) -> int:
    return 0x8000 | sum(lane << 2 * i for i, lane in enumerate(lanes))


SWIZZLES = [swizzle(o) for o in (*map(bitmask, BITMASKS), *map(quad, QUADS), *(0xC000 | d << 10 | b << 5 | m
                                                                             for b, d, m in ROTATIONS),
                                 *(0xE000 | m for m in FOURIER))]
SNIPPETS = Snippets([*MOVES, *SWIZZLES, *READS, *FIRSTS, *WRITES, *SWAPS, *NOTHING,
                     *(BY_INDEX.format(w, t) for w, t in INDEXED)])


def _wave(text: str, mask: int = SOME) -> Wave:
    wave = new_wave(np.random.default_rng(zlib.crc32(text.encode())), mask)
    wave.sgprs[4], wave.sgprs[M0] = 0xFFFFFFD5, 0x1234562A      # 21 and 42 in the bits that count
    return wave


def _check(text: str, before: Wave, right: Wave, emulator: Emulator) -> None:
    assert state_differences(before, right, SNIPPETS.run(text, before, emulator)) == []


@pytest.mark.parametrize("mask", [FULL, SOME])
@pytest.mark.parametrize("text", MOVES)
def test_permutations(text: str, mask: int, emulator: Emulator) -> None:
    before = _wave(text, mask)
    offset = int(text.split(":")[1]) if ":" in text else 0
    other = (before.vgprs[4].astype(np.int64) + offset) // 4 % 64
    sent = np.zeros(64, dtype=np.uint32)
    for lane in LANES:
        if "bpermute" in text:
            sent[lane] = before.vgprs[8][other[lane]] if before.exec[other[lane]] else 0
        elif before.exec[lane]:
            sent[other[lane]] = before.vgprs[8][lane]
    right = before.copy()
    right.vgprs[int(text.split(",")[0].split("v")[-1])][before.exec] = sent[before.exec]
    _check(text, before, right, emulator)


def _swizzled(offset: int, source: Callable[[int], int], mask: int, emulator: Emulator) -> None:
    text = swizzle(offset)
    before = _wave(text, mask)
    right = before.copy()
    for lane in np.flatnonzero(before.exec):
        other = source(int(lane) & 31) | int(lane) & 32
        right.vgprs[20][lane] = before.vgprs[4][other] if before.exec[other] else 0
    _check(text, before, right, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME])
def test_swizzle_by_masks(mask: int, emulator: Emulator) -> None:
    for masks in BITMASKS:
        _swizzled(bitmask(masks), lambda lane, m=masks: (lane & m[0] | m[1]) ^ m[2], mask, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME])
def test_swizzle_within_quads(mask: int, emulator: Emulator) -> None:
    for lanes in QUADS:
        _swizzled(quad(lanes), lambda lane, q=lanes: lane & ~3 | q[lane & 3], mask, emulator)


def test_swizzle_rotates(emulator: Emulator) -> None:
    for by, down, keep in ROTATIONS:
        def source(lane: int, by: int = by, down: int = down, keep: int = keep) -> int:
            return lane & keep | (lane - by if down else lane + by) & ~keep & 31
        _swizzled(0xC000 | down << 10 | by << 5 | keep, source, FULL, emulator)


def test_swizzle_reverses_bits(emulator: Emulator) -> None:
    for keep in FOURIER:
        def source(lane: int, keep: int = keep) -> int:
            return int(f"{lane:05b}"[::-1], 2) >> keep.bit_count() | lane & keep
        _swizzled(0xE000 | keep, source, FULL, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME, 0])
@pytest.mark.parametrize("text", READS)
def test_readlane_reaches_lanes_that_are_off(text: str, mask: int, emulator: Emulator) -> None:
    before = _wave(text, mask)
    lane = {"s4": 21, "m0": 42}.get(text.split(", ")[2]) or int(text.split(", ")[2])
    right = before.copy()
    right.sgprs[{"s20": 20, "vcc_lo": 106, "s7": 7, "s4": 4}[text.split()[1][:-1]]] = before.vgprs[8][lane]
    _check(text, before, right, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME, 1 << 63, 0])
@pytest.mark.parametrize("text", FIRSTS)
def test_readfirstlane(text: str, mask: int, emulator: Emulator) -> None:
    before = _wave(text, mask)
    right = before.copy()
    right.sgprs[20 if "s20" in text else 107] = before.vgprs[8][(mask & -mask).bit_length() - 1 if mask else 0]
    _check(text, before, right, emulator)


@pytest.mark.parametrize("mask", [FULL, 0])
@pytest.mark.parametrize("text", WRITES)
def test_writelane_reaches_lanes_that_are_off(text: str, mask: int, emulator: Emulator) -> None:
    before = _wave(text, mask)
    _, data, select = text.split(" ", 1)[1].split(", ")
    numbers = {"s4": int(before.sgprs[4]), "s5": int(before.sgprs[5]), "m0": int(before.sgprs[M0]), "1.0": 0x3F800000}
    right = before.copy()
    lane = numbers[select] & 63 if select in numbers else int(select)
    right.vgprs[8][lane] = numbers[data] if data in numbers else int(data)
    _check(text, before, right, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME])
@pytest.mark.parametrize("text", SWAPS)
def test_moves_between_registers(text: str, mask: int, emulator: Emulator) -> None:
    before = _wave(text, mask)
    right = before.copy()
    if "swap" in text:
        right.vgprs[4][before.exec] = before.vgprs[9][before.exec]
        right.vgprs[9][before.exec] = before.vgprs[4][before.exec]
    elif "write" in text:
        right.agprs[3][before.exec] = 0x3F800000 if "1.0" in text else before.vgprs[5][before.exec]
    elif "read" in text:
        right.vgprs[6][before.exec] = before.agprs[7][before.exec]
    else:
        right.agprs[3][before.exec] = before.agprs[7][before.exec]
    _check(text, before, right, emulator)


@pytest.mark.parametrize("text", NOTHING)
def test_nothing_happens(text: str, emulator: Emulator) -> None:
    before = _wave(text)
    _check(text, before, before, emulator)


def _float(bits: Array) -> Array:
    return bits.view(np.float32)


@pytest.mark.parametrize(("which", "text"), INDEXED)
def test_registers_by_index(which: str, text: str, emulator: Emulator) -> None:
    """M0 moves exactly the operands that the mode names, and vector registers only."""
    whole = BY_INDEX.format(which, text)
    before = _wave(whole)
    before.sgprs[4] = 3
    before.vgprs[8:14] = (before.vgprs[8:14] & 0x3FFFFFF) | 0x3C000000   # small floats
    before.vgprs[20:24] = (before.vgprs[20:24] & 0x3FFFFFF) | 0x3C000000
    by = {name: 3 * (name in which.split(",")) for name in ("SRC0", "SRC1", "SRC2", "DST")}
    right, on, v = before.copy(), before.exec, before.vgprs
    a, to = v[8 + by["SRC0"]], 20 + by["DST"]
    if "readlane" in text:
        right.sgprs[20] = a[5]
    elif "readfirstlane" in text:
        right.sgprs[20] = a[np.flatnonzero(on)[0]]
    elif "writelane" in text:
        right.vgprs[to][9] = before.sgprs[5]
    elif "mov" in text:
        right.vgprs[to][on] = int(before.sgprs[5]) if "s5" in text else a[on]
    elif "add" in text:
        right.vgprs[to][on] = (a + v[9 + by["SRC1"]])[on]
    else:
        addend = v[20 + by["SRC2"]] if "fmac" in text else v[10 + by["SRC2"]]
        exact = _float(a).astype(np.float64) * _float(v[9]) + _float(addend)
        right.vgprs[to][on] = exact.astype(np.float32).view(np.uint32)[on]
    bits = sum(bit for name, bit in (("SRC0", 1), ("SRC1", 2), ("SRC2", 4), ("DST", 8)) if name in which.split(","))
    right.sgprs[M0] = int(before.sgprs[M0]) & 0xFFFF0F00 | bits << 12 | 3
    _check(whole, before, right, emulator)


def test_index_beyond_the_registers_is_refused(emulator: Emulator) -> None:
    text = BY_INDEX.format("SRC0", "v_mov_b32 v20, v8")
    before = _wave(text)
    before.sgprs[4] = 200
    with pytest.raises(EmulatorError, match="VGPR index"):
        SNIPPETS.run(text, before, emulator)
