// SPDX-License-Identifier: MIT
//!KERNEL summary both operands transposed in registers first, then the product of fp8_gemm/wgmma_tma on the copies
//!KERNEL arch sm_90a
//!KERNEL tune COPIES=2,1
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune EARLY_COPIES=0,1
//!KERNEL tune HANDBACK_SYNC=1,0
//!KERNEL tune ROW_CHUNKS=4,8,2
//
//   producer loop  gemm/producer.h (produce_tiles, produce_scales)
//   main loop      gemm/mainloop.h (WgmmaConsumer), gemm/mn_major_a.h (sum_mn_major)
//   epilogue       gemm/epilogue.h (store_tma), gemm/cluster_reduce.h (ShareStore)
//
// The AMD challenge's FP8 product on Hopper's own units, in e4m3fn.
//
// Algorithm. wgmma reads 8-bit operands from shared memory with K contiguous only, and here m and n are. So a first launch
// transposes a and b into the workspace, 16 x 16 bytes per thread in registers (gemm/transpose_bytes.h), at the speed of a
// copy. The second launch starts beside the end of the first (EARLY_START=1; EARLY_COPIES=1 would start the first beside the
// end of what was before, which costs) and is the product of fp8_gemm/wgmma_tma.cu. Scales stay where they are: both problems
// have a scale per token in columns, and the product takes the strides of the weights' as they come.
//
// COPIES=1 copies only the smaller operand, and no faster so far. wgmma's A may come from registers, and what a warp needs
// takes four ldmatrix.trans and 16 byte permutes per 16 rows and 128 k (gemm/mn_major_a.h); the copy of the other operand
// has K in the order which those leave A in. A is tokens or weights. What that saves in copies its main loop has lost where
// K is long (benchmarks/fp8_gemm.md, versions 2 to 4; as it is now it has run on an emulated H100 alone).
//
// Shapes. m a multiple of 32, n of 64, k of 128; pointers 16-byte aligned. Workspace: m * k and n * k bytes, or the larger with
// COPIES=1, each rounded up to a multiple of 256. Results repeat to the bit.
//
// Limits. As fp8_gemm/wgmma_tma.cu: a product of two scales below 2^-126 loses bits, and is zero below 2^-150.

#include <type_traits>

#include "gemm/transposed_launch.h"
#include "kernel.h"

using namespace gemm;

constexpr Tokens kRows = Tokens::kAreRows;
constexpr Epilogue kTmaStore = Epilogue::kTmaStore, kClusterReduce = Epilogue::kClusterReduce;

template <int kN, int kPair = 1, int kPartials = 1>
using Persistent = WgmmaShape<2, 1, kN, kRows, kTmaStore, kPair, kPartials>;
template <int kConsumers, int kN, int kPartials, int kResident>
using SplitK = WgmmaShape<kConsumers, 1, kN, kRows, kClusterReduce, 1, kPartials, false, kResident>;

template <int kN, Epilogue kEpilogue, int kPair = 1>
using WeightRows = MnMajorRows<WgmmaShape<2, 1, kN, Tokens::kAreColumns, kEpilogue, kPair>>;

// Of fp8_gemm/wgmma_tma.cu's instances those for 64 tokens and more, with their costs as fitted there.
using CopiedRows = WgmmaTable<
    //    consumers, columns, partials, residents   alone  all   tile
    Instance<SplitK<1, 64, 1, 2>, 310, 585, 5015>, Instance<SplitK<2, 64, 1, 1>, 405, 405, 6495>,
    Instance<SplitK<2, 96, 2, 1>, 505, 505, 7055>, Instance<SplitK<2, 128, 2, 1>, 675, 675, 7150>,
    //    columns, pair, partials
    Instance<Persistent<64>, 395, 395, 565>, Instance<Persistent<96, 2, 2>, 575, 575, 835>,
    Instance<Persistent<128, 1, 2>, 725, 725, 725>, Instance<Persistent<160>, 925, 925, 660>,
    Instance<Persistent<192>, 1050, 1050, 610>, Instance<WgmmaShape<3, 1, 128, kRows, kTmaStore, 2>, 995, 995, 780>,
    Instance<WgmmaShape<2, 2, 128, kRows, kTmaStore>, 1430, 1430, 1070>>;
// The like with 128 rows, and one set of partial sums where two and the rows' registers are too many. Constants are guesses.
using RowsInPlace = WgmmaTable<
    Instance<MnMajorRows<SplitK<2, 64, 1, 1>>, 405, 405, 6495>,
    Instance<MnMajorRows<SplitK<2, 96, 2, 1>>, 505, 505, 7055>,
    Instance<MnMajorRows<SplitK<2, 128, 1, 1>>, 725, 725, 7150>, Instance<MnMajorRows<Persistent<64>>, 395, 395, 565>,
    Instance<MnMajorRows<Persistent<96, 2, 2>>, 575, 575, 835>, Instance<MnMajorRows<Persistent<128>>, 775, 775, 725>,
    Instance<MnMajorRows<Persistent<160>>, 925, 925, 660>, Instance<MnMajorRows<Persistent<192>>, 1050, 1050, 610>,
    // weights as rows, tokens as columns
    Instance<WeightRows<64, kClusterReduce>, 430, 430, 6495>, Instance<WeightRows<128, kClusterReduce>, 800, 800, 7150>,
    Instance<WeightRows<64, kTmaStore>, 430, 430, 565>, Instance<WeightRows<96, kTmaStore, 2>, 630, 630, 835>,
    Instance<WeightRows<128, kTmaStore>, 800, 800, 725>, Instance<WeightRows<128, kTmaStore, 2>, 800, 800, 825>,
    Instance<WeightRows<144, kTmaStore>, 890, 890, 725>>;
using Shapes = std::conditional_t<COPIES == 2, TransposedTable<CopiedRows, true>, TransposedTable<RowsInPlace, false>>;

/// The kernel.h arguments in the form the tile code takes.
static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace) {
    return {
        static_cast<const uint8_t*>(a),
        static_cast<const uint8_t*>(b),
        a_scale,
        b_scale,
        static_cast<uint16_t*>(c),
        static_cast<float*>(workspace),
        m,
        n,
        k,
        /*b_scale_row=*/1,
        /*b_scale_k=*/ceil_div(n, 128)};
}

extern "C" int amd_fp8_mm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    if (m < 32 || n < 64 || k < 128 || m % 32 != 0 || n % 64 != 0 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), workspace_bytes, queue);
}
