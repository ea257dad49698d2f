// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with the instances that compete for M >= 1024, for gemm_variants.py. Compiled by gemm_plan.cu.
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

template <int kN, int kPair, int kPartials = 1>
using Boxes = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials>;
template <int kPair>
using Tall = WgmmaShape<2, 2, 128, kRows, kBoxes, kPair>;
template <int kPair>
using Three = WgmmaShape<3, 1, 128, kRows, kBoxes, kPair>;

template <int kPair>
using Tri144 = WgmmaShape<3, 1, 144, kRows, kBoxes, kPair>;
template <int kN, int kPartials>
using Split = WgmmaShape<2, 1, kN, kRows, kExchange, 1, kPartials>;
template <int kN, int kPartials = 1, int kSlices = 1>
using Halves = WgmmaShape<2, kSlices, kN, kRows, Finish::kHalves, 1, kPartials>;

using Shapes = WgmmaTable<
    Tall<2>, Three<2>, Tall<1>, Tri144<1>, Tri144<2>,                                 // 0
    Boxes<192, 2>, Boxes<192, 1>, Boxes<160, 2>, Boxes<160, 1>, Boxes<128, 1, 2>,     // 5
    Boxes<96, 2, 2>, Boxes<96, 1, 2>, Halves<192>, Halves<96, 2>, Halves<64, 2>,      // 10
    Halves<128, 2>, Split<96, 2>>;                                                    // 15
