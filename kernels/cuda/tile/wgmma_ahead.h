// SPDX-License-Identifier: MIT
// The walk along K of a consumer with one set of partial sums, such that little stands between one product and the next.
//
// Between the last product of a K block and the first of the next the tensor cores have only the other warpgroup's work, so
// what need not stand there is done while products run: looking at the next stage's barrier and reading its scales. The loop is
// unrolled over the ring, so that all addresses are constants. Of the barrier only a look: a warp that slept there would hand
// its own stage back late.
#pragma once

#include <utility>

#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/warp_uniform.h"
#include "ptx/wgmma.h"

template <class Shape, class Consumer, class Sums>
struct AheadWalk {
    using Scales = typename Consumer::Scales;
    static constexpr uint32_t kFull = Shape::kBarriersAt, kEmpty = kFull + Shape::kStages * 8;
    static constexpr uint32_t kStep = Shape::kTileBytes / 16, kSlice = 64 * Shape::kK / 16;   // operands count in 16 bytes
    Consumer& consumer;
    Sums& sums;
    const uint32_t memory;   // where the ring is
    const uint32_t a, b;     // low words of the operands at stage 0
    const uint32_t mine;     // of stage 0, the barrier this lane tells that a stage is free; 0: none
    int left, runs;
    Scales scales;           // of the next K block, if they are here
    int ready;

    static __device__ __forceinline__ void arrive(uint32_t empty) {
        if constexpr (Shape::kPair == 2) mbarrier_arrive_cluster(empty);
        else mbarrier_arrive(empty);
    }

    template <int kStage>
    __device__ __forceinline__ void load() {
        scales.load(memory + Shape::kScalesAt + kStage * Shape::kScales * 4, consumer.who);
    }

    /// One K block. Whether there is another.
    template <int kStage>
    __device__ __forceinline__ bool step() {
        constexpr int kNext = (kStage + 1) % Shape::kStages;
        if (!ready) {
            mbarrier_wait(memory + kFull + kStage * 8, consumer.filled.parity);
            load<kStage>();
        }
        const Scales now = scales;
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            typename Consumer::Partial partial;
            wgmma_fence();
#pragma unroll
            for (int k32 = 0; k32 < Shape::kK / 32; ++k32) {
                const uint32_t at = kStage * kStep + 2 * k32;
                Wgmma<Shape::kN>::product(
                    partial, wgmma_operand_of(a + at + slice * kSlice), wgmma_operand_of(b + at), k32 > 0);
            }
            wgmma_commit();
            if (slice == Shape::kSlices - 1) {
                if constexpr (kNext == 0) consumer.filled.parity ^= 1;
                ready = mbarrier_test_wait(memory + kFull + kNext * 8, consumer.filled.parity);
                if (ready) load<kNext>();
                --left;
            }
            wgmma_wait<0>();
            wgmma_results(partial);
            if (slice == Shape::kSlices - 1 && mine != 0) arrive(mine + kStage * 8);
            now.promote(sums.total[slice], partial, slice, runs);
            wgmma_results(sums.total[slice]);   // here, and not where the compiler would rather have the additions
        }
        if (left == 0) consumer.filled.stage = kNext;
        return left > 0;
    }

    /// Enters the unrolled loop in the middle, where the ring stands.
    __device__ __forceinline__ void run() {
        static_assert(Shape::kStages <= 12, "a case for each stage");
#define WARPWAVE_STAGE(I) \
    case I: \
        if constexpr (I < Shape::kStages) { \
            if (!step<I>()) return; \
        }
        switch (consumer.filled.stage) {
            for (;;) {
                WARPWAVE_STAGE(0)
                WARPWAVE_STAGE(1)
                WARPWAVE_STAGE(2)
                WARPWAVE_STAGE(3)
                WARPWAVE_STAGE(4)
                WARPWAVE_STAGE(5)
                WARPWAVE_STAGE(6)
                WARPWAVE_STAGE(7)
                WARPWAVE_STAGE(8)
                WARPWAVE_STAGE(9)
                WARPWAVE_STAGE(10)
                WARPWAVE_STAGE(11)
            }
        }
#undef WARPWAVE_STAGE
    }
};

template <class Shape, class Consumer, class Sums>
__device__ __forceinline__ void sum_ahead(Consumer& consumer, Sums& sums, int blocks, int runs) {
    if (blocks == 0) return;
    // Through a shuffle, or the compiler would compute them again at every use.
    const uint32_t memory = warp_uniform(consumer.memory.address);
    const uint32_t a = warp_uniform(wgmma_operand(memory + consumer.who.group * Shape::kSlices * (64 * Shape::kK)));
    const uint32_t b = warp_uniform(wgmma_operand(memory + Shape::kRowBytes));
    const uint32_t empty = consumer.memory.empty(0);
    const int lane = consumer.who.lane;
    uint32_t mine = lane == 0 ? empty : 0;
    if (Shape::kPair == 2) mine = lane < 2 ? map_shared(empty, lane) : 0;
    AheadWalk<Shape, Consumer, Sums>{consumer, sums, memory, a, b, mine, blocks, runs, {}, 0}.run();
}
