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

#if GL_TURN
constexpr int kFirstTurn = 7;
#endif
/// What such a consumer knows across tiles: whether the scales of the stage at `filled` are here already.
template <class Scales>
struct AheadScales {
    Scales next;
    bool ready = false;
};

template <class Shape, class Consumer, class Sums>
struct AheadWalk {
    using Scales = typename Consumer::Scales;
    Consumer& consumer;
    Sums& sums;
    AheadScales<Scales>& ahead;
    const uint32_t memory;   // where the ring is
    const uint32_t a, b;     // low words of the operands at stage 0
    const uint32_t mine;     // of stage 0, the barrier this lane tells that a stage is free; 0: none
    int left, runs, entry;

    static __device__ __forceinline__ void arrive(uint32_t empty) {
        if constexpr (Shape::kPair == 2) mbarrier_arrive_cluster(empty);
        else mbarrier_arrive(empty);
    }

    template <int kStage>
    __device__ __forceinline__ void step() {
        if (kStage < entry || left == 0) return;
        --left;
        constexpr int kNext = (kStage + 1) % Shape::kStages;
        constexpr uint32_t kAt = kStage * (Shape::kTileBytes / 16);   // operands count in 16 bytes
        constexpr int kFull = Shape::kBarriersAt, kScales = Shape::kScalesAt, kScaleBytes = Shape::kScales * 4;
        if (!ahead.ready) {
#if GL_CLOCK
            const unsigned since = clock();
#endif
            mbarrier_wait(memory + kFull + kStage * 8, consumer.filled.parity);
#if GL_CLOCK
            consumer.waited += clock() - since; ++consumer.misses;
#endif
            ahead.next.load(memory + kScales + kStage * kScaleBytes, consumer.who);
        }
#if GL_SYNC == 2
        named_barrier_sync(6, Shape::kConsumerThreads);
#endif
        const Scales scales = ahead.next;
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            typename Consumer::Partial partial;
#if GL_TURN
            if constexpr (Shape::kConsumers > 1) named_barrier_sync(kFirstTurn + consumer.who.group, 256);
#endif
            wgmma_fence();
#pragma unroll
            for (int k32 = 0; k32 < Shape::kK / 32; ++k32) {
                const uint32_t at = kAt + 2 * k32;
                Wgmma<Shape::kN>::product(
                    partial, wgmma_operand_of(a + at + slice * (64 * Shape::kK / 16)), wgmma_operand_of(b + at), k32 > 0);
#if GL_TURN > 1
                if (Shape::kConsumers > 1 && k32 == 4 - GL_TURN) wgmma_commit();
#endif
            }
            wgmma_commit();
#if GL_TURN == 1
            if constexpr (Shape::kConsumers > 1) named_barrier_arrive(kFirstTurn + (consumer.who.group + 1) % Shape::kConsumers, 256);
#endif
            if (slice == Shape::kSlices - 1) {
                if constexpr (kNext == 0) consumer.filled.parity ^= 1;
                consumer.filled.stage = kNext;
                ahead.ready = mbarrier_test_wait(memory + kFull + kNext * 8, consumer.filled.parity);
                if (ahead.ready) ahead.next.load(memory + kScales + kNext * kScaleBytes, consumer.who);
            }
#if GL_TURN > 1
            if constexpr (Shape::kConsumers > 1) {
                wgmma_wait<1>();
                named_barrier_arrive(kFirstTurn + (consumer.who.group + 1) % Shape::kConsumers, 256);
            }
#endif
            wgmma_wait<0>();
            wgmma_results(partial);
            if (slice == Shape::kSlices - 1) {
                if (mine != 0) arrive(mine + kStage * 8);
            }
            scales.promote(sums.total[slice], partial, slice, runs);
            wgmma_results(sums.total[slice]);   // here, and not where the compiler would rather have the additions
        }
    }

    template <int... kStage>
    __device__ __forceinline__ void round(std::integer_sequence<int, kStage...>) {
        (step<kStage>(), ...);
    }

    __device__ __forceinline__ void run() {
        while (left > 0) {
            round(std::make_integer_sequence<int, Shape::kStages>());
            entry = 0;
        }
    }
};

template <class Shape, class Consumer, class Sums>
__device__ __forceinline__ void sum_ahead(Consumer& consumer, Sums& sums, int blocks, int runs) {
    // Through a shuffle, or the compiler would compute them again at every use.
    const uint32_t memory = warp_uniform(consumer.memory.address);
    const uint32_t a = warp_uniform(wgmma_operand(memory + consumer.who.group * Shape::kSlices * (64 * Shape::kK)));
    const uint32_t b = warp_uniform(wgmma_operand(memory + Shape::kRowBytes));
    const uint32_t empty = consumer.memory.empty(0);
    const int lane = consumer.who.lane;
    uint32_t mine = lane == 0 ? empty : 0;
    if (Shape::kPair == 2) mine = lane < 2 ? map_shared(empty, lane) : 0;
    AheadWalk<Shape, Consumer, Sums>{
        consumer, sums, consumer.ahead, memory, a, b, mine, blocks, runs, consumer.filled.stage}.run();
}
