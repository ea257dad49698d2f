// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: what all warpgroups that multiply have in common.
//
// Accumulators are as in tile/wgmma_coded_products.h, with blocks of columns counted within a half.
#pragma once

#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "tile/decode_rows.h"
#include "tile/decode_schedule.h"
#include "tile/query_slots.h"
#include "tile/wgmma_coded_queries.h"
#include "tile/wgmma_coded_slots.h"
#include "tile/wgmma_coded_wide_shape.h"

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
struct WideWorker {
    using Row = CodedRow;
    static constexpr int kSlotsOfLane = Shape::kRows / 4;  // query rows a thread has

    const WideMemory<Shape>& memory;
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
        DecodeWalk walk(a.schedule, chunk, lane);
        DecodePiece piece;
        while (walk.next(a.schedule, piece)) {
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
                load_coded_queries<Shape, Shape::kWorkers>(memory, a.q + row * (Row::kWidth * 2));
            }
            if (static_cast<int>(threadIdx.x) < Shape::kRows) memory.shifts()[threadIdx.x] = kWideNothing;
            wide_meet<Shape, scores>();
            act(piece, part);
        }
    }
};
