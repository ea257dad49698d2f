// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with the instances that compete for 1024 tokens and more, for gemm_variants.py. Compiled by gemm_plan.cu.
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

template <int kN, int kPair, int kPartials = 1>
using Boxes = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kN, int kPair>
using Three = WgmmaShape<3, 1, kN, kRows, kBoxes, kPair>;
template <int kN>
using Split = WgmmaShape<2, 1, kN, kRows, kExchange, 1, 2>;

using Shapes = WgmmaTable<
    WgmmaShape<2, 2, 128, kRows, kBoxes, 2>, Three<128, 2>, Three<144, 2>, Boxes<192, 2>,    // 0
    Boxes<192, 1>, Boxes<160, 2>, Boxes<160, 1>, Boxes<128, 1, 2>, Boxes<96, 2, 2>,          // 4
    Boxes<96, 1, 2>, Split<64>, Split<96>, Split<128>, Boxes<96, 2>, Boxes<96, 1>>;          // 9
