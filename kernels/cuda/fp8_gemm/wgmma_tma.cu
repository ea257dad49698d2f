// SPDX-License-Identifier: MIT
//!KERNEL summary TMA ring, wgmma on FP8, specialised warps, fp32 promotion per 128 of K, split K inside clusters
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=2,1,0
//!KERNEL tune HANDBACK_SYNC=1,0
//
//   producer loop  gemm/producer.h (produce_tiles, produce_scales)
//   main loop      gemm/mainloop.h (WgmmaConsumer, PipelinedLoop)
//   epilogue       gemm/epilogue.h (store_tma), gemm/cluster_reduce.h (ShareStore)
//
// Block-scaled FP8 GEMM for Hopper: uses TMA, wgmma and clusters. mma_sync.cu is the kernel without them.
//
// Algorithm. A block computes one tile of c at a time, over K in blocks of 128. The producer is two warps: one thread has TMA
// fill the pipeline's stages with the tile's rows of a and b (128 bytes each, in TMA's 128-byte swizzle); the second warp copies
// the scales. Two consumer warpgroups take 64 or 128 rows each. Per K block they issue four wgmma m64nNk32 into partial sums, from
// zero, and then add total += a_scale * b_scale * partial in fp32: the tensor cores' 13-bit adder never sees more than 128 terms.
// The additions of one warpgroup run beside the products of the other (kPingPong makes them alternate) or, with two sets of partial
// sums, beside its own next products.
//
//   epilogue         used for     blocks                                         output of a tile
//   kTmaStore        many tiles   persistent; tiles in bands that share L2       bf16 by stmatrix and TMA, during the next tile
//                                                                                (one set of partial sums: under its first
//                                                                                products, gemm/mainloop.h)
//   kClusterReduce   few tiles    a cluster shares a tile, each block part of K   fp32 sums, sent to the blocks that own them
//                                                                                (gemm/cluster_reduce.h); no workspace
//
// Pairs: two blocks with neighbouring columns form a cluster and each loads half of the common rows for both (multicast).
// With one set of partial sums a consumer looks at the next stage and reads its scales while products run (gemm/mainloop.h).
// Small M: weights become the 64 rows of wgmma's A and tokens its N, so that 16 tokens cost 16 columns and not 64 rows.
// Registers: the compiler gets 168; the producer warpgroup keeps 24 and each of two consumers takes 240 (setmaxnreg).
// EARLY_START launches with programmatic dependence: a block sets up its barriers while the previous kernel ends; with 2 and
// small M, it also prefetches its first weights into L2. The next kernel may start when all loads are under way.
//
// Which instance, and how many parts of K: a measured plan if there is one (wgmma_measured_plans.h), else
// gemm/plan.h decides from m, n, k and the number of multiprocessors.
//
// Shapes. Any m and n from 1 on, k a multiple of 128; pointers 16-byte aligned. Rows of c that are no multiple of 16 bytes
// (n % 8 != 0) are written by ordinary stores, which is slower. No workspace. Results repeat to the bit.
//
// Limits. A product of two scales below 2^-126 loses bits, and is zero below 2^-150.

#include "gemm/wgmma_launch.h"
#include "kernel.h"

using namespace gemm;

constexpr Tokens kRows = Tokens::kAreRows, kColumns = Tokens::kAreColumns;
constexpr Epilogue kTmaStore = Epilogue::kTmaStore, kClusterReduce = Epilogue::kClusterReduce;

template <int kN, int kPair = 1, int kPartials = 1>
using Persistent = WgmmaShape<2, 1, kN, kRows, kTmaStore, kPair, kPartials>;
template <int kN>
using HalfPersistent = WgmmaShape<1, 1, kN, kRows, kTmaStore, 1, 2>;
template <int kConsumers, int kN, int kPartials, int kResident>
using SplitK = WgmmaShape<kConsumers, 1, kN, kRows, kClusterReduce, 1, kPartials, false, kResident>;
template <int kN, int kResident>
using SmallM = WgmmaShape<1, 1, kN, kColumns, kClusterReduce, 1, 2, false, kResident>;
template <int kN, int kPartials>
using MediumM = WgmmaShape<2, 1, kN, kColumns, kClusterReduce, 1, kPartials>;

// The instances that were best somewhere among those tried on an H200, and what each costs: cycles per K block, alone and
// with all residents, and per tile, as benchmarks/tools/fit_gemm_plan.py fitted them to sweeps of 231 products on an H200
// (benchmarks/fp8_gemm.md, version 10).
using Instances = WgmmaTable<
    //    columns, residents                      alone  all  tile
    Instance<SmallM<16, 1>, 319, 319, 991>,  // 64 weights x tokens
    Instance<SmallM<16, 2>, 322, 499, 830>,
    //    consumers, columns, partials, residents
    Instance<SplitK<1, 32, 2, 1>, 263, 263, 1836>,  // 64 tokens
    Instance<SplitK<1, 64, 2, 1>, 324, 324, 1753>, Instance<SplitK<1, 64, 2, 2>, 369, 570, 1521>,
    Instance<SplitK<1, 80, 2, 1>, 354, 354, 3319>, Instance<SplitK<2, 64, 2, 1>, 400, 400, 2953>,  // 128 tokens
    Instance<SplitK<2, 80, 2, 1>, 514, 514, 3903>, Instance<SplitK<2, 96, 2, 1>, 513, 513, 6285>,
    Instance<SplitK<2, 128, 2, 1>, 663, 663, 5463>,
    //    columns
    Instance<HalfPersistent<64>, 331, 331, 622>,  // 64 tokens
    Instance<HalfPersistent<96>, 489, 489, 383>, Instance<HalfPersistent<128>, 498, 498, 510>,
    //    columns, pair, partials
    Instance<Persistent<48, 1, 2>, 456, 456, 642>, Instance<Persistent<64, 1, 2>, 454, 454, 594>,  // 128 tokens
    Instance<Persistent<80, 1, 2>, 535, 535, 797>, Instance<Persistent<96, 1, 2>, 572, 572, 586>,
    Instance<Persistent<128, 1, 2>, 706, 706, 856>, Instance<Persistent<128>, 690, 690, 918>,
    Instance<Persistent<128, 2, 2>, 687, 687, 1075>, Instance<Persistent<160>, 901, 901, 878>,
    Instance<Persistent<160, 2>, 884, 884, 629>, Instance<Persistent<192>, 1046, 1046, 613>,
    Instance<WgmmaShape<3, 1, 128, kRows, kTmaStore, 2>, 987, 987, 913>,  // 192 and 256 tokens
    Instance<WgmmaShape<2, 2, 128, kRows, kTmaStore, 2>, 1330, 1330, 1190>,
    Instance<WgmmaShape<3, 1, 144, kRows, kTmaStore, 2>, 1233, 1233, 787>,
    //    columns, partials
    Instance<MediumM<64, 2>, 610, 610, 3458>,  // 128 weights x tokens: 129 to 192 of them
    Instance<MediumM<160, 1>, 965, 965, 9338>>;

#include "wgmma_measured_plans.h"

constexpr int kMeasuredProcessors = 132;  // an H200's
using Shapes = MeasuredTable<Instances, kMeasuredProcessors, SmallMPlans>;

/// The kernel.h arguments in the form the tile code takes.
static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*) {
    return {
        static_cast<const uint8_t*>(a),
        static_cast<const uint8_t*>(b),
        a_scale,
        b_scale,
        static_cast<uint16_t*>(c),
        nullptr,
        m,
        n,
        k,
        /*b_scale_row=*/k / 128,
        /*b_scale_k=*/1};
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t, void* queue) {
    if (m < 1 || n < 1 || k < 128 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), queue);
}
