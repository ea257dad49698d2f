# SPDX-License-Identifier: MIT
"""kernels/hip/amd_moe/plan.h on the emulated MI300X: every tile has one workgroup, which all have as much to do."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated

PROBE = Path(__file__).with_name("plan_probe.hip")
PARAMETERS = {"first_row": "int*", "experts": "int", "first": "void*", "first_begin": "int*", "columns": "int",
              "second": "void*", "second_begin": "int*", "others": "int", "rows": "int", "queue": "void*"}
WORKGROUPS, DIES, UNIT, HIGHEST = 304, 8, 64, 4


@pytest.fixture(scope="module")
def binary() -> emulated.Binary:
    return emulated.compiled(PROBE, "amd_moe")


def effort(count: int) -> int:
    return 3 * -(-count // UNIT) + 5


def planned(emulator: Emulator, binary: emulated.Binary, rows: list[int], columns: tuple[int, int]) -> list[list[int]]:
    """Follows each workgroup; what each has to do, by product. ``rows``: of the experts, the shared one last."""
    first_row = np.cumsum([0, *rows]).astype(np.int32)
    capacity = ctypes.CDLL(str(binary.path)).capacity
    sizes = [int(capacity(int(first_row[-1]), len(rows) - 1, each)) for each in columns]
    tiles = [np.full((DIES * size, 4), -7, np.int32) for size in sizes]
    begins = [np.full(WORKGROUPS, -7, np.int32) for _ in columns]
    call = emulated.Kernel(emulator, binary, "plan", PARAMETERS)
    assert call(first_row, len(rows) - 1, tiles[0], begins[0], columns[0], tiles[1], begins[1], columns[1],
                int(first_row[-1]), None) == 0
    efforts = []
    for product in range(2):
        covered = np.zeros((first_row[-1], columns[product]), np.int32)
        loads = []
        for begin in begins[product]:
            at, load = int(begin), 0
            while at >= 0:
                first, count, expert_and_column, following = map(int, tiles[product][at])
                expert, column = expert_and_column & 0xFF, expert_and_column >> 8
                assert 1 <= count <= HIGHEST * UNIT
                assert first_row[expert] <= first <= first + count <= first_row[expert + 1]
                covered[first:first + count, column] += 1
                load += effort(count)
                at = following
            assert at == -1
            loads.append(load)
        assert (covered == 1).all(), f"{(covered != 1).sum()} of {covered.size} rows and columns"
        efforts.append(loads)
    return efforts


@pytest.mark.parametrize(("rows", "columns"), [
    ([0, 0, 1, 1], (1, 2)),                                   # one token
    ([700, 0, 700], (2, 3)),                                  # half of all is the shared expert's
    ([35] * 20 + [700], (1, 2)),
    ([35] * 20 + [700], (4, 7)),
    ([300] * 20 + [6000], (4, 9)),
    ([64 * n % 700 for n in range(63)] + [900], (5, 28)),     # as many experts as there can be
    ([4000, 3, 5, 64, 65, 4063], (3, 16)),                    # one has nearly all
    ([320] * 60 + [1] * 3 + [4801], (16, 28)),                # tiles of two and three units
    ([1] * 60 + [2048, 1020, 1] + [3129], (33, 8)),
])
def test_every_tile_has_one_workgroup(
        emulator: Emulator, binary: emulated.Binary, rows: list[int], columns: tuple[int, int]) -> None:
    planned(emulator, binary, rows, columns)


@pytest.mark.parametrize(("tokens", "most"), [(2048, 1.25), (8192, 1.09)])
def test_workgroups_end_together(emulator: Emulator, binary: emulated.Binary, tokens: int, most: float) -> None:
    """The challenge's shapes: 32 experts, four of them for each token."""
    rng = np.random.default_rng(tokens)
    chosen = np.argsort(rng.random((tokens, 32)), axis=1)[:, :4]
    for loads in planned(emulator, binary, [*np.bincount(chosen.ravel(), minlength=32).tolist(), tokens], (16, 28)):
        assert max(loads) <= most * np.mean(loads)
