// SPDX-License-Identifier: MIT
// The main loop of the Hopper product: a consumer warpgroup multiplies a K block in the tensor cores, then adds
// scale * partial sums in fp32.
//
// There are four forms, and the shape decides: WgmmaConsumer::one_by_one (each K block multiplied and promoted before the next),
// WgmmaConsumer::overlapped (two sets of partial sums), sum_mn_major (gemm/mn_major_a.h) and PipelinedLoop.
#pragma once

#include <utility>

#include "common/ring.h"
#include "gemm/consumer.h"
#include "gemm/epilogue.h"
#include "gemm/mn_major_a.h"
#include "gemm/scheduler.h"
#include "gemm/shape.h"
#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"

#ifndef HANDBACK_SYNC
#error \
    "HANDBACK_SYNC is a tunable of the kernel file: 1 has all lanes of a warp meet before PipelinedLoop hands a stage back"
#endif

namespace gemm {

/// A consumer warpgroup's main loop along K.
template <class Shape>
struct WgmmaConsumer {
    using Scales = typename ScalesOf<Shape::kTokensAreRows, Shape>::Type;
    using Partial = float[Shape::kN / 2];

    const WgmmaMemory<Shape>& memory;
    const Consumer& who;
    RingPosition<Shape::kStages> filled;  // the next K block to multiply
    RingPosition<Shape::kStages> freed;   // the next one to hand back to the producer

    /// Start partial = rows of one slice * columns of the stage at `filled`.
    __device__ __forceinline__ void multiply(Partial& partial, int slice) {
        const uint32_t tile = memory.tile(filled.stage);
        const uint64_t a = wgmma_operand(tile + (who.group * Shape::kSlices + slice) * (64 * Shape::kK));
        const uint64_t b = wgmma_operand(tile + Shape::kRowBytes);
        MnMajorFragments<Shape::kK / 32> rows;
        if constexpr (Shape::kMnMajorRows) {
            rows.load(mn_major_rows(tile, who.group * Shape::kSlices + slice, who.warp, who.lane));
        }
        if constexpr (Shape::kPingPong) named_barrier_sync(kPingPongBarrier + who.group, 256);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kK / 32; ++step) {
            if constexpr (Shape::kMnMajorRows) {
                Wgmma<Shape::kN>::product(partial, rows.k32[step], b + 2 * step, step > 0);
            } else {
                Wgmma<Shape::kN>::product(partial, a + 2 * step, b + 2 * step, step > 0);
            }
        }
        wgmma_commit();
        if constexpr (Shape::kPingPong) named_barrier_arrive(kPingPongBarrier + (who.group ^ 1), 256);
    }

    /// Wait for the stage at `filled` and read its scales.
    __device__ __forceinline__ void begin(Scales& scales) {
        mbarrier_wait(memory.full(filled.stage), filled.parity);
        scales.load(memory.scales(filled.stage), who);
    }

    /// This warp has read the stage at `freed` for the last time.
    __device__ __forceinline__ void free_stage() {
        __syncwarp();
        if constexpr (Shape::kPair == 2) {
            // Both blocks' producers write here, so both must know. Lane i tells block i.
            if (who.lane < 2) mbarrier_arrive_cluster(map_shared(memory.empty(freed.stage), who.lane));
        } else {
            if (who.lane == 0) mbarrier_arrive(memory.empty(freed.stage));
        }
        freed.advance();
    }

    /// All K blocks of `work`, each multiplied and promoted before the next.
    __device__ __forceinline__ void one_by_one(WgmmaSums<Shape>& sums, int blocks, int runs) {
        for (int block = 0; block < blocks; ++block) {
            Scales scales;
            begin(scales);
#pragma unroll
            for (int slice = 0; slice < Shape::kSlices; ++slice) {
                Partial partial;
                multiply(partial, slice);
                wgmma_wait<0>();
                wgmma_results(partial);
                if (slice == Shape::kSlices - 1) free_stage();
                scales.promote(sums.total[slice], partial, slice, runs);
            }
            filled.advance();
        }
    }

    /// All K blocks, the next one's products running while one is promoted.
    __device__ __forceinline__ void overlapped(WgmmaSums<Shape>& sums, int blocks, int runs) {
        if (blocks == 0) return;
        Partial even, odd;
        Scales even_scales, odd_scales;
        const auto start = [&](Partial& partial, Scales& scales) {
            begin(scales);
            multiply(partial, 0);
            filled.advance();
        };
        const auto finish = [&](Partial& partial, const Scales& scales) {
            wgmma_results(partial);
            free_stage();
            scales.promote(sums.total[0], partial, 0, runs);
        };
        start(even, even_scales);
        int block = 1;
        for (; block + 1 < blocks; block += 2) {
            start(odd, odd_scales);
            wgmma_wait<1>();
            finish(even, even_scales);
            start(even, even_scales);
            wgmma_wait<1>();
            finish(odd, odd_scales);
        }
        if (block < blocks) {
            start(odd, odd_scales);
            wgmma_wait<1>();
            finish(even, even_scales);
            wgmma_wait<0>();
            finish(odd, odd_scales);
        } else {
            wgmma_wait<0>();
            finish(even, even_scales);
        }
    }

    __device__ __forceinline__ void sum(WgmmaSums<Shape>& sums, const WorkTile& work) {
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
            for (int i = 0; i < Shape::kN / 2; ++i) sums.total[slice][i] = 0.0f;
        }
        const int runs = runs_of<Shape>(work);
        if constexpr (Shape::kPartials == 2) overlapped(sums, work.blocks, runs);
        else if constexpr (Shape::kMnMajorRows && Shape::kSlices == 1)
            sum_mn_major<Shape>(*this, sums, work.blocks, runs);
        else one_by_one(sums, work.blocks, runs);
    }
};

// The pipelined main loop, for one set of partial sums (Shape::kPipelined): it runs along K and from tile to tile, and little
// stands between its products.
//
// Between a consumer's last product of a K block and its first of the next the tensor cores have only the others' work. So what
// need not stand there is done while products run: looking at the next stage's barrier and reading its scales; storing a
// finished tile, slice by slice, under the first products of the next one; finding out which tile that is. A stage is handed
// back as soon as its products are done, before they are promoted. The loop is unrolled over the ring, so that addresses are
// constants. Of the barrier only a look: a warp that slept there would hand its own stage back late.

template <class Shape>
struct PipelinedLoop {
    using Consuming = WgmmaConsumer<Shape>;
    using Scales = typename Consuming::Scales;
    static constexpr uint32_t kStage16 = Shape::kTileBytes / 16, kSlice16 = 64 * Shape::kK / 16;  // as operands count
    const Consumer& who;
    const uint32_t start;  // where the ring is
    const uint32_t a, b;   // low words of the operands at stage 0
    const uint32_t mine;   // of stage 0, the barrier lane i tells that block i's stage is free; 0: none
    WgmmaSums<Shape> sums;
    int stage = 0, left = 0, runs = 0;  // where the next K block is, and how many the tile still has
    uint32_t parity = 0;
    Scales scales;  // of the next K block, if they are here
    int ready = 0;  // whether they are

    __device__ __forceinline__ void load(int from) {
        scales.load(start + Shape::kScalesAt + from * (Shape::kScales * 4), who);
    }

    template <int kSlice>
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; ++i) sums.total[kSlice][i] = 0.0f;
    }

    /// Products of one slice of the stage `at`, and `meanwhile`.
    template <int kSlice, class Meanwhile>
    __device__ __forceinline__ void slice(int at, const Scales& now, const Meanwhile& meanwhile) {
        constexpr bool kLast = kSlice == Shape::kSlices - 1;
        typename Consuming::Partial partial;
        wgmma_fence();
#pragma unroll
        for (int k32 = 0; k32 < Shape::kK / 32; ++k32) {
            const uint32_t from = at * kStage16 + 2 * k32;
            Wgmma<Shape::kN>::product(
                partial, wgmma_operand_of(a + from + kSlice * kSlice16), wgmma_operand_of(b + from), k32 > 0);
        }
        wgmma_commit();
        if constexpr (kLast) {
            const int next = at + 1 == Shape::kStages ? 0 : at + 1;
            if (next == 0) parity ^= 1;
            ready = mbarrier_test_wait(start + Shape::kBarriersAt + next * 8, parity);
            if (ready) load(next);
            --left;
        }
        meanwhile(std::integral_constant<int, kSlice>());
        wgmma_wait<0>();
        wgmma_results(partial);
        // One lane arrives for all that have read this stage's scales. That they issue wgmma and wait for it together orders
        // none of their reads; bar.warp.sync does (its entry in PTX's manual).
        if (kLast && HANDBACK_SYNC != 0) __syncwarp();
        if (kLast && mine != 0) mbarrier_arrive_cluster(mine + at * 8);
        now.promote(sums.total[kSlice], partial, kSlice, runs);
        wgmma_results(sums.total[kSlice]);  // here, and not where the compiler would rather have the additions
    }

    /// One K block.
    template <class Meanwhile>
    __device__ __forceinline__ void step(int at, const Meanwhile& meanwhile) {
        if (!ready) {
            mbarrier_wait(start + Shape::kBarriersAt + at * 8, parity);
            load(at);
        }
        const Scales now = scales;
        slice<0>(at, now, meanwhile);
        if constexpr (Shape::kSlices == 2) slice<1>(at, now, meanwhile);
    }

    /// A tile's first K block, wherever in the ring it is.
    template <class Meanwhile>
    __device__ __forceinline__ void first(const Meanwhile& meanwhile) {
        step(stage, meanwhile);
        if (++stage == Shape::kStages) stage = 0;
    }

    /// Its other K blocks, of a ring of three, entered in the middle.
    __device__ __forceinline__ void rest() {
        static_assert(Shape::kStages == 3, "as many cases");
        const auto nothing = [](auto) {};
        if (left == 0) return;
        switch (stage) {
            for (;;) {
                case 0:
                    step(0, nothing);
                    stage = 1;
                    if (left == 0) return;
                    [[fallthrough]];
                case 1:
                    step(1, nothing);
                    stage = 2;
                    if (left == 0) return;
                    [[fallthrough]];
                case 2:
                    step(2, nothing);
                    stage = 0;
                    if (left == 0) return;
            }
        }
    }

    /// K block after K block; `more` says after each tile whether there is another one.
    template <int... kStage, class Meanwhile, class More>
    __device__ __forceinline__ void through(
        std::integer_sequence<int, kStage...>, const Meanwhile& meanwhile, const More& more) {
        while (((step(kStage, meanwhile), left > 0 || more()) && ...)) {
        }
    }
};

/// All tiles of this consumer thread, which TMA can store; there is at least one.
template <class Shape>
__device__ __forceinline__ void consume_pipelined(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const TensorMap& output, const WgmmaProblem& p) {
    // Through a shuffle, or the compiler would compute them again at every use.
    const uint32_t start = warp_uniform(memory.address);
    const uint32_t a = warp_uniform(wgmma_operand(start + who.group * Shape::kSlices * (64 * Shape::kK)));
    const uint32_t b = warp_uniform(wgmma_operand(start + Shape::kRowBytes));
    const uint32_t mine = who.lane < Shape::kPair ? map_shared(memory.empty(0), who.lane) : 0;
    PipelinedLoop<Shape> along = {who, start, a, b, mine};
    along.template clear<0>();
    if constexpr (Shape::kSlices == 2) along.template clear<1>();
    TileScheduler<Shape> scheduler(p);
    WorkTile work = scheduler.work(p);  // whose sums `along` has
    along.runs = runs_of<Shape>(work);
    along.left = p.blocks;
    bool fresh = false;  // whether the tile that is multiplied is another one
    const auto store = [&](auto slice) {
        constexpr int kSlice = decltype(slice)::value;
        if (!fresh) return;
        store_slice<Shape, kSlice>(memory, who, along.sums, output, work);
        along.template clear<kSlice>();
        if constexpr (kSlice == Shape::kSlices - 1) {
            work = scheduler.work(p);
            along.runs = runs_of<Shape>(work);
            fresh = false;
        }
    };
    const auto more = [&]() {
        along.left = p.blocks;
        scheduler.next();
        fresh = true;
        return scheduler.more();
    };
    if constexpr (Shape::kSlices == 1) {
        along.through(std::make_integer_sequence<int, Shape::kStages>(), store, more);
    } else {
        do {
            along.first(store);
            along.rest();
        } while (more());
    }
    store_tma<Shape>(memory, who, along.sums, output, work);
}

}  // namespace gemm
