// SPDX-License-Identifier: MIT
//!KERNEL summary TMA ring, wgmma on FP8, specialised warps, fp32 promotion per 128 of K, split K inside clusters
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=1,0

#include "kernel.h"
#include "tile/wgmma_launch.h"

constexpr Tokens kRows = Tokens::kAreRows, kColumns = Tokens::kAreColumns;
constexpr Finish kBoxes = Finish::kBoxes, kExchange = Finish::kExchange;

using Shapes = WgmmaTable<
    //         consumers, slices, columns, tokens, finish, pair, partials, turns, resident
    WgmmaShape<1, 1, 16, kColumns, kExchange, 1, 1, false, 2>,
    WgmmaShape<1, 1, 64, kColumns, kExchange, 1, 1, false, 2>,
    WgmmaShape<2, 1, 128, kRows, kExchange>,
    WgmmaShape<2, 1, 128, kRows, kBoxes, 2, 1>,
    WgmmaShape<2, 1, 128, kRows, kBoxes, 2, 1, true>,
    WgmmaShape<2, 1, 128, kRows, kBoxes, 2, 2>,
    WgmmaShape<2, 1, 160, kRows, kBoxes, 2, 1>,
    WgmmaShape<2, 1, 192, kRows, kBoxes, 2, 1>,
    WgmmaShape<2, 2, 128, kRows, kBoxes, 2, 1>,
    WgmmaShape<2, 2, 128, kRows, kBoxes, 1, 1>>;

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
