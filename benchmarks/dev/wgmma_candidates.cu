// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with a longer table: the instances a sweep chooses the shipped ones from. Compiled by gemm_plan.cu.
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

template <int kN, int kPair, int kPartials = 1, bool kTurns = false>
using Boxes = WgmmaShape<2, 1, kN, kRows, kBoxes, kPair, kPartials, kTurns>;
template <int kN, int kPair, bool kTurns = false>
using Tall = WgmmaShape<2, 2, kN, kRows, kBoxes, kPair, 1, kTurns>;
template <int kConsumers, int kN, int kResident, int kPartials = 1>
using Split = WgmmaShape<kConsumers, 1, kN, kRows, kExchange, 1, kPartials, false, kResident>;
template <int kConsumers, int kN, int kResident>
using Swapped = WgmmaShape<kConsumers, 1, kN, kColumns, kExchange, 1, 1, false, kResident>;

using Shapes = WgmmaTable<
    Boxes<64, 1>, Boxes<96, 1>, Boxes<96, 1, 2>, Boxes<96, 2, 2>,                                        // 0
    Boxes<112, 1, 2>, Boxes<128, 1>, Boxes<128, 2>, Boxes<128, 1, 2>, Boxes<128, 2, 2>,                  // 4
    Boxes<128, 2, 1, true>, Boxes<144, 2>, Boxes<160, 1>, Boxes<160, 2>, Boxes<160, 2, 1, true>,         // 9
    Boxes<192, 1>, Boxes<192, 2>, Boxes<192, 2, 1, true>,                                                // 14
    Tall<96, 2>, Tall<112, 2>, Tall<128, 1>, Tall<128, 2>, Tall<128, 2, true>,                           // 17
    WgmmaShape<3, 1, 128, kRows, kBoxes, 1>, WgmmaShape<3, 1, 128, kRows, kBoxes, 2>,                    // 22
    Split<1, 64, 2>, Split<1, 128, 2>, Split<2, 64, 1>, Split<2, 96, 1, 2>, Split<2, 128, 1, 2>,         // 24
    Split<2, 64, 2>, Split<2, 128, 1>, Split<2, 192, 1>,                                                 // 29
    Swapped<1, 16, 1>, Swapped<1, 16, 2>, Swapped<1, 16, 3>, Swapped<1, 32, 2>, Swapped<1, 64, 1>,       // 32
    Swapped<1, 64, 2>, Swapped<1, 64, 3>, Swapped<2, 16, 1>, Swapped<2, 64, 1>,                          // 37
    WgmmaShape<3, 1, 144, kRows, kBoxes, 2>, Halves<64>, Halves<96>>;                                    // 41
