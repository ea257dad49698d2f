# SPDX-License-Identifier: MIT
"""Small device functions of kernels/hip/tile, one by one: rounding, packing, tile order, LDS banks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.hip import host

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler for the host: install g++ or ziglang")

SOURCE = r"""
#include "launch.h"
#include "tile/bf16.h"
#include "tile/fp8_k_outermost.h"
#include "tile/grid.h"
#include "tile/half_panel.h"

__global__ void round(const float* in, uint16_t* rounded, uint32_t* packed, int count) {
    const int i = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
    if (i >= count) return;
    rounded[i] = to_bf16(in[i]);
    packed[2 * i] = pack_bf16(in[i], in[count - 1 - i]);
    packed[2 * i + 1] = pack_bf16_finite(in[i], in[count - 1 - i]);
}

__global__ void order(int* tiles, int count, int tiles_m, int tiles_n) {
    const int i = static_cast<int>(blockIdx.x);
    const int place = die_contiguous(count);
    const TileIndex tile = banded_tile<4>(i, tiles_m, tiles_n);
    if (threadIdx.x != 0) return;
    tiles[3 * i] = place;
    tiles[3 * i + 1] = tile.m;
    tiles[3 * i + 2] = tile.n;
}

template <int Columns>
__device__ void key_accesses(int* read, int* write) {
    constexpr int kChunks = Columns / 8;
    const int lane = lane_id(), r = lane % 16, g = lane / 16;
    for (int i = 0; i < 8; ++i) {
        const int at = i * 64 + lane;
        read[at] = KeyPanel<Columns>::offset(paired_row(i / 4, r), i % 4 * 4 % kChunks + g);
        write[at] = KeyPanel<Columns>::offset(at / kChunks, at % kChunks);
    }
}

template <int Keys>
__device__ void value_accesses(int* read, int* write) {
    const int lane = lane_id(), r = lane % 16, g = lane / 16;
    for (int i = 0; i < 8; ++i) {
        read[i * 64 + lane] = ValuePanel<Keys>::offset(i / 4 * 64 + interleaved_row(i % 4, r), g);
        write[i * 64 + lane] = ValuePanel<Keys>::offset(lane % 8 * 8 + i, lane / 8 % (Keys / 8));
    }
}

// How often the two ways to an address differ, over all splits of a row and a chunk into parts without common bits.
template <class Panel>
__device__ int disagreements(int rows, int chunks) {
    int wrong = 0;
    for (int row = 0; row < rows; ++row)
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int mask = 0; mask < 64; mask += 5)
                wrong += Panel::at(Panel::offset(row & ~mask, chunk & ~(mask >> 2)), row & mask, chunk & (mask >> 2)) !=
                         Panel::offset(row, chunk);
    return wrong;
}

__global__ void ways(int* wrong) {
    if (threadIdx.x != 0) return;
    wrong[0] = disagreements<Fp8Rows>(256, 8);
    wrong[1] = disagreements<KeyPanel<64>>(128, 8);
    wrong[2] = disagreements<KeyPanel<128>>(64, 16);
    wrong[3] = disagreements<KeyPanel<256>>(32, 32);
    wrong[4] = disagreements<KeyPanel<576>>(32, 72);
    wrong[5] = disagreements<ValuePanel<128>>(64, 16);
    wrong[6] = disagreements<ValuePanel<64>>(128, 8);
    wrong[7] = disagreements<ValuePanel<32>>(256, 4);
}

// Eight accesses per kind: byte offsets by lane.
__global__ void banks(int* offsets) {
    const int lane = lane_id(), r = lane % 16, g = lane / 16;
    const auto kind = [=](int which) { return offsets + which * 512; };
    for (int i = 0; i < 8; ++i) {
        kind(0)[i * 64 + lane] = Fp8Rows::offset(column_row(i, r), 2 * g);
        kind(1)[i * 64 + lane] = Fp8Rows::offset(i / 4 * 64 + interleaved_row(i % 4, r), 2 * g + 1);
        KOutermostTask task;
        task.place(0, lane, 128);
        kind(2)[i * 64 + lane] = Fp8Rows::offset(task.row + i, task.k / 16) + task.k % 16;
    }
    key_accesses<64>(kind(3), kind(4));
    key_accesses<128>(kind(5), kind(6));
    key_accesses<256>(kind(7), kind(8));
    key_accesses<576>(kind(9), kind(10));
    value_accesses<64>(kind(11), kind(12));
    value_accesses<128>(kind(13), kind(14));
    value_accesses<32>(kind(15), kind(16));
}

extern "C" int run(void* a, void* b, void* c, int count, int tiles_m) {
    const dim3 grid(static_cast<unsigned>(count + 63) / 64);
    if (tiles_m == -2) LAUNCH(ways, dim3(1), dim3(64), 0, a)(static_cast<int*>(c));
    else if (tiles_m == -1) LAUNCH(banks, dim3(1), dim3(64), 0, a)(static_cast<int*>(c));
    else if (tiles_m == 0) LAUNCH(round, grid, dim3(64), 0, a)(
        static_cast<float*>(a), static_cast<uint16_t*>(b), static_cast<uint32_t*>(c), count);
    else LAUNCH(order, dim3(static_cast<unsigned>(count)), dim3(64), 0, a)(
        static_cast<int*>(c), count, tiles_m, count / tiles_m);
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


READ_16 = [[*range(a, a + 4), *range(b, b + 4)] for half in (0, 32)
           for a, b in ((half, half + 20), (half + 4, half + 16), (half + 8, half + 28), (half + 12, half + 24))]
WRITE_16 = [list(range(first, first + 8)) for first in range(0, 64, 8)]
EITHER_8 = [list(range(first, first + 16)) for first in range(0, 64, 16)]
ACCESSES = {
    "fp8 columns, read": READ_16, "fp8 rows, read": READ_16, "fp8 transposed, write": EITHER_8,
    "keys 64, read": READ_16, "keys 64, write": WRITE_16, "keys 128, read": READ_16, "keys 128, write": WRITE_16,
    "keys 256, read": READ_16, "keys 256, write": WRITE_16, "keys 576, read": READ_16, "keys 576, write": WRITE_16,
    "values 64, read": READ_16, "values 64, write": WRITE_16,
    "values 128, read": READ_16, "values 128, write": WRITE_16, "values 32, read": READ_16,
}


def test_both_ways_to_a_chunk_lead_to_the_same_place(run: host.HostKernel) -> None:
    wrong = host.Guarded(np.full(8, -1, np.int32))
    assert run(None, None, wrong, 64, -2) == 0
    assert not wrong.array.any()


@pytest.mark.parametrize("which", range(len(ACCESSES)), ids=list(ACCESSES))
def test_lanes_that_lds_serves_together_hit_different_banks(run: host.HostKernel, which: int) -> None:
    """Writing values of 32 keys is left out: rows of 64 bytes at a distance of eight share one half of the banks."""
    offsets = host.Guarded(np.zeros((len(ACCESSES) + 1, 8, 64), np.int32))
    assert run(None, None, offsets, 64, -1) == 0
    phases = list(ACCESSES.values())[which]
    size = 128 // len(phases[0])
    for access in offsets.array[which]:
        for lanes in phases:
            assert len(set(access[lanes] % 128 // size)) == len(lanes)
