// SPDX-License-Identifier: MIT
// Queries of the MLA decode over e4m3 codes as sums of two e4m3 numbers, so that keys are multiplied as they are.
//
// A bf16 number has eight significant bits, an e4m3 number four. The larger term is the query rounded to e4m3: what is left is at
// most half a unit of its last place, so four bits suffice for it, too. With a row's largest query at 2^7 .. 2^8 and codes down to
// 2^-9 the two are exact where a query is 2^-9 or more of the largest, and off by less than 2^-17 of the largest elsewhere.
#pragma once

#include <cstdint>

#include "fp8.h"
#include "ptx/mul_16bit.h"
#include "ptx/pack_fp8.h"
#include "ptx/tma.h"
#include "ptx/unpack_16bit.h"
#include "ptx/unpack_fp8.h"
#include "tile/coded_latent_shape.h"
#include "tile/swizzle.h"
#include "tile/wide_rows.h"

/// Four numbers as e4m3, and what is left of them as e4m3.
__device__ __forceinline__ void split_e4m3(const float (&x)[4], uint32_t& larger, uint32_t& smaller) {
    larger = pack_e4m3(x[0], x[1], x[2], x[3]);
    const float2 low = unpack_pair<Fp16>(unpack_e4m3_low(larger)), high = unpack_pair<Fp16>(unpack_e4m3_high(larger));
    smaller = pack_e4m3(x[0] - low.x, x[1] - low.y, x[2] - high.x, x[3] - high.y);
}

/// One thread's share of the 16 query rows of a piece, sixteen threads to a row: 32 latent columns, and 4 rotary ones. The block's
/// first 256 threads.
struct QueryTerms {
    uint32_t words[16];
    uint2 rotary;

    /// Ask for them; `q` is the first row.
    __device__ __forceinline__ void load(const uint8_t* q) {
        const int thread = recomputed_thread(), row = thread / 16, part = thread % 16;
        const uint8_t* const from = q + row * (CodedRow::kWidth * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint4 four = *reinterpret_cast<const uint4*>(from + part * 64 + i * 16);
            words[4 * i] = four.x;
            words[4 * i + 1] = four.y;
            words[4 * i + 2] = four.z;
            words[4 * i + 3] = four.w;
        }
        rotary = *reinterpret_cast<const uint2*>(from + CodedRow::kLatent * 2 + part * 8);
    }

    /// Divided by powers of two to shared memory; the threads `meet` before they write, and afterwards.
    template <class Shape, class Memory, class Meet>
    __device__ __forceinline__ void store(const Memory& memory, Meet meet) const;
};

template <class Shape, class Memory, class Meet>
__device__ __forceinline__ void QueryTerms::store(const Memory& memory, Meet meet) const {
    static_assert(Shape::kRows == 16 && Shape::kConsumers == 256, "sixteen threads to a row");
    const int thread = recomputed_thread(), row = thread / 16, part = thread % 16;
    float largest = 0.0f;
    const auto see = [&](uint32_t word) {
        const float2 pair = unpack_pair<Bf16>(word);
        largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
    };
#pragma unroll
    for (int i = 0; i < 16; ++i) see(words[i]);
    see(rotary.x);
    see(rotary.y);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    const float by = float_from_bits(query_exponent(largest, 7));
    uint8_t* const panel = memory.at(memory.query(part / 4 * 2));
    meet();
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // 16 columns: a chunk of either term
        uint32_t larger[4], smaller[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 low = unpack_pair<Bf16>(words[8 * i + 2 * j]), high = unpack_pair<Bf16>(words[8 * i + 2 * j + 1]);
            const float x[4] = {low.x * by, low.y * by, high.x * by, high.y * by};
            split_e4m3(x, larger[j], smaller[j]);
        }
        uint8_t* const at = panel + Swizzle<8>::offset(row, part % 4 * 2 + i);
        *reinterpret_cast<uint4*>(at) = make_uint4(larger[0], larger[1], larger[2], larger[3]);
        *reinterpret_cast<uint4*>(at + Shape::kPanelBytes) = make_uint4(smaller[0], smaller[1], smaller[2], smaller[3]);
    }
    uint8_t* const last = memory.at(memory.query(Shape::kPanels - 1));
    *reinterpret_cast<uint2*>(last + Swizzle<8>::offset(row, part / 2) + part % 2 * 8) =
        make_uint2(multiply_bfloats(rotary.x, Bf16::pack(by, by)), multiply_bfloats(rotary.y, Bf16::pack(by, by)));
    // Codes cannot be infinite: a row that is keeps no finite score.
    if (part == 0) memory.factors()[row] = isinf(largest) ? NAN : power_over(0, by);
    fence_async_shared();
}
