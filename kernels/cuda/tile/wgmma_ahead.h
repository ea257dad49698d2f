// SPDX-License-Identifier: MIT
// The walk along K of a paired consumer with one set of partial sums: little stands between its products.
//
// Between a consumer's last product of a K block and its first of the next the tensor cores have only the others' work. So what
// need not stand there is done while products run: looking at the next stage's barrier and reading its scales. A stage is handed
// back as soon as its products are done, before they are promoted. The loop is unrolled over the ring, so that addresses are
// constants. Of the barrier only a look: a warp that slept there would hand its own stage back late.
#pragma once

#include <utility>

#include "ptx/cluster.h"
#include "ptx/mbarrier.h"
#include "ptx/warp_uniform.h"
#include "ptx/wgmma.h"

template <class Shape, class Consumer, class Sums>
struct AheadWalk {
    using Scales = typename Consumer::Scales;
    static constexpr uint32_t kStage16 = Shape::kTileBytes / 16, kSlice16 = 64 * Shape::kK / 16;   // as operands count
    Consumer& consumer;
    Sums& sums;
    const uint32_t memory;   // where the ring is
    const uint32_t a, b;     // low words of the operands at stage 0
    const uint32_t mine;     // of stage 0, the barrier this lane tells that a stage is free; 0: none
    int left, runs;
    Scales scales;           // of the next K block, if they are here
    int ready;               // whether they are

    template <int kStage>
    __device__ __forceinline__ void load() {
        scales.load(memory + Shape::kScalesAt + kStage * Shape::kScales * 4, consumer.who);
    }

    /// One K block.
    template <int kStage>
    __device__ __forceinline__ void step() {
        constexpr int kNext = (kStage + 1) % Shape::kStages;
        if (!ready) {
            mbarrier_wait(memory + Shape::kBarriersAt + kStage * 8, consumer.filled.parity);
            load<kStage>();
        }
        const Scales now = scales;
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            const bool last = slice == Shape::kSlices - 1;
            typename Consumer::Partial partial;
            wgmma_fence();
#pragma unroll
            for (int k32 = 0; k32 < Shape::kK / 32; ++k32) {
                const uint32_t at = kStage * kStage16 + 2 * k32;
                Wgmma<Shape::kN>::product(
                    partial, wgmma_operand_of(a + at + slice * kSlice16), wgmma_operand_of(b + at), k32 > 0);
            }
            wgmma_commit();
            if (last) {
                if constexpr (kNext == 0) consumer.filled.parity ^= 1;
                ready = mbarrier_test_wait(memory + Shape::kBarriersAt + kNext * 8, consumer.filled.parity);
                if (ready) load<kNext>();
                --left;
            }
            wgmma_wait<0>();
            wgmma_results(partial);
            // All lanes read this stage's scales before products that all have waited for: no __syncwarp.
            if (last && mine != 0) mbarrier_arrive_cluster(mine + kStage * 8);
            now.promote(sums.total[slice], partial, slice, runs);
            wgmma_results(sums.total[slice]);   // here, and not where the compiler would rather have the additions
        }
        if (left == 0) consumer.filled.stage = kNext;
    }

    /// All of them. With one slice every step asks whether the ring has come to where the tile begins.
    template <int... kStage>
    __device__ __forceinline__ void run(std::integer_sequence<int, kStage...>) {
        for (int entry = consumer.filled.stage; left > 0; entry = 0) {
            ((kStage >= entry && left > 0 ? step<kStage>() : void()), ...);
        }
    }

    /// The same for the three stages of 256 x 128 tiles, entered in the middle: about 1 % faster there. With one slice the compiler
    /// pays for that with copies of the sums.
    __device__ __forceinline__ void run_three() {
        switch (consumer.filled.stage) {
            for (;;) {
                case 0:
                    step<0>();
                    if (left == 0) return;
                    [[fallthrough]];
                case 1:
                    step<1>();
                    if (left == 0) return;
                    [[fallthrough]];
                case 2:
                    step<2>();
                    if (left == 0) return;
            }
        }
    }
};

template <class Shape, class Consumer, class Sums>
__device__ __forceinline__ void sum_ahead(Consumer& consumer, Sums& sums, int blocks, int runs) {
    static_assert(Shape::kPair == 2, "lane i tells block i that a stage is free");
    if (blocks == 0) return;
    // Through a shuffle, or the compiler would compute them again at every use.
    const uint32_t memory = warp_uniform(consumer.memory.address);
    const uint32_t a = warp_uniform(wgmma_operand(memory + consumer.who.group * Shape::kSlices * (64 * Shape::kK)));
    const uint32_t b = warp_uniform(wgmma_operand(memory + Shape::kRowBytes));
    const int lane = consumer.who.lane;
    const uint32_t mine = lane < 2 ? map_shared(consumer.memory.empty(0), lane) : 0;
    AheadWalk<Shape, Consumer, Sums> walk = {consumer, sums, memory, a, b, mine, blocks, runs, {}, 0};
    if constexpr (Shape::kSlices == 2 && Shape::kStages == 3) walk.run_three();
    else walk.run(std::make_integer_sequence<int, Shape::kStages>());
}
