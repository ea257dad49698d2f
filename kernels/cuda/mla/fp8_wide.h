// SPDX-License-Identifier: MIT
// MLA decode of 32 and 64 rows over e4m3 codes on wgmma: the warpgroups of values, and the kernel.
#pragma once

#include "mla/fp8_producer.h"
#include "mla/fp8_wide_scores.h"
#include "mla/fp8_wide_shape.h"
#include "ptx/convert.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"

namespace mla {

// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: the warpgroups of values (mla/fp8_wide_shape.h).

/// A warpgroup of values: `half` of the output's columns.
template <class Shape>
struct Fp8WideValues : Fp8WideWorker<Shape, false> {
    using Base = Fp8WideWorker<Shape, false>;
    using Row = Fp8Row;
    using Base::a, Base::lane, Base::memory, Base::row_of, Base::row_tile, Base::warp;
    static constexpr int kSlotsOfLane = Base::kSlotsOfLane;

    static constexpr int kValueBuffers = Shape::kRows == 32 ? 6 : 4;  // products under way or converted
    using Output = float[Shape::kBlocks][Shape::kSums];

    __device__ __forceinline__ void rescale(Output& out, const float* by) const {
#pragma unroll
        for (int pair = 0; pair < kSlotsOfLane / 2; ++pair) {
            const float2 factors = *reinterpret_cast<const float2*>(by + row_of(2 * pair));
#pragma unroll
            for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
                for (int i = 4 * pair; i < 4 * pair + 4; ++i) out[block][i] *= i % 2 == 0 ? factors.x : factors.y;
            }
        }
    }

    /// out += codes^T weights^T; codes are multiplied by their scales in fp16. The transposing ldmatrix gives lane (g, t) columns
    /// 2g, 2g + 1 of tokens 2t, 2t + 1, a byte each; sorted by column they are rows g and g + 8 of the operand.
    __device__ __forceinline__ void multiply_values(
        Output& out, int half, int buffer, const PageSlots<Shape>& slots) const {
        const uint64_t weights = wgmma_operand(memory.weights(buffer));
        uint32_t codes[kValueBuffers][4];
        uint32_t loaded[2][4];  // of 32 tokens and a block of columns, one ahead of their conversion
        const auto load = [&](int chunk) {
            ldmatrix_x4_trans(
                loaded[chunk % 2], memory.slot(slots.indices[chunk / Shape::kBlocks]) + lane * Row::kBytes +
                                       half * (Row::kLatent / 2) + warp * 16 + chunk % Shape::kBlocks * 64);
        };
        load(0);
#pragma unroll
        for (int page_half = 0; page_half < 2; ++page_half) {
            uint32_t scales[4];  // of pairs of tokens
#pragma unroll
            for (int block = 0; block < Shape::kBlocks; ++block) {
                if (block % 2 == 0) {  // the next 128 columns
                    const uint4 four = *reinterpret_cast<const uint4*>(
                        memory.scales(buffer) + ((2 * half + block / 2) * 4 + lane % 4) * 32 + page_half * 16);
                    scales[0] = four.x;
                    scales[1] = four.y;
                    scales[2] = four.z;
                    scales[3] = four.w;
                }
                const int chunk = page_half * Shape::kBlocks + block;
                if (chunk + 1 < 2 * Shape::kBlocks) load(chunk + 1);
                const uint32_t (&bytes)[4] = loaded[chunk % 2];
#pragma unroll
                for (int step = 0; step < 2; ++step) {
                    const int product = 2 * chunk + step;
                    if (product >= kValueBuffers) wgmma_wait<kValueBuffers - 1>();
                    uint32_t (&a_operand)[4] = codes[product % kValueBuffers];
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const uint32_t four = bytes[2 * step + i], sorted = permute_bytes<0x3120>(four, four);
                        a_operand[2 * i] = multiply_halves(unpack_e4m3_low(sorted), scales[2 * step + i]);
                        a_operand[2 * i + 1] = multiply_halves(unpack_e4m3_high(sorted), scales[2 * step + i]);
                    }
                    wgmma_fence();
                    Wgmma16<Shape::kRows, Fp16>::product(
                        out[block], a_operand, weights + (2 * page_half + step) * 2, true);
                    wgmma_commit();
                }
            }
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) wgmma_results(out[block]);
    }

    __device__ __forceinline__ void work(int half) const {
        uint32_t tile = 0;
        this->each_piece([&](const DecodePiece& piece, int part) {
            Output out = {};
#pragma unroll 1
            for (int step = piece.steps.begin; step < piece.steps.end; ++step, ++tile) {
                const int buffer = static_cast<int>(tile % 2);
                const PageSlots<Shape> slots(tile);
                mbarrier_wait(memory.full(slots.indices[0]), slots.parities[0]);
                mbarrier_wait(memory.full(slots.indices[1]), slots.parities[1]);
                mbarrier_wait(memory.ready(buffer), tile / 2 % 2);
                if (memory.changed()[buffer] != 0) rescale(out, memory.changes(buffer));
                multiply_values(out, half, buffer, slots);
                this->arrive(memory.empty(slots.indices[0]));
                this->arrive(memory.empty(slots.indices[1]));
                this->arrive(memory.done(buffer));
            }
            wide_meet<Shape, false>();
            // Addresses are made anew: kept throughout the loop they would spill.
            const int thread = recomputed_thread();
            const Fp8WideValues anew = {{memory, a, thread / 32 % 4, thread % 32, row_tile}};
            anew.rescale(out, memory.finals());
            anew.store(out, half, piece, part);
        });
    }

    /// To the output or a part, whole lines at a time: eight rows meet in the warpgroup's share of the weights' memory.
    __device__ __forceinline__ void store(const Output& out, int half, const DecodePiece& piece, int part) const {
        constexpr int kColumns = Shape::kWeightPlane / 8 / 4, kRoundBlocks = kColumns / 64;  // of a round
        const int first_row = row_tile * Shape::kRows, first_column = half * (Row::kLatent / 2);
        const size_t first = first_row_of(a, piece.whole() ? piece.request : part) + first_row;
        float* const area = reinterpret_cast<float*>(memory.at(memory.weights(half)));
        const bool whole = piece.whole();
        const size_t corner =
            (first + 2 * warp) * Row::kLatent + first_column + lane * 4;  // a warp stores two of eight rows
        uint8_t* const to = whole ? a.o + corner * 2 : reinterpret_cast<uint8_t*>(a.parts.o) + corner * 4;
        // Columns change places so that neither rows nor columns of a warp's accumulators share a bank.
        const auto place = [&](int row, int column) { return area + row * kColumns + (column ^ (row / 2 * 8)); };
#pragma unroll
        for (int rows = 0; rows < Shape::kRows; rows += 8) {
#pragma unroll
            for (int round = 0; round < Shape::kBlocks / kRoundBlocks; ++round) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
#pragma unroll
                    for (int block = 0; block < kRoundBlocks; ++block) {
                        const float (&from)[Shape::kSums] = out[round * kRoundBlocks + block];
                        *reinterpret_cast<float2*>(place(lane % 4 * 2 + e, block * 64 + warp * 16 + lane / 4 * 2)) =
                            make_float2(from[rows / 2 + e], from[rows / 2 + 2 + e]);
                    }
                }
                meet(half);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
#pragma unroll
                    for (int column = 0; column < kColumns; column += 128) {
                        const float4 x = *reinterpret_cast<const float4*>(place(2 * warp + i, column + lane * 4));
                        const int at = (rows + i) * Row::kLatent + round * kColumns + column;
                        if (whole) {
                            *reinterpret_cast<uint2*>(to + at * 2) =
                                make_uint2(Bf16::pack(x.x, x.y), Bf16::pack(x.z, x.w));
                        } else {
                            *reinterpret_cast<float4*>(to + at * 4) = x;
                        }
                    }
                }
                meet(half);
            }
        }
    }
    static __device__ __forceinline__ void meet(int half) {
        __syncwarp();
        named_barrier_sync(kWideValueBarrier + half, 128);
    }
};

// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: one warpgroup for scores, two for the halves of the output's columns, and
// a warp that copies.

/// One group of blocks for each chunk of the line of pages, a block of it for each Shape::kRows rows.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) fp8_wide(const __grid_constant__ typename Shape::Arguments a) {
    uint8_t* const start = swizzled_shared();
    const Fp8WideMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
    constexpr int kWarps = Shape::kWorkers / 32;  // 4 of scores, 4 of each half of the values; the next one copies
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Shape::kSlots; ++slot) {
            mbarrier_init(memory.full(slot), 1);
            mbarrier_init(memory.empty(slot), kWarps);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(memory.ready(buffer), 4);
            mbarrier_init(memory.done(buffer), kWarps - 4);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp > kWarps) fetch_inputs(a, Fp8Row::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    grid_dependency_wait();
    grid_dependency_release();
    const int block = static_cast<int>(blockIdx.x), chunk = block / a.row_tiles, row_tile = block % a.row_tiles;
    if (warp < 4) {
        Fp8WideScores<Shape>{{memory, a, warp, recomputed_thread() % 32, row_tile}}.work();
    } else if (warp < kWarps) {
        take_registers<Shape::kValueRegisters>();
        Fp8WideValues<Shape>{{memory, a, warp % 4, recomputed_thread() % 32, row_tile}}.work(warp / 4 - 1);
    } else {
        give_registers<Shape::kProducerRegisters>();
        if (warp == kWarps) {
            const int lane = recomputed_thread() % 32;
            Fp8Producer<Shape, Fp8WideMemory<Shape>>{memory, a, lane}.copy_all(
                DecodeScheduler(a.schedule, chunk, lane));
        }
    }
}

}  // namespace mla
