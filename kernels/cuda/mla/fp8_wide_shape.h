// SPDX-License-Identifier: MIT
// MLA decode of 32 and 64 rows over e4m3 codes on wgmma: shared memory, queries, and what all consumer warpgroups share.
#pragma once

#include <cstdint>

#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "fp8.h"
#include "mla/call.h"
#include "mla/fp8_producer.h"
#include "mla/fp8_shape.h"
#include "mla/schedule.h"
#include "mla/wgmma_shape.h"
#include "ptx/barrier.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/tma.h"

namespace mla {

// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: what lies where in shared memory.
//
// See mla_decode_fp8/wgmma_bulk.cu for the algorithm.

/// kRows query rows by pages of 64 tokens. kSlots slots of half a page lie in shared memory, rows as they are in the cache.
template <int kRows_, int kSlots_>
struct Fp8WideShape {
    static constexpr int kRows = kRows_, kSlots = kSlots_;
    using Row = Fp8Row;
    using Arguments = Fp8Arguments<PageSchedule>;
    static constexpr int kTokens = PageSchedule::kTokens;
    static constexpr int kPanels = Row::kWidth / 64;  // of the queries, 64 columns each: fp16, the last one bf16
    static constexpr int kPanelBytes = kRows * 128;   // in the 128-byte swizzle
    static constexpr int kBlocks =
        Row::kLatent / 64 / 2;               // of 64 columns of the output: the rows of one product, a warpgroup's
    static constexpr int kSums = kRows / 2;  // accumulators of a product in a thread
    static constexpr int kWorkers = 384, kThreads = kWorkers + 128;
    static constexpr int kValueRegisters = 176, kProducerRegisters = 32;  // the scores' keep the 128 they start with
    static constexpr bool kDropFirst = kRows == 64;                       // whether L2 is told to drop pages first

    static constexpr int kWeights = kPanels * kPanelBytes;  // [buffer][row][token], fp16, behind the queries
    static constexpr int kWeightPlane = kRows * 128;
    static constexpr int kSlot = kWeights + 2 * kWeightPlane;
    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    static constexpr int kScales = kSlot + kSlots * kSlotBytes;  // [buffer][group][pair of 4][octet][2] fp16
    static constexpr int kScalePlane = Row::kGroups * kTokens * 2;
    static constexpr int kChanges = kScales + 2 * kScalePlane;  // [buffer][row] floats: for what was accumulated before
    static constexpr int kMaxima = kChanges + 2 * kRows * 4;    // [warp][row]; at the end shares of sums
    static constexpr int kShifts = kMaxima + 4 * kRows * 4;     // [row]: subtracted from exponents
    static constexpr int kFactors = kShifts + kRows * 4;        // [row]: what the queries were divided by
    static constexpr int kFinals = kFactors + kRows * 4;        // [row]: normalise the output
    static constexpr int kFlags = kFinals + kRows * 4;          // [buffer][warp]: whether something must be raised
    static constexpr int kLargest = kFlags + 32;                // [warp]: of the scales
    static constexpr int kChanged = kLargest + 16;              // [buffer]: whether changes matter
    static constexpr int kBarriers = kChanged + 16;
    static constexpr int kSharedBytes =
        kBarriers + kSlots * 16 + 32;  // [slot] full, [slot] empty, [buffer] ready, [buffer] done

    static_assert(kRows == 32 || kRows == 64, "a warpgroup's registers hold half of the output's columns");
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};

template <class Shape>
struct Fp8WideMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint8_t* at(uint32_t shared) const { return start + (shared - base); }
    __device__ __forceinline__ float* floats(int offset) const { return reinterpret_cast<float*>(start + offset); }
    __device__ __forceinline__ uint32_t query(int panel) const { return base + panel * Shape::kPanelBytes; }
    __device__ __forceinline__ uint32_t weights(int buffer) const {
        return base + Shape::kWeights + buffer * Shape::kWeightPlane;
    }
    __device__ __forceinline__ uint32_t slot(uint32_t index) const {
        return base + Shape::kSlot + index * Shape::kSlotBytes;
    }
    __device__ __forceinline__ uint8_t* scales(int buffer) const {
        return start + Shape::kScales + buffer * Shape::kScalePlane;
    }
    __device__ __forceinline__ float* changes(int buffer) const {
        return floats(Shape::kChanges) + buffer * Shape::kRows;
    }
    __device__ __forceinline__ float* maxima(int warp) const { return floats(Shape::kMaxima) + warp * Shape::kRows; }
    __device__ __forceinline__ float* shifts() const { return floats(Shape::kShifts); }
    __device__ __forceinline__ float* factors() const { return floats(Shape::kFactors); }
    __device__ __forceinline__ float* finals() const { return floats(Shape::kFinals); }
    __device__ __forceinline__ int* flags(int buffer) const {
        return reinterpret_cast<int*>(start + Shape::kFlags) + buffer * 4;
    }
    __device__ __forceinline__ float* largest() const { return floats(Shape::kLargest); }
    __device__ __forceinline__ int* changed() const { return reinterpret_cast<int*>(start + Shape::kChanged); }

    /// Half a page has landed; is read.
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return base + Shape::kBarriers + slot * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return full(Shape::kSlots + slot); }
    /// What a page's copy to a slot reports to.
    __device__ __forceinline__ uint32_t landed(uint32_t slot, uint32_t) const { return full(slot); }
    /// A page's weights and scales are there; are used.
    __device__ __forceinline__ uint32_t ready(int buffer) const { return full(2 * Shape::kSlots + buffer); }
    __device__ __forceinline__ uint32_t done(int buffer) const { return ready(2 + buffer); }
};

// Queries of the MLA decode over e4m3 codes on wgmma: as fp16 in shared memory, in the order the codes have as operands.

/// Sixteen threads' view of a row: 32 latent columns each, and 4 rotary ones.
struct Fp8QueryRow {
    uint4 four[4];
    uint2 rotary;

    __device__ __forceinline__ void load(const uint8_t* row, int part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = *reinterpret_cast<const uint4*>(row + part * 64 + i * 16);
        rotary = *reinterpret_cast<const uint2*>(row + Fp8Row::kLatent * 2 + part * 8);
    }

    /// The row divided by a power of two, latent columns as fp16, rotary ones as bf16, all exact, in panels of 64 columns: of 16
    /// latent ones first 0, 1, 4, 5, 8, ..., then 2, 3, 6, 7, ...
    template <class Shape, class Memory>
    __device__ __forceinline__ void store(const Memory& memory, int row, int part) const {
        const uint32_t words[16] = {four[0].x, four[0].y, four[0].z, four[0].w, four[1].x, four[1].y,
                                    four[1].z, four[1].w, four[2].x, four[2].y, four[2].z, four[2].w,
                                    four[3].x, four[3].y, four[3].z, four[3].w};
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            largest = fmaxf(largest, fabsf(float_from_bits(words[i] << 16)));
            largest = fmaxf(largest, fabsf(float_from_bits(words[i] & 0xffff0000u)));
        }
        const uint32_t last_words[2] = {rotary.x, rotary.y};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            largest = fmaxf(largest, fabsf(float_from_bits(last_words[i] << 16)));
            largest = fmaxf(largest, fabsf(float_from_bits(last_words[i] & 0xffff0000u)));
        }
#pragma unroll
        for (int step = 1; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const float by = float_from_bits(query_exponent(largest));
        uint32_t halves[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            halves[i] = Fp16::pack(float_from_bits(words[i] << 16) * by, float_from_bits(words[i] & 0xffff0000u) * by);
        }
        if (row >= Shape::kRows) return;
        uint8_t* const panel = memory.at(memory.query(part / 2));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int word = i / 2 * 8 + i % 2;
            *reinterpret_cast<uint4*>(panel + Swizzle<8>::offset(row, part % 2 * 4 + i)) =
                make_uint4(halves[word], halves[word + 2], halves[word + 4], halves[word + 6]);
        }
        uint8_t* const last = memory.at(memory.query(Shape::kPanels - 1));
        *reinterpret_cast<uint2*>(last + Swizzle<8>::offset(row, part / 2) + part % 2 * 8) =
            make_uint2(multiply_bfloats(rotary.x, Bf16::pack(by, by)), multiply_bfloats(rotary.y, Bf16::pack(by, by)));
        if (part == 0) memory.factors()[row] = power_over(0, by);
    }
};

/// A piece's queries from `q` to shared memory, by the first kThreads threads of the block. They meet afterwards.
template <class Shape, int kThreads, class Memory>
__device__ __forceinline__ void load_fp8_queries(const Memory& memory, const uint8_t* q) {
    constexpr int kEach = kThreads / 16, kPasses = (Shape::kRows + kEach - 1) / kEach;
    const int thread = recomputed_thread(), part = thread % 16;
    // Two passes' loads are under way at a time.
#pragma unroll
    for (int first = 0; first < kPasses; first += 2) {
        Fp8QueryRow rows[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = min((first + i) * kEach + thread / 16, Shape::kRows - 1);
            if (first + i < kPasses) rows[i].load(q + row * (Fp8Row::kWidth * 2), part);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (first + i < kPasses) rows[i].template store<Shape>(memory, (first + i) * kEach + thread / 16, part);
        }
    }
    fence_async_shared();
}

// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: what all warpgroups that multiply have in common.
//
// Accumulators are as in mla/fp8_small_m_products.h, with blocks of columns counted within a half.

constexpr int kWideScoreBarrier = 1, kWideAllBarrier = 2, kWideValueBarrier = 4;  // the last two: + role, + half

/// A weight is 2^kWideUnit where the exponent is the row's reference, and so at most 2^15 with kReferenceSlack above it.
constexpr float kWideUnit = 7.0f;
/// The reference of a row that has seen no key.
constexpr float kWideNothing = -1e30f;

/// All that multiply meet: values arrive, scores wait for them and then tell them to go on. So no barrier is waited for at two
/// instructions, which PTX does not promise of bar.sync, and which compute-sanitizer takes for divergence.
template <class Shape, bool scores>
__device__ __forceinline__ void wide_meet() {
    __syncwarp();
    if constexpr (scores) {
        named_barrier_sync(kWideAllBarrier, Shape::kWorkers);
        named_barrier_arrive(kWideAllBarrier + 1, Shape::kWorkers);
    } else {
        named_barrier_arrive(kWideAllBarrier, Shape::kWorkers);
        named_barrier_sync(kWideAllBarrier + 1, Shape::kWorkers);
    }
}

/// What the warpgroup of the scores and those of the values share.
template <class Shape, bool scores>
struct Fp8WideWorker {
    using Row = Fp8Row;
    static constexpr int kSlotsOfLane = Shape::kRows / 4;  // query rows a thread has

    const Fp8WideMemory<Shape>& memory;
    const typename Shape::Arguments& a;
    int warp, lane, row_tile;

    __device__ __forceinline__ int row_of(int slot) const { return row_of_slot(slot, lane); }

    __device__ __forceinline__ void arrive(uint32_t barrier) const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barrier);
    }

    /// All work there is: `act` of each piece with its part, after its queries have come to shared memory.
    template <class Act>
    __device__ __forceinline__ void each_piece(Act act) const {
        const int chunk = static_cast<int>(blockIdx.x) / a.row_tiles;
        DecodeScheduler scheduler(a.schedule, chunk, lane);
        DecodePiece piece;
        while (scheduler.next(a.schedule, piece)) {
            const int part = piece.part(a.schedule, chunk);
            if (piece.steps.begin >= piece.steps.end && !piece.whole()) {
                // The chunk's edge fell into the request's start: the merge must see that no token came.
                if (static_cast<int>(threadIdx.x) < Shape::kRows) {
                    a.parts.lse[first_row_of(a, part) + row_tile * Shape::kRows + threadIdx.x] = -INFINITY;
                }
                continue;
            }
            if (piece.steps.begin < piece.steps.end) {
                const size_t row = first_row_of(a, piece.request) + row_tile * Shape::kRows;
                load_fp8_queries<Shape, Shape::kWorkers>(memory, a.q + row * (Row::kWidth * 2));
            }
            if (static_cast<int>(threadIdx.x) < Shape::kRows) memory.shifts()[threadIdx.x] = kWideNothing;
            wide_meet<Shape, scores>();
            act(piece, part);
        }
    }
};

}  // namespace mla
