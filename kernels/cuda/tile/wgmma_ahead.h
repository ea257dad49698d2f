// SPDX-License-Identifier: MIT
// The walk of a consumer with one set of partial sums, along K and from tile to tile: little stands between its products.
//
// Between a consumer's last product of a K block and its first of the next the tensor cores have only the others' work. So what
// need not stand there is done while products run: looking at the next stage's barrier and reading its scales; storing a
// finished tile, slice by slice, under the first products of the next one; finding out which tile that is. A stage is handed
// back as soon as its products are done, before they are promoted. The loop is unrolled over the ring, so that addresses are
// constants. Of the barrier only a look: a warp that slept there would hand its own stage back late.
#pragma once

#include <utility>

#include "ptx/cluster.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/warp_uniform.h"
#include "ptx/wgmma.h"
#include "tile/wgmma_store.h"

template <class Shape>
struct AheadWalk {
    using Consuming = WgmmaConsumer<Shape>;
    static constexpr uint32_t kStage16 = Shape::kTileBytes / 16, kSlice16 = 64 * Shape::kK / 16;   // as operands count
    const WgmmaMemory<Shape>& memory;
    const Consumer& who;
    const TensorMap& output;
    const WgmmaProblem& p;
    const uint32_t start;    // where the ring is
    const uint32_t a, b;     // low words of the operands at stage 0
    const uint32_t mine;     // of stage 0, the barrier lane i tells that block i's stage is free; 0: none
    WgmmaWalk<Shape> walk;   // at the tile that `work` is
    WgmmaWork work;          // the tile whose sums are in `sums`
    int left, runs;          // K blocks of the tile that is multiplied
    int tiles;               // tiles, from that one on
    bool fresh = false;      // whether `sums` is yet another tile's
    WgmmaSums<Shape> sums;
    typename Consuming::Scales scales;   // of the next K block, if they are here
    int ready = 0;                       // whether they are
    uint32_t parity = 0;

    template <int kStage>
    __device__ __forceinline__ void load() {
        scales.load(start + Shape::kScalesAt + kStage * Shape::kScales * 4, who);
    }

    template <int kSlice>
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; ++i) sums.total[kSlice][i] = 0.0f;
    }

    /// Products of one slice of the stage kStage, and what can be done meanwhile.
    template <int kStage, int kSlice>
    __device__ __forceinline__ void slice(const typename Consuming::Scales& now) {
        constexpr int kNext = (kStage + 1) % Shape::kStages;
        constexpr bool kLast = kSlice == Shape::kSlices - 1;
        typename Consuming::Partial partial;
        wgmma_fence();
#pragma unroll
        for (int k32 = 0; k32 < Shape::kK / 32; ++k32) {
            const uint32_t at = kStage * kStage16 + 2 * k32;
            Wgmma<Shape::kN>::product(partial, wgmma_operand_of(a + at + kSlice * kSlice16), wgmma_operand_of(b + at), k32 > 0);
        }
        wgmma_commit();
        if (fresh) {
            store_slice<Shape, kSlice>(memory, who, sums, output, work);
            clear<kSlice>();
            if constexpr (kLast) {
                walk.next();
                work = walk.work(p);
                runs = runs_of<Shape>(work);
                fresh = false;
            }
        }
        if constexpr (kLast) {
            if constexpr (kNext == 0) parity ^= 1;
            ready = mbarrier_test_wait(start + Shape::kBarriersAt + kNext * 8, parity);
            if (ready) load<kNext>();
            --left;
        }
        wgmma_wait<0>();
        wgmma_results(partial);
        // All lanes read this stage's scales before products that all have waited for: no __syncwarp.
        if (kLast && mine != 0) mbarrier_arrive_cluster(mine + kStage * 8);
        now.promote(sums.total[kSlice], partial, kSlice, runs);
        wgmma_results(sums.total[kSlice]);   // here, and not where the compiler would rather have the additions
    }

    /// One K block. Whether it was the last.
    template <int kStage>
    __device__ __forceinline__ bool step() {
        if (!ready) {
            mbarrier_wait(start + Shape::kBarriersAt + kStage * 8, parity);
            load<kStage>();
        }
        const typename Consuming::Scales now = scales;
        slice<kStage, 0>(now);
        if constexpr (Shape::kSlices == 2) slice<kStage, 1>(now);
        if (left == 0) {
            left = p.blocks;
            fresh = true;
            if (--tiles == 0) return true;
            if constexpr (Shape::kMeets) named_barrier_sync(kAllBarrier, Shape::kConsumerThreads);
        }
        return false;
    }

    /// All tiles of this consumer.
    template <int... kStage>
    __device__ __forceinline__ void run(std::integer_sequence<int, kStage...>) {
        clear<0>();
        if constexpr (Shape::kSlices == 2) clear<1>();
        while (!(step<kStage>() || ...)) {
        }
        store_slice<Shape, 0>(memory, who, sums, output, work);
        if constexpr (Shape::kSlices == 2) store_slice<Shape, 1>(memory, who, sums, output, work);
    }
};

/// All tiles of this consumer thread, which TMA can store; there is at least one.
template <class Shape>
__device__ __forceinline__ void consume_ahead(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const TensorMap& output, const WgmmaProblem& p) {
    // Through a shuffle, or the compiler would compute them again at every use.
    const uint32_t start = warp_uniform(memory.address);
    const uint32_t a = warp_uniform(wgmma_operand(start + who.group * Shape::kSlices * (64 * Shape::kK)));
    const uint32_t b = warp_uniform(wgmma_operand(start + Shape::kRowBytes));
    const uint32_t mine = who.lane < Shape::kPair ? map_shared(memory.empty(0), who.lane) : 0;
    const WgmmaWalk<Shape> walk(p);
    const WgmmaWork work = walk.work(p);
    AheadWalk<Shape> ahead = {
        memory, who, output, p, start, a, b, mine, walk, work, p.blocks, runs_of<Shape>(work),
        (walk.count - walk.index + walk.step - 1) / walk.step};
    ahead.run(std::make_integer_sequence<int, Shape::kStages>());
}
