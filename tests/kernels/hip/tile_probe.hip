// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Small kernels around single device functions of kernels/hip/tile, for test_tile.py.
#include "launch.h"
#include "tile/bf16.h"
#include "tile/fp8_half_panel.h"
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
    const HeadBlock longest = longest_first(tiles_m, tiles_n, i);
    if (threadIdx.x != 0) return;
    tiles[5 * i] = place;
    tiles[5 * i + 1] = tile.m;
    tiles[5 * i + 2] = tile.n;
    tiles[5 * i + 3] = longest.head;
    tiles[5 * i + 4] = longest.block;
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
    wrong[8] = 0;
    for (int row = 0; row < 256; ++row)
        for (int mask = 0; mask < 256; mask += 5)
            for (int chunk = 0; chunk < 4; ++chunk)
                wrong[8] += Fp8HalfRows::at(Fp8HalfRows::offset(row & ~mask, chunk), row & mask) !=
                            Fp8HalfRows::offset(row, chunk);
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
    for (int i = 0; i < 8; ++i) {
        kind(16)[i * 64 + lane] = Fp8HalfRows::offset(column_row(i, r), g);
        kind(17)[i * 64 + lane] = Fp8HalfRows::offset(i / 4 * 64 + interleaved_row(i % 4, r), g);
        const int k = i / 4 * 32 + lane / 8 * 4;  // of a task of tile/fp8_k_outermost_halves.h
        kind(18)[i * 64 + lane] = Fp8HalfRows::offset(lane % 8 * 16 + i, k / 16) + k % 16;
    }
}

extern "C" int run(void* a, void* b, void* c, int count, int tiles_m) {
    const dim3 grid(static_cast<unsigned>(count + 63) / 64);
    void* const queue = nullptr;
    if (tiles_m == -2) LAUNCH(ways, dim3(1), dim3(64), 0, queue)(static_cast<int*>(c));
    else if (tiles_m == -1) LAUNCH(banks, dim3(1), dim3(64), 0, queue)(static_cast<int*>(c));
    else if (tiles_m == 0)
        LAUNCH(round, grid, dim3(64), 0, queue)(
            static_cast<float*>(a), static_cast<uint16_t*>(b), static_cast<uint32_t*>(c), count);
    else
        LAUNCH(order, dim3(static_cast<unsigned>(count)), dim3(64), 0, queue)(
            static_cast<int*>(c), count, tiles_m, count / tiles_m);
    return LAUNCH_STATUS();
}
