// SPDX-License-Identifier: MIT
// The warpgroup that makes 16-bit tiles of pages of e4m3 codes (tile/wgmma_latent_codes_shape.h).
//
// Codes go from global memory to registers, become fp16 and are stored in the swizzle that wgmma reads. A warp has 16 tokens of
// every page. It works in three steps a page: rotary columns, then the half of the latent ones whose place is free first, then the
// other half. Eight loads of 16 bytes a lane are under way at any time: where a step has stored what one brought, it asks for what
// the next step needs. Pages are asked into L2 before that.
#pragma once

#include <cstdint>

#include "fp8.h"
#include "ptx/load_once.h"
#include "ptx/mbarrier.h"
#include "ptx/mul_16bit.h"
#include "ptx/permute_bytes.h"
#include "ptx/bulk_copy.h"
#include "ptx/tma.h"
#include "ptx/store_shared.h"
#include "ptx/unpack_fp8.h"
#include "tile/decode_schedule.h"
#include "tile/wgmma_latent_codes_shape.h"
#include "tile/stamp_clock.h"
#include "tile/wgmma_latent_produce.h"

template <class Shape>
struct PageConverter {
    using Row = CodedRow;
    static constexpr int kTokens = Shape::kTokens / Shape::kConverterWarps;  // of a warp
    static constexpr int kTogether = TOGETHER == 0 ? 1 : TOGETHER;
    static constexpr int kPageBytes = Row::kPage * Row::kBytes, kThreads = 32 * Shape::kConverterWarps;

    const LatentMemory<Shape>& memory;
    const LatentCodesArguments& a;

    // Computed anew where needed: registers are scarce.
    static __device__ __forceinline__ int own_thread() { return recomputed_thread() & (kThreads - 1); }
    static __device__ __forceinline__ int own_lane() { return recomputed_thread() & 31; }

    /// Where a lane's loads of a page begin: `token` of the warp's sixteen and `byte` of its row.
    __device__ __forceinline__ const uint8_t* source(int page, int token, int byte) const {
        return a.cache + static_cast<size_t>(page) * kPageBytes + ((own_thread() / 32 * kTokens + token) * Row::kBytes + byte);
    }
    /// Latent columns: a load is of two tokens by 256 columns, four lanes one behind the other in a token's panel, then the other
    /// token, so that eight lanes' stores meet all banks. Load i is that of tokens 2 i on.
    __device__ __forceinline__ const uint8_t* codes(int page, int part) const {
        const int lane = own_lane();
        return source(page, lane / 4 % 2, part * Shape::kHalf + (lane / 8 * 4 + lane % 4) * 16);
    }
    static __device__ __forceinline__ uint4 load_codes(const uint8_t* from, int i) { return load_once(from + 2 * i * Row::kBytes); }
    /// Rotary columns: a load is of four tokens.
    __device__ __forceinline__ const uint8_t* rotary(int page) const {
        const int lane = own_lane();
        return source(page, lane / 8, Row::kRopeStart + lane % 8 * 16);
    }
    static __device__ __forceinline__ uint4 load_rotary(const uint8_t* from, int i) { return load_once(from + 4 * i * Row::kBytes); }
    /// Two scales of token lane / 2.
    __device__ __forceinline__ float2 load_scales(int page) const {
        const int lane = own_lane();
        return __ldg(reinterpret_cast<const float2*>(source(page, lane / 2, Row::kScales + lane % 2 * 8)));
    }
    /// Multiply codes by their scales over the unit, load kFirst first. `next(i)` brings what takes the place of load i.
    template <int kFirst, class Next>
    __device__ __forceinline__ void convert_codes(
        int stage, int part, int last, uint4 (&bytes)[8], uint32_t ratios, Next next) const {
        const int lane = own_lane(), other = lane / 4 % 2;
        const uint32_t first = memory.tokens(stage, part * Shape::kHalfPanels + lane / 8) +
            Swizzle<8>::offset(own_thread() / 32 * kTokens + other, 2 * (lane % 4));
        const uint32_t selector = lane < 16 ? 0x1010u : 0x3232u;
#pragma unroll
        for (int turn = 0; turn < 8; ++turn) {
            const int i = turn ^ kFirst;
            const uint32_t both = __shfl_sync(0xffffffffu, ratios, 2 * (2 * i + other) + part);
            const uint32_t scale = permute_bytes(both, both, selector);
            const auto convert = [&](uint32_t low, uint32_t high) {
                return make_uint4(
                    multiply_halves(unpack_e4m3_low(low), scale), multiply_halves(unpack_e4m3_high(low), scale),
                    multiply_halves(unpack_e4m3_low(high), scale), multiply_halves(unpack_e4m3_high(high), scale));
            };
            // Rows 2 i on, where the swizzle changes by 2 i.
            store_shared((first ^ (i % 4 * 32)) + i * 256, convert(bytes[i].x, bytes[i].y));
            store_shared((first ^ (i % 4 * 32 + 16)) + i * 256, convert(bytes[i].z, bytes[i].w));
            if (turn % kTogether == kTogether - 1) {
                // Without this the compiler moves loads before stores and needs registers for both.
                if (TOGETHER != 0) __syncwarp();
#pragma unroll
                for (int j = kTogether - 1; j >= 0; --j) next(i - j);
            }
        }
        if (last < Shape::kTokens - 1) {  // rows behind it hold NaN
#pragma unroll 1
            for (int i = 0; i < 8; ++i) {
                if (own_thread() / 32 * kTokens + other + 2 * i <= last) continue;
                store_shared((first ^ (i % 4 * 32)) + i * 256, make_uint4(0, 0, 0, 0));
                store_shared((first ^ (i % 4 * 32 + 16)) + i * 256, make_uint4(0, 0, 0, 0));
            }
        }
        publish(memory.full(stage, part * Shape::kHalfPanels));
    }

    /// Ask a page into L2.
    __device__ __forceinline__ void fetch(int page) const {
        if (FETCHED_PAGES != 0 && own_thread() == 0) bulk_prefetch_l2(a.cache + static_cast<size_t>(page) * kPageBytes, kPageBytes);
    }

    /// This warp's stores of a step are there. Whoever has wgmma read them makes them visible to it.
    static __device__ __forceinline__ void publish(uint32_t barrier) {
        __syncwarp();
        if (own_lane() == 0) mbarrier_arrive(barrier);
    }

    /// What outlives a page but is rarely used shares a register: each lane has one of these.
    enum Kept { kRequest, kStart, kBegin, kEnd, kExtra, kLastEntry };

    /// In `kept` lane kLastEntry has the table's entry of the piece's last page.
    __device__ __forceinline__ void convert_piece(const DecodePiece& piece, int kept, uint32_t& uses) const {
        int left = piece.steps.end - piece.steps.begin;  // pages
        // Of the page with which so many are left; behind the piece that of the last one, which is then asked for in vain.
        const auto number_of = [&](int with) {
            return __ldg(a.block_table + (__shfl_sync(0xffffffffu, kept, kLastEntry) - max(0, with - 1)));
        };
        int page = number_of(left);
        fetch(page);

        int last = a.schedule.tokens(piece.request) - piece.steps.begin * Shape::kTokens - 1;  // token, from the page's first
#pragma unroll 1
        for (int stage = 0; left > 0; --left, stage ^= 1, last -= Shape::kTokens) {
            const int parity = static_cast<int>(uses >> stage & 1) ^ 1;
            uses ^= 1u << stage;
            const int next_page = number_of(left - 1);
            // Loads that a loop carries would be moved between registers, which waits for them.
            uint4 bytes[8];
            float2 scales = load_scales(page);
            {
                const uint8_t *const columns = rotary(page), *const first = codes(page, stage);
#pragma unroll
                for (int i = 0; i < 8; ++i) bytes[i] = i < 4 ? load_rotary(columns, i) : load_codes(first, i);
            }
            uint32_t ratios;
            STAMP(left, 0);
            mbarrier_wait(memory.empty(stage, Shape::kParts - 1), parity);
            STAMP(left, 1);
            {
                const int thread = own_thread(), lane = thread % 32;
                if (thread / 2 > last) scales = make_float2(0.0f, 0.0f);
                // A unit is 2^-6 times a power of two, so that small codes keep their bits.
                float largest = fmaxf(scales.x, scales.y);
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                const uint32_t exponent = max(67u, min(253u, bits_from_float(largest) >> 23)) - 6;
                const float inverse = float_from_bits((254u - exponent) << 23);
                ratios = Fp16::pack(scales.x * inverse, scales.y * inverse);
                if (lane % 2 == 0) {
                    memory.units(stage)[thread / 2] =
                        make_float2(float_from_bits(exponent << 23), static_cast<float>(static_cast<int>(exponent) - 127));
                }
                const uint32_t first = memory.tokens(stage, Shape::kPanels - 1) +
                    Swizzle<8>::offset(thread / 32 * kTokens + lane / 8, lane % 8);
                const uint8_t* const next = codes(page, stage);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float by = __shfl_sync(0xffffffffu, inverse, 2 * (4 * i + lane / 8));
                    const uint32_t both = Bf16::pack(by, by);
                    // Rows 4 i on, where the swizzle changes by 4 i.
                    store_shared(
                        (first ^ (i % 2 * 64)) + i * 512,
                        make_uint4(multiply_bfloats(bytes[i].x, both), multiply_bfloats(bytes[i].y, both),
                                   multiply_bfloats(bytes[i].z, both), multiply_bfloats(bytes[i].w, both)));
                    if (i % kTogether == kTogether - 1) {
                        if (TOGETHER != 0) __syncwarp();
#pragma unroll
                        for (int j = kTogether - 1; j >= 0; --j) bytes[i - j] = load_codes(next, i - j);
                    }
                }
                if (last < Shape::kTokens - 1) {
#pragma unroll 1
                    for (int i = 0; i < 4; ++i) {
                        if (own_thread() / 32 * kTokens + lane / 8 + 4 * i <= last) continue;
                        store_shared((first ^ (i % 2 * 64)) + i * 512, make_uint4(0, 0, 0, 0));
                    }
                }
                publish(memory.full(stage, Shape::kPanels - 1));
            }
            // The owner of a page multiplies its own half of the values first. What has just been asked for is converted last.
            STAMP(left, 2);
            mbarrier_wait(memory.empty(stage, stage), parity);
            STAMP(left, 3);
            if (left > 1) fetch(next_page);
            {
                const uint8_t* const next = codes(page, stage ^ 1);
                convert_codes<4>(stage, stage, last, bytes, ratios, [&](int i) { bytes[i] = load_codes(next, i); });
            }
            STAMP(left, 4);
            mbarrier_wait(memory.empty(stage, stage ^ 1), parity);
            STAMP(left, 5);
            convert_codes<0>(stage, stage ^ 1, last, bytes, ratios, [](int) {});
            page = next_page;
            STAMP(left, 6);
        }
    }

    /// All pieces of this block.
    __device__ __forceinline__ void convert() const {
        uint32_t uses = 0;  // bit s: the parity of how often stage s was filled
        DecodeWalk walk(a.schedule, static_cast<int>(blockIdx.x) / a.row_tiles, own_lane());
        DecodePiece piece;
        while (walk.next(a.schedule, piece)) {
            if (piece.steps.end <= piece.steps.begin) continue;
            const int lane = own_lane();
            const int kept = lane == kRequest ? walk.request
                             : lane == kStart ? walk.start
                             : lane == kBegin ? walk.begin
                             : lane == kEnd   ? walk.end
                             : lane == kExtra ? walk.extra
                                              : piece.request * a.max_blocks + piece.steps.end - 1;  // less than 2^28
            convert_piece(piece, kept, uses);
            walk.request = __shfl_sync(0xffffffffu, kept, kRequest);
            walk.start = __shfl_sync(0xffffffffu, kept, kStart);
            walk.begin = __shfl_sync(0xffffffffu, kept, kBegin);
            walk.end = __shfl_sync(0xffffffffu, kept, kEnd);
            walk.extra = __shfl_sync(0xffffffffu, kept, kExtra);
        }
    }
};
