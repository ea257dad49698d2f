// SPDX-License-Identifier: MIT
// Instances of fp8_gemm/wgmma_tma.cu that compete for 1024 tokens and more, for gemm_variants.py. Compiled by gemm_plan.cu.
#define EARLY_START 2   // as wgmma_tma.cu has it

#include "kernel.h"
#include "tile/wgmma_launch.h"

constexpr Tokens kRows = Tokens::kAreRows;
constexpr Finish kBoxes = Finish::kBoxes;

template <int kN, int kPair, int kPartials = 1>
using Boxes = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kN, int kPair>
using Three = WgmmaShape<3, 1, kN, kRows, kBoxes, kPair>;

using Shapes = WgmmaTable<
    WgmmaShape<2, 2, 128, kRows, kBoxes, 2>, Three<128, 2>, Three<144, 2>,       // 0
    Boxes<96, 2>, Boxes<96, 2, 2>, Boxes<96, 1, 2>, Boxes<128, 1, 2>,            // 3
    Boxes<160, 1>, Boxes<160, 2>, Boxes<192, 1>, Boxes<192, 2>>;                 // 7

static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*) {
    return {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), a_scale, b_scale, static_cast<uint16_t*>(c),
            nullptr, m, n, k, /*b_scale_row=*/k / 128, /*b_scale_k=*/1};
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t, void* queue) {
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), queue);
}
