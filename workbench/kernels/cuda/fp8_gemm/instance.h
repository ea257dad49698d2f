// SPDX-License-Identifier: MIT
// The later steps are single instances of the tree's Hopper kernel (gemm/wgmma_launch.h), with or without parts of K.
#pragma once

#ifndef EARLY_START
#define EARLY_START 1
#endif
#ifndef HANDBACK_SYNC
#define HANDBACK_SYNC 1
#endif

#include "gemm/wgmma_launch.h"
#include "kernel.h"

using namespace gemm;

/// Defines fp8_gemm() as one instance; `parts` is 0 where the plan decides into how many parts K is cut.
#define LADDER_INSTANCE(Shape, parts)                                                                                  \
    extern "C" int fp8_gemm(                                                                                           \
        const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*, \
        size_t, void* queue) {                                                                                         \
        if (m < 1 || n < 1 || k < 128 || k % 128 != 0) return kUnsupportedShape;                                       \
        const BlockScaledGemm problem = {                                                                              \
            static_cast<const uint8_t*>(a),                                                                            \
            static_cast<const uint8_t*>(b),                                                                            \
            a_scale,                                                                                                   \
            b_scale,                                                                                                   \
            static_cast<uint16_t*>(c),                                                                                 \
            nullptr,                                                                                                   \
            m,                                                                                                         \
            n,                                                                                                         \
            k,                                                                                                         \
            k / 128,                                                                                                   \
            1};                                                                                                        \
        using Table = WgmmaTable<Shape>;                                                                               \
        return (parts) == 0 ? Table::run(problem, queue) : Table::launch(problem, {0, parts}, queue);                  \
    }
