// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with the instances that compete for 1024 tokens and more, for gemm_variants.py. Compiled by gemm_plan.cu.
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

template <int kConsumers, int kSlices, int kN, int kPair, int kPieces = 1>
using Rolling = WgmmaShape<kConsumers, kSlices, kN, kRows, kBoxes, kPair, 2, false, 1, kPieces>;
template <int kSlices, int kN, int kPieces = 1>
using RollingSplit = WgmmaShape<2, kSlices, kN, kRows, kExchange, 1, 2, false, 1, kPieces>;

using Shapes = WgmmaTable<
    WgmmaShape<2, 2, 128, kRows, kBoxes, 2>, WgmmaShape<3, 1, 128, kRows, kBoxes, 2>,           // 0
    Rolling<2, 2, 128, 2, 2>, Rolling<2, 2, 96, 2>, Rolling<3, 1, 128, 2, 2>, Rolling<2, 1, 192, 2, 2>,   // 2
    Rolling<2, 1, 192, 1, 2>, RollingSplit<1, 192, 2>, RollingSplit<2, 96>, Persistent<96, 1, 2>>;        // 6
