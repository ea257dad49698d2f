# SPDX-License-Identifier: MIT
"""Small device functions of kernels/hip/tile, one by one: rounding, packing, tile order, LDS banks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated

PROBE = Path(__file__).with_name("tile_probe.hip")
PARAMETERS = {"a": "void*", "b": "void*", "c": "void*", "count": "int", "tiles_m": "int"}


@pytest.fixture(scope="module")
def run(emulator: Emulator) -> emulated.Kernel:
    return emulated.Kernel(emulator, emulated.compiled(PROBE, "fp8_gemm"), "run", PARAMETERS)


def _rounded(run: emulated.Kernel, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rounded = np.zeros(len(bits), np.uint16)
    packed = np.zeros((len(bits), 2), np.uint32)
    assert run(bits.astype(np.uint32).view(np.float32), rounded, packed, len(bits), 0) == 0
    return rounded, packed


def test_bf16_rounds_to_nearest_even(run: emulated.Kernel) -> None:
    """All ties and their neighbours of some upper halves, up to the overflow to infinity."""
    upper = np.array([0x0000, 0x0001, 0x3F80, 0x3F81, 0x7F7F, 0x8000, 0xBF81, 0xFF7F, 0x7F80], np.uint32)[:, None]
    lower = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = np.where(upper == 0x7F80, upper << 16, (upper << 16) + lower).reshape(-1)      # infinity, but no NaN
    rounded, packed = _rounded(run, bits)
    even = (bits >> 16) & 1
    want = (bits >> 16) + ((bits & 0xFFFF) + even > 0x8000)
    np.testing.assert_array_equal(rounded, want)
    np.testing.assert_array_equal(packed, (want | want[::-1] << 16)[:, None].repeat(2, axis=1))


def test_nan_stays_nan(run: emulated.Kernel) -> None:
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFFC00000, 0xFFFF8000], np.uint32)
    rounded, packed = _rounded(run, bits)
    for half in (rounded, packed[:, 0] & 0xFFFF, packed[:, 0] >> 16):
        assert np.isnan(emulated.from_bf16(half)).all()


def _order(run: emulated.Kernel, tiles_m: int, tiles_n: int) -> np.ndarray:
    """For each workgroup: its place, its tile of a band, and its head and block if tiles_m are heads."""
    tiles = np.full((tiles_m * tiles_n, 5), -1, np.int32)
    assert run(None, None, tiles, tiles_m * tiles_n, tiles_m) == 0
    return tiles


@pytest.mark.parametrize(("tiles_m", "tiles_n"), [(1, 1), (1, 13), (3, 5), (4, 6), (9, 7), (16, 12)])
def test_every_tile_has_one_workgroup(run: emulated.Kernel, tiles_m: int, tiles_n: int) -> None:
    tiles, every = _order(run, tiles_m, tiles_n), [(m, n) for m in range(tiles_m) for n in range(tiles_n)]
    assert sorted(tiles[:, 0]) == list(range(len(every)))
    assert sorted(map(tuple, tiles[:, 1:3])) == every
    assert sorted(map(tuple, tiles[:, 3:])) == every


def test_a_die_gets_neighbouring_tiles(run: emulated.Kernel) -> None:
    """Workgroups 0, 8, 16, … land on one die: they must be consecutive tiles."""
    tiles = _order(run, 10, 10)
    for die in range(8):
        mine = tiles[die::8, 0]
        np.testing.assert_array_equal(mine, mine[0] + np.arange(len(mine)))


@pytest.mark.parametrize(("heads", "blocks"), [(16, 5), (9, 4), (3, 7)])
def test_longest_blocks_of_all_heads_come_first(run: emulated.Kernel, heads: int, blocks: int) -> None:
    np.testing.assert_array_equal(_order(run, heads, blocks)[:, 4], np.arange(blocks)[::-1].repeat(heads))


def test_a_die_gets_all_blocks_of_neighbouring_heads(run: emulated.Kernel) -> None:
    tiles = _order(run, 24, 5)
    for die in range(8):
        assert set(tiles[die::8, 3]) == {3 * die, 3 * die + 1, 3 * die + 2}


READ_16 = [[*range(a, a + 4), *range(b, b + 4)] for half in (0, 32)
           for a, b in ((half, half + 20), (half + 4, half + 16), (half + 8, half + 28), (half + 12, half + 24))]
WRITE_16 = [list(range(first, first + 8)) for first in range(0, 64, 8)]
EITHER_8 = [list(range(first, first + 16)) for first in range(0, 64, 16)]
EITHER_4 = [list(range(first, first + 32)) for first in (0, 32)]
ACCESSES = {
    "fp8 columns, read": READ_16, "fp8 rows, read": READ_16, "fp8 transposed, write": EITHER_8,
    "keys 64, read": READ_16, "keys 64, write": WRITE_16, "keys 128, read": READ_16, "keys 128, write": WRITE_16,
    "keys 256, read": READ_16, "keys 256, write": WRITE_16, "keys 576, read": READ_16, "keys 576, write": WRITE_16,
    "values 64, read": READ_16, "values 64, write": WRITE_16,
    "values 128, read": READ_16, "values 128, write": WRITE_16, "values 32, read": READ_16,
    "fp8 halves, columns, read": READ_16, "fp8 halves, rows, read": READ_16, "fp8 halves, transposed, write": EITHER_4,
}


def test_both_ways_to_a_chunk_lead_to_the_same_place(run: emulated.Kernel) -> None:
    wrong = np.full(9, -1, np.int32)
    assert run(None, None, wrong, 64, -2) == 0
    assert not wrong.any()


@pytest.mark.parametrize("which", range(len(ACCESSES)), ids=list(ACCESSES))
def test_lanes_that_lds_serves_together_hit_different_banks(run: emulated.Kernel, which: int) -> None:
    """Writing values of 32 keys is left out: rows of 64 bytes at a distance of eight share one half of the banks."""
    offsets = np.zeros((len(ACCESSES) + 1, 8, 64), np.int32)
    assert run(None, None, offsets, 64, -1) == 0
    phases = list(ACCESSES.values())[which]
    size = 128 // len(phases[0])
    for access in offsets[which]:
        for lanes in phases:
            assert len(set(access[lanes] % 128 // size)) == len(lanes)
