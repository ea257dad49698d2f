// SPDX-License-Identifier: MIT
//!KERNEL summary TMA ring, wgmma on FP8, specialised warps, fp32 promotion per 128 of K, split K inside clusters
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=2,1,0
//
// Block-scaled FP8 GEMM for Hopper: what H100 and H200 have for it, and mma_sync.cu does without.
//
// Algorithm. A block holds one tile of c at a time and walks its K in blocks of 128. One thread has TMA fill a ring of stages
// with the tile's rows of a and b (128 bytes each, in TMA's 128-byte swizzle); a second warp copies the scales beside them.
// Two consumer warpgroups take 64 or 128 rows each: four wgmma m64nNk32 into partial sums, from zero, then
// total += a_scale * b_scale * partial in fp32, which keeps the tensor cores' 13-bit adder from seeing more than 128 terms.
// The additions of one warpgroup run beside the products of the other (kTurns makes them take turns), or, with two sets of
// partial sums, beside its own next ones.
//
//   finish     used for          blocks                                              a tile leaves
//   boxes      many tiles        persistent; walk tiles in bands that share L2       bf16, stmatrix, TMA, during the next tile
//                                                                                    (with one set of partial sums: under its
//                                                                                    first products, tile/wgmma_ahead.h)
//   exchange   few tiles         a cluster shares a tile, each block a part of K     fp32 sums, sent to the blocks that own them
//                                                                                    (tile/wgmma_exchange.h): no workspace
//
// Pairs: two blocks with neighbouring columns form a cluster and each loads half of the common rows for both (multicast).
// With one set of partial sums a consumer looks at the next stage and reads its scales while products run (tile/wgmma_ahead.h).
// Few tokens: weights become the 64 rows of wgmma's A and tokens its N, so that 16 tokens cost 16 columns and not 64 rows.
// Registers: the compiler gets 168; the producer warpgroup keeps 24 and each of two consumers takes 240 (setmaxnreg).
// EARLY_START launches with programmatic dependence: a block sets up its barriers while the previous kernel ends; with 2 and
// few tokens, it also has its first weights brought into L2. The next kernel may start when all loads are under way.
//
// Which instance, and how many parts of K: as measured where it was (wgmma_measured_plans.h, tile/wgmma_measured.h), else
// tile/wgmma_plan.h decides from m, n, k and the number of multiprocessors.
//
// Shapes. Any m and n from 1 on, k a multiple of 128; pointers 16-byte aligned. Rows of c that are no multiple of 16 bytes
// (n % 8 != 0) leave by ordinary stores, which is slower. No workspace. Results repeat to the bit.
//
// Limits. A product of two scales below 2^-126 loses bits, and is zero below 2^-150.

#if !defined(EARLY_START)
#define EARLY_START 2
#endif

#include "kernel.h"
#include "tile/wgmma_launch.h"
#include "tile/wgmma_measured.h"

constexpr Tokens kRows = Tokens::kAreRows, kColumns = Tokens::kAreColumns;
constexpr Finish kBoxes = Finish::kBoxes, kExchange = Finish::kExchange;

template <int kN, int kPair = 1, int kPartials = 1>
using Persistent = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kN>
using HalfPersistent = WgmmaShape<1, 1, kN, kRows, kBoxes, 1, 2>;
template <int kConsumers, int kN, int kPartials, int kResident>
using Parts = WgmmaShape<kConsumers, 1, kN, kRows, kExchange, 1, kPartials, false, kResident>;
template <int kN, int kResident>
using FewTokens = WgmmaShape<1, 1, kN, kColumns, kExchange, 1, 2, false, kResident>;

// The instances that were best somewhere among those tried on an H200, and what each costs: cycles per K block, alone and
// with all residents, and per tile; as benchmarks/dev/fit_gemm_plan.py and, for few tokens, a fit to version 4's sweep gave
// them (benchmarks/fp8_gemm.md).
using Instances = WgmmaTable<
    //    columns, residents                      alone  all  tile
    Rated<FewTokens<16, 1>,                         200,  200,  730>,   // 64 weights x tokens
    Rated<FewTokens<16, 2>,                         200,  360,  730>,
    //    consumers, columns, partials, residents
    Rated<Parts<1, 32, 2, 1>,                       215,  215, 1800>,   // 64 tokens
    Rated<Parts<1, 64, 2, 1>,                       285,  285, 3000>,
    Rated<Parts<1, 64, 2, 2>,                       300,  570, 2900>,
    Rated<Parts<2, 64, 2, 1>,                       400,  400, 4095>,   // 128 tokens
    Rated<Parts<2, 96, 2, 1>,                       505,  505, 7055>,
    Rated<Parts<2, 128, 2, 1>,                      675,  675, 7150>,
    //    columns
    Rated<HalfPersistent<64>,                       300,  300,  450>,   // 64 tokens
    Rated<HalfPersistent<96>,                       430,  430,  450>,
    //    columns, pair, partials
    Rated<Persistent<64, 1, 2>,                     395,  395,  565>,   // 128 tokens
    Rated<Persistent<96, 1, 2>,                     600,  600,  800>,
    Rated<Persistent<128, 1, 2>,                    725,  725,  725>,
    Rated<Persistent<160>,                          885,  885,  660>,
    Rated<Persistent<192>,                         1050, 1050,  610>,
    Rated<WgmmaShape<3, 1, 128, kRows, kBoxes, 2>,  995,  995,  780>,  // 192 and 256 tokens
    //    set by hand, such that what was measured best from 1024 tokens on is picked
    Rated<WgmmaShape<2, 2, 128, kRows, kBoxes, 2>, 1365, 1365, 1200>,
    Rated<WgmmaShape<3, 1, 144, kRows, kBoxes, 2>, 1210, 1210, 780>>;

#include "wgmma_measured_plans.h"

constexpr int kMeasuredProcessors = 132;   // an H200's
using Shapes = MeasuredTable<Instances, kMeasuredProcessors, FewTokenPlans>;

/// The kernel.h arguments in the form the tile code takes.
static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*) {
    return {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), a_scale, b_scale, static_cast<uint16_t*>(c),
            nullptr, m, n, k, /*b_scale_row=*/k / 128, /*b_scale_k=*/1};
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t, void* queue) {
    if (m < 1 || n < 1 || k < 128 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), queue);
}
