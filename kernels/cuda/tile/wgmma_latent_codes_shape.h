// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes that a warpgroup makes 16-bit tiles of: arguments, and what lies where in shared memory.
//
// See mla_decode_fp8/wgmma_bulk.cu for the algorithm.
#pragma once

#include "tile/coded_latent_shape.h"
#include "tile/wgmma_latent_shape.h"

#ifndef CONSUMER_REGISTERS
#define CONSUMER_REGISTERS 216  // converting warpgroups get what two of these leave of 504, what a block starts with
#endif
#ifndef FETCHED_PAGES
#define FETCHED_PAGES 2
#endif
#ifndef TOGETHER
#define TOGETHER 2
#endif

/// `scale` is 1: the rows' factors have the real one.
struct LatentCodesArguments : LatentArguments {
    float code_scale;  // softmax_scale * log2(e)
};

/// Stages are those of LatentShape, latent columns in fp16: a code times its scale over the token's unit, a power of two below the
/// largest of its scales. Rotary columns are bf16, over the same.
struct LatentCodes : LatentShape<1, true> {
    using Base = LatentShape<1, true>;
    using Row = CodedRow;
    using Arguments = LatentCodesArguments;
    using Element = Fp16;
    static constexpr bool kCoded = true;
    static constexpr float kRaised = 7.0f;  // with kSlack weights reach 2^15
    static constexpr int kConverterWarps = 4;
    static constexpr int kConsumerRegisters = CONSUMER_REGISTERS, kProducerRegisters = 504 - 2 * CONSUMER_REGISTERS;

    // A thread has 168 when the block starts, and nobody gives up what others do not take.
    static_assert(2 * kConsumerRegisters + kProducerRegisters <= 3 * 168, "else the last to ask waits for ever");

    static constexpr int kUnits = Base::kSharedBytes;                  // [stage][token] {unit, its logarithm}, fp32
    static constexpr int kFactors = kUnits + kStages * kTokens * 8;  // [row] fp32
    static constexpr int kSharedBytes = kFactors + kRows * 4;
    static_assert(kUnits % 16 == 0 && kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};
