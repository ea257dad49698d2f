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
//   halves     1024 tokens       two share a tile, each block half of K              fp32 sums of half of the columns sent to the
//                                                                                    other block, added there; then as boxes
//   exchange   few tiles         a cluster shares a tile, each block a part of K     fp32 sums added through distributed shared
//                                                                                    memory in the order of K: no workspace
//
// Pairs: two blocks with neighbouring columns form a cluster and each loads half of the common rows for both (multicast).
// Their consumers look at the next stage and read its scales while products run (tile/wgmma_ahead.h).
// Few tokens: weights become the 64 rows of wgmma's A and tokens its N, so that 16 tokens cost 16 columns and not 64 rows.
// Registers: the compiler gets 168; the producer warpgroup keeps 24 and each of two consumers takes 240 (setmaxnreg).
// EARLY_START launches with programmatic dependence: a block sets up its barriers while the previous kernel ends; with 2 and
// few tokens, it also has its first weights brought into L2. The next kernel may start when all loads are under way.
//
// Which instance, and how many parts of K, tile/wgmma_plan.h decides from m, n, k and the number of multiprocessors.
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

constexpr Tokens kRows = Tokens::kAreRows, kColumns = Tokens::kAreColumns;
constexpr Finish kBoxes = Finish::kBoxes, kExchange = Finish::kExchange;

template <int kN, int kPair = 1, int kPartials = 1>
using Persistent = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kN>
using Halves = WgmmaShape<2, 1, kN, kRows, Finish::kHalves, 1, 2>;
template <int kConsumers, int kN, int kPartials, int kResident>
using Parts = WgmmaShape<kConsumers, 1, kN, kRows, kExchange, 1, kPartials, false, kResident>;
template <int kN, int kResident>
using FewTokens = WgmmaShape<1, 1, kN, kColumns, kExchange, 1, 1, false, kResident>;

// The instances that were best somewhere among 41 on an H200, and what each costs: cycles per K block, alone and with all
// residents, and per tile; as benchmarks/dev/fit_gemm_plan.py fitted them to the sweep of benchmarks/fp8_gemm.md.
using Shapes = WgmmaTable<
    //    columns, residents                    alone  all   tile
    Rated<FewTokens<16, 3>,                         280,  520, 3190>,   // 64 weights x tokens
    Rated<FewTokens<32, 2>,                         285,  500, 4405>,
    //    consumers, columns, partials, residents
    Rated<Parts<1, 64, 1, 2>,                       310,  585, 5015>,   // 64 and 128 tokens
    Rated<Parts<1, 128, 1, 2>,                      505, 1020, 5650>,
    Rated<Parts<2, 64, 1, 1>,                       405,  405, 6495>,
    Rated<Parts<2, 96, 2, 1>,                       505,  505, 7055>,
    Rated<Parts<2, 128, 2, 1>,                      675,  675, 7150>,
    //    columns, pair, partials
    Rated<Persistent<64>,                           395,  395,  565>,   // 128 tokens
    Rated<Persistent<96, 2, 2>,                     575,  575,  835>,
    Rated<Persistent<128, 1, 2>,                    725,  725,  725>,
    Rated<Persistent<160>,                          925,  925,  660>,
    Rated<Persistent<192>,                         1050, 1050,  610>,
    Rated<WgmmaShape<3, 1, 128, kRows, kBoxes, 2>,  995,  995,  780>,  // 192 and 256 tokens
    Rated<WgmmaShape<2, 2, 128, kRows, kBoxes, 2>, 1365, 1365, 1200>,
    //    from here on not fitted but set such that what was measured best is picked
    Rated<Persistent<96, 1, 2>,                     575,  575, 1100>,   // 128 tokens
    Rated<WgmmaShape<3, 1, 144, kRows, kBoxes, 2>, 1210, 1210,  780>,   // 192 tokens
    //    columns, K in halves
    Rated<Halves<64>,                               410,  410, 5400>,   // 128 tokens
    Rated<Halves<96>,                               505,  505, 5800>>;

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
