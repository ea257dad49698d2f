# SPDX-License-Identifier: MIT
"""Small device functions of kernels/hip/tile, one by one: rounding, packing, tile order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.hip import host

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler for the host: install g++ or ziglang")

SOURCE = r"""
#include "launch.h"
#include "tile/bf16.h"
#include "tile/grid.h"

__global__ void round(const float* in, uint16_t* rounded, uint32_t* packed, int count) {
    const int i = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
    if (i >= count) return;
    rounded[i] = to_bf16(in[i]);
    packed[2 * i] = pack_bf16(in[i], in[count - 1 - i]);
    packed[2 * i + 1] = pack_bf16_finite(in[i], in[count - 1 - i]);
}

__global__ void order(int* tiles, int count, int tiles_m, int tiles_n) {
    const int i = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
    if (i >= count) return;
    tiles[3 * i] = die_contiguous(i, count);
    const TileIndex tile = banded_tile<4>(i, tiles_m, tiles_n);
    tiles[3 * i + 1] = tile.m;
    tiles[3 * i + 2] = tile.n;
}

extern "C" int run(void* a, void* b, void* c, int count, int tiles_m) {
    const dim3 grid(static_cast<unsigned>(count + 63) / 64);
    if (tiles_m == 0) LAUNCH(round, grid, dim3(64), 0, a)(
        static_cast<float*>(a), static_cast<uint16_t*>(b), static_cast<uint32_t*>(c), count);
    else LAUNCH(order, grid, dim3(64), 0, a)(static_cast<int*>(c), count, tiles_m, count / tiles_m);
    return LAUNCH_STATUS();
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> host.HostKernel:
    folder = tmp_path_factory.mktemp("tile")
    source = folder / "probe.hip"
    source.write_text(SOURCE)
    return host.HostKernel(host.build_file(source, "fp8_gemm", folder / "probe.so"), "run")


def _rounded(run: host.HostKernel, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rounded = host.Guarded(np.zeros(len(bits), np.uint16))
    packed = host.Guarded(np.zeros((len(bits), 2), np.uint32))
    assert run(host.Guarded(bits.astype(np.uint32).view(np.float32)), rounded, packed, len(bits), 0) == 0
    return rounded.array.copy(), packed.array.copy()


def test_bf16_rounds_to_nearest_even(run: host.HostKernel) -> None:
    """All ties and their neighbours of some upper halves, up to the overflow to infinity."""
    upper = np.array([0x0000, 0x0001, 0x3F80, 0x3F81, 0x7F7F, 0x8000, 0xBF81, 0xFF7F, 0x7F80], np.uint32)[:, None]
    lower = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = np.where(upper == 0x7F80, upper << 16, (upper << 16) + lower).reshape(-1)      # infinity, but no NaN
    rounded, packed = _rounded(run, bits)
    even = (bits >> 16) & 1
    want = (bits >> 16) + ((bits & 0xFFFF) + even > 0x8000)
    np.testing.assert_array_equal(rounded, want)
    np.testing.assert_array_equal(packed, (want | want[::-1] << 16)[:, None].repeat(2, axis=1))


def test_nan_stays_nan(run: host.HostKernel) -> None:
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFFC00000, 0xFFFF8000], np.uint32)
    rounded, packed = _rounded(run, bits)
    for half in (rounded, packed[:, 0] & 0xFFFF, packed[:, 0] >> 16):
        assert np.isnan(host.from_bf16(half)).all()


@pytest.mark.parametrize(("tiles_m", "tiles_n"), [(1, 1), (1, 13), (3, 5), (4, 6), (9, 7), (16, 12)])
def test_every_tile_has_one_workgroup(run: host.HostKernel, tiles_m: int, tiles_n: int) -> None:
    count = tiles_m * tiles_n
    tiles = host.Guarded(np.full((count, 3), -1, np.int32))
    assert run(None, None, tiles, count, tiles_m) == 0
    assert sorted(tiles.array[:, 0]) == list(range(count))
    assert sorted(map(tuple, tiles.array[:, 1:])) == [(m, n) for m in range(tiles_m) for n in range(tiles_n)]


def test_a_die_gets_neighbouring_tiles(run: host.HostKernel) -> None:
    """Workgroups 0, 8, 16, … land on one die: they must be consecutive tiles."""
    tiles = host.Guarded(np.full((100, 3), -1, np.int32))
    assert run(None, None, tiles, 100, 10) == 0
    for die in range(8):
        mine = tiles.array[die::8, 0]
        np.testing.assert_array_equal(mine, mine[0] + np.arange(len(mine)))
