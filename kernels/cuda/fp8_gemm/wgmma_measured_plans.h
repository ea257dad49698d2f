// SPDX-License-Identifier: MIT
// Plans measured on an H200, for wgmma_tma.cu. Written by benchmarks/tools/measured_plans.py; do not edit.
#pragma once

//  tokens from, to,     n,     k, instance, parts of K
using SmallMPlans = MeasuredPlans<
    Measured<  1,   1,   576,  7168, SmallM<16, 2>, 8>,   // 3.3 us
    Measured<  2,  16,   576,  7168, SmallM<16, 2>, 8>,   // 3.6 us
    Measured< 17,  64,   576,  7168, SplitK<1, 32, 2, 1>, 5>,   // 4.4 us
    Measured< 65, 128,   576,  7168, SplitK<1, 64, 2, 1>, 4>,   // 5.4 us
    Measured<  1,   1,  2112,  7168, SmallM<16, 1>, 2>,   // 6.1 us
    Measured<  2,  16,  2112,  7168, SmallM<16, 1>, 2>,   // 6.3 us
    Measured< 17,  64,  2112,  7168, SplitK<1, 32, 2, 1>, 2>,   // 7.5 us
    Measured< 65, 128,  2112,  7168, SplitK<2, 64, 2, 1>, 3>,   // 9.4 us
    Measured<  1,   1,  4096,  7168, SmallM<16, 2>, 2>,   // 9.8 us
    Measured<  2,  16,  4096,  7168, SmallM<16, 2>, 2>,   // 10.4 us, best 10.4
    Measured< 17,  64,  4096,  7168, SplitK<1, 32, 2, 1>, 1>,   // 11.4 us
    Measured< 65, 128,  4096,  7168, SplitK<2, 64, 2, 1>, 2>,   // 12.6 us
    Measured<  1,   1,  7168,  2048, SmallM<16, 2>, 1>,   // 5.7 us
    Measured<  2,  16,  7168,  2048, SmallM<16, 2>, 1>,   // 6.1 us
    Measured< 17,  64,  7168,  2048, HalfPersistent<64>, 1>,   // 6.6 us
    Measured< 65, 128,  7168,  2048, Persistent<64, 1, 2>, 1>,   // 7.1 us
    Measured<  1,   1,  7168, 16384, SmallM<16, 2>, 2>,   // 33.2 us
    Measured<  2,  16,  7168, 16384, SmallM<16, 2>, 2>,   // 33.1 us
    Measured< 17,  64,  7168, 16384, SplitK<1, 64, 2, 2>, 2>,   // 36.1 us
    Measured< 65, 128,  7168, 16384, Persistent<64, 1, 2>, 1>,   // 37.6 us
    Measured<  1,   1, 24576,  1536, HalfPersistent<96>, 1>,   // 12.1 us
    Measured<  2,  16, 24576,  1536, HalfPersistent<96>, 1>,   // 12.5 us
    Measured< 17,  64, 24576,  1536, HalfPersistent<96>, 1>,   // 13.6 us
    Measured< 65, 128, 24576,  1536, Persistent<96, 1, 2>, 1> >;   // 14.5 us
