// SPDX-License-Identifier: MIT
// Plans measured on an H200, for wgmma_tma.cu: those at least 4 % faster than what gemm/plan.h chooses.
// Written by benchmarks/tools/measured_plans.py; do not edit.
#pragma once

//  tokens from, to,     n,     k, instance, parts of K      measured, the model's choice
using SmallMPlans = MeasuredPlans<
    Measured< 17,  64,   576,  7168, SplitK<1, 32, 2, 1>, 5>,   // 4.41 us, 4.62
    Measured< 65, 128,  2112,  7168, SplitK<2, 64, 2, 1>, 3>,   // 9.02 us, 9.82
    Measured<  1,   1,  4096,  7168, SmallM<16, 1>, 2>,   // 9.65 us, 10.10
    Measured<  5,  16,  4096,  7168, SmallM<16, 1>, 2>,   // 9.89 us, 10.73
    Measured<  1,   1,  5120, 12800, SmallM<16, 2>, 1>,   // 19.12 us, 19.99
    Measured<  2,   4,  9216,  4608, SmallM<16, 2>, 1> >;   // 13.40 us, 14.47
