// SPDX-License-Identifier: MIT
//!KERNEL summary bytes transposed in registers first, then TMA and wgmma on FP8 as in fp8_gemm/wgmma_tma
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune ROW_CHUNKS=4,8,2
//
// The AMD challenge's FP8 product on Hopper's own units, in e4m3fn.
//
// Algorithm. wgmma reads 8-bit operands from shared memory with K contiguous only, and here m and n are. So a first launch
// transposes a and b into the workspace, 16 x 16 bytes per thread in registers (tile/transpose_bytes.h), and a second one,
// which starts beside the end of the first, is the product of fp8_gemm/wgmma_tma.cu on the copies. Scales stay where they are:
// both problems have a scale per token in columns, and the product takes the strides of the weights' as they come.
//
// The copies cost (m + n) * k bytes read and as many written, which the product then mostly finds in L2. Transposing inside
// the product instead would cost no memory traffic, but every block would transpose its tiles anew.
//
// Shapes. m a multiple of 32, n of 64, k of 128; pointers 16-byte aligned. Workspace: m * k and n * k bytes, each rounded up to
// a multiple of 256. Results repeat to the bit.
//
// Limits. As fp8_gemm/wgmma_tma.cu: a product of two scales below 2^-126 loses bits, and is zero below 2^-150.

#include "kernel.h"
#include "tile/wgmma_transposed.h"

constexpr Tokens kRows = Tokens::kAreRows;
constexpr Finish kBoxes = Finish::kBoxes, kExchange = Finish::kExchange;

template <int kN, int kPair = 1, int kPartials = 1>
using Persistent = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kConsumers, int kN, int kPartials, int kResident>
using Parts = WgmmaShape<kConsumers, 1, kN, kRows, kExchange, 1, kPartials, false, kResident>;

// Of fp8_gemm/wgmma_tma.cu's instances those for 64 tokens and more, with their costs as fitted there.
using Shapes = TransposedTable<WgmmaTable<
    //    consumers, columns, partials, residents   alone  all   tile
    Rated<Parts<1, 64, 1, 2>,                       310,  585, 5015>,
    Rated<Parts<2, 64, 1, 1>,                       405,  405, 6495>,
    Rated<Parts<2, 96, 2, 1>,                       505,  505, 7055>,
    Rated<Parts<2, 128, 2, 1>,                      675,  675, 7150>,
    //    columns, pair, partials
    Rated<Persistent<64>,                           395,  395,  565>,
    Rated<Persistent<96, 2, 2>,                     575,  575,  835>,
    Rated<Persistent<128, 1, 2>,                    725,  725,  725>,
    Rated<Persistent<160>,                          925,  925,  660>,
    Rated<Persistent<192>,                         1050, 1050,  610>,
    Rated<WgmmaShape<3, 1, 128, kRows, kBoxes, 2>,  995,  995,  780>,
    Rated<WgmmaShape<2, 2, 128, kRows, kBoxes>,    1430, 1430, 1070>>>;

/// The kernel.h arguments in the form the tile code takes.
static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace) {
    return {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), a_scale, b_scale, static_cast<uint16_t*>(c),
            static_cast<float*>(workspace), m, n, k, /*b_scale_row=*/1, /*b_scale_k=*/ceil_div(n, 128)};
}

extern "C" int amd_fp8_mm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    if (m < 32 || n < 64 || k < 128 || m % 32 != 0 || n % 64 != 0 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), workspace_bytes, queue);
}
