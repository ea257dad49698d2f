// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with a longer table: the instances a sweep chooses the shipped ones from. Compiled by gemm/plan_entries.h.
#ifndef EARLY_START
#define EARLY_START 2  // as wgmma_tma.cu has it
#endif
#ifndef HANDBACK_SYNC
#define HANDBACK_SYNC 1
#endif
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

template <int kN, int kPair, int kPartials = 1, bool kPingPong = false>
using Boxes = WgmmaShape<2, 1, kN, kRows, kTmaStore, kPair, kPartials, kPingPong>;
template <int kN, int kPair, bool kPingPong = false>
using Tall = WgmmaShape<2, 2, kN, kRows, kTmaStore, kPair, 1, kPingPong>;
template <int kConsumers, int kN, int kResident, int kPartials = 1>
using Split = WgmmaShape<kConsumers, 1, kN, kRows, kClusterReduce, 1, kPartials, false, kResident>;
template <int kConsumers, int kN, int kResident, int kPartials = 1>
using Swapped = WgmmaShape<kConsumers, 1, kN, kColumns, kClusterReduce, 1, kPartials, false, kResident>;

using Shapes = WgmmaTable<
    Boxes<64, 1>, Boxes<96, 1>, Boxes<96, 1, 2>, Boxes<96, 2, 2>,                                     // 0
    Boxes<112, 1, 2>, Boxes<128, 1>, Boxes<128, 2>, Boxes<128, 1, 2>, Boxes<128, 2, 2>,               // 4
    Boxes<128, 2, 1, true>, Boxes<144, 2>, Boxes<160, 1>, Boxes<160, 2>, Boxes<160, 2, 1, true>,      // 9
    Boxes<192, 1>, Boxes<192, 2>, Boxes<192, 2, 1, true>,                                             // 14
    Tall<96, 2>, Tall<112, 2>, Tall<128, 1>, Tall<128, 2>, Tall<128, 2, true>,                        // 17
    WgmmaShape<3, 1, 128, kRows, kTmaStore, 1>, WgmmaShape<3, 1, 128, kRows, kTmaStore, 2>,           // 22
    Split<1, 64, 2>, Split<1, 128, 2>, Split<2, 64, 1>, Split<2, 96, 1, 2>, Split<2, 128, 1, 2>,      // 24
    Split<2, 64, 2>, Split<2, 128, 1>, Split<2, 192, 1>,                                              // 29
    Swapped<1, 16, 1>, Swapped<1, 16, 2>, Swapped<1, 16, 3>, Swapped<1, 32, 2>, Swapped<1, 64, 1>,    // 32
    Swapped<1, 64, 2>, Swapped<1, 64, 3>, Swapped<2, 16, 1>, Swapped<2, 64, 1>,                       // 37
    Swapped<1, 16, 1, 2>, Swapped<1, 16, 2, 2>, Split<1, 32, 1, 2>, Split<1, 64, 1, 2>,               // 41
    Split<1, 64, 2, 2>, Split<2, 64, 1, 2>, HalfPersistent<64>, HalfPersistent<96>, Boxes<64, 1, 2>,  // 45
    WgmmaShape<3, 1, 144, kRows, kTmaStore, 2>,                                                       // 50
    Boxes<80, 1, 2>, Boxes<80, 2, 2>, Boxes<144, 1>, Split<2, 80, 1, 2>, Split<2, 112, 1, 2>,         // 51
    HalfPersistent<80>, HalfPersistent<112>, HalfPersistent<128>, Split<1, 96, 1, 2>,                 // 56
    Split<1, 128, 1, 2>, Boxes<48, 1, 2>,                                                             // 60
    Swapped<1, 32, 1, 2>, Swapped<1, 32, 2, 2>, Swapped<1, 48, 1, 2>, Swapped<1, 64, 1, 2>,           // 62
    Swapped<2, 16, 1, 2>, Swapped<2, 32, 1, 2>, Swapped<2, 48, 1, 2>, Swapped<2, 64, 1, 2>,           // 66
    Swapped<2, 96, 1, 2>, HalfPersistent<32>, HalfPersistent<48>,                                     // 70
    Split<1, 32, 2, 2>, Split<1, 48, 1, 2>, Split<1, 48, 2, 2>, Split<1, 80, 1, 2>>;                  // 73
