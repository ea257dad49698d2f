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
#include "ptx/prefetch.h"
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
    static constexpr bool kLate = LATE_LOADS != 0;
    static constexpr int kPageBytes = Row::kPage * Row::kBytes, kThreads = 32 * Shape::kConverterWarps;

    const LatentMemory<Shape>& memory;
    const LatentCodesArguments& a;

    // Computed anew where needed: registers are scarce.
    static __device__ __forceinline__ int own_thread() { return recomputed_thread() & (kThreads - 1); }
    static __device__ __forceinline__ int own_lane() { return recomputed_thread() & 31; }

    /// Where a lane's loads of a page begin: its own token there, and how many tokens further on the request's last one is. Tokens
    /// behind that may be NaN, so their rows become copies of it: they are masked.
    struct Source {
        const uint8_t* start;
        int left;

        __device__ __forceinline__ uint4 load(int tokens) const { return load_once(start + min(tokens, left) * Row::kBytes); }
    };
    /// `token` of the warp's sixteen and `byte` of its row; the page's last token is `last`.
    __device__ __forceinline__ Source source(int page, int last, int token, int byte) const {
        const int first = own_thread() / 32 * kTokens + token;
        return {a.cache + static_cast<size_t>(page) * kPageBytes + (first * Row::kBytes + byte), last - first};
    }
    /// Latent columns: a load is of two tokens by 256 columns, four lanes one behind the other in a token's panel, then the other
    /// token, so that eight lanes' stores meet all banks.
    __device__ __forceinline__ Source codes(int page, int last, int part) const {
        const int lane = own_lane();
        return source(page, last, lane / 4 % 2, part * Shape::kHalf + (lane / 8 * 4 + lane % 4) * 16);
    }
    /// Rotary columns: a load is of four tokens.
    __device__ __forceinline__ Source rotary(int page, int last) const {
        const int lane = own_lane();
        return source(page, last, lane / 8, Row::kRopeStart + lane % 8 * 16);
    }
    /// Two scales of token lane / 2.
    __device__ __forceinline__ float2 load_scales(int page, int last) const {
        const int lane = own_lane();
        const Source from = source(page, last, lane / 2, Row::kScales + lane % 2 * 8);
        return __ldg(reinterpret_cast<const float2*>(from.start + min(0, from.left) * Row::kBytes));
    }

    /// Multiply codes by their scales over the unit, load kFirst first. `next(i)` brings what takes the place of load i.
    template <int kFirst, class Next>
    __device__ __forceinline__ void convert_codes(int stage, int part, uint4 (&bytes)[8], uint32_t ratios, Next next) const {
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
            if (!kLate) next(i);
        }
        publish(memory.full(stage, part * Shape::kHalfPanels));
        if (kLate) {
#pragma unroll
            for (int i = 0; i < 8; ++i) next(i);
        }
    }

    /// Ask a page into L2.
    __device__ __forceinline__ void fetch(int page) const {
        constexpr int kLines = kPageBytes / 128;
        const int thread = own_thread();
        const uint8_t* const start = a.cache + static_cast<size_t>(page) * kPageBytes + thread * 128;
#pragma unroll
        for (int line = 0; line < kLines; line += kThreads) {
            if (FETCHED_PAGES != 0 && line + thread < kLines) prefetch_l2(start + line * 128);
        }
    }

    /// This warp's stores of a step are there.
    static __device__ __forceinline__ void publish(uint32_t barrier) {
        fence_async_shared();
        __syncwarp();
        if (own_lane() == 0) mbarrier_arrive(barrier);
    }

    __device__ __forceinline__ void convert_piece(const DecodePiece& piece, uint32_t& uses) const {
        int left = piece.steps.end - piece.steps.begin;                      // pages
        int entry = piece.request * a.max_blocks + piece.steps.begin;        // of the table, which has less than 2^28
        const auto number_of = [&](int ahead) { return ahead < left ? __ldg(a.block_table + entry + ahead) : 0; };
        // A page is asked into L2 two pages before its loads, and its number read one page before that.
        int page = number_of(0), upcoming[2] = {number_of(1), number_of(2)};
        fetch(page);
        if (left > 1) fetch(upcoming[0]);

        int last = a.schedule.tokens(piece.request) - piece.steps.begin * Shape::kTokens - 1;  // token, from the page's first
        uint4 bytes[8];
        float2 scales = load_scales(page, last);
        {
            const Source columns = rotary(page, last), first = codes(page, last, 0);
#pragma unroll
            for (int i = 0; i < 8; ++i) bytes[i] = i < 4 ? columns.load(4 * i) : first.load(2 * i);
        }
        int stage = 0;
#pragma unroll 1
        for (; left > 0; --left, ++entry, stage ^= 1) {
            const int parity = static_cast<int>(uses >> stage & 1) ^ 1, third = number_of(3);
            uses ^= 1u << stage;
            const bool more = left > 1;
            if (left > 2) fetch(upcoming[1]);

            // A unit is 2^-6 times a power of two, so that small codes keep their bits.
            float largest = fmaxf(scales.x, scales.y);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            const uint32_t exponent = max(67u, min(253u, bits_from_float(largest) >> 23)) - 6;
            const float inverse = float_from_bits((254u - exponent) << 23);
            const uint32_t ratios = Fp16::pack(scales.x * inverse, scales.y * inverse);
            if (more) scales = load_scales(upcoming[0], last - Shape::kTokens);

            STAMP(left, 0);
            mbarrier_wait(memory.empty(stage, Shape::kParts - 1), parity);
            STAMP(left, 1);
            {
                const int thread = own_thread(), lane = thread % 32;
                if (lane % 2 == 0) {
                    memory.units(stage)[thread / 2] =
                        make_float2(float_from_bits(exponent << 23), static_cast<float>(static_cast<int>(exponent) - 127));
                }
                const uint32_t first = memory.tokens(stage, Shape::kPanels - 1) +
                    Swizzle<8>::offset(thread / 32 * kTokens + lane / 8, lane % 8);
                Source next;
                const auto bring = [&](int i) {
                    if (i == 0) next = codes(page, last, stage);
                    bytes[i] = next.load(2 * i);
                };
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float by = __shfl_sync(0xffffffffu, inverse, 2 * (4 * i + lane / 8));
                    const uint32_t both = Bf16::pack(by, by);
                    // Rows 4 i on, where the swizzle changes by 4 i.
                    store_shared(
                        (first ^ (i % 2 * 64)) + i * 512,
                        make_uint4(multiply_bfloats(bytes[i].x, both), multiply_bfloats(bytes[i].y, both),
                                   multiply_bfloats(bytes[i].z, both), multiply_bfloats(bytes[i].w, both)));
                    if (!kLate) bring(i);
                }
                publish(memory.full(stage, Shape::kPanels - 1));
                if (kLate) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) bring(i);
                }
            }
            // The owner of a page multiplies its own half of the values first. What has just been asked for is converted last.
            STAMP(left, 2);
            mbarrier_wait(memory.empty(stage, stage), parity);
            STAMP(left, 3);
            {
                Source next;
                convert_codes<4>(stage, stage, bytes, ratios, [&](int i) {
                    if (i == (kLate ? 0 : 4)) next = codes(page, last, stage ^ 1);
                    bytes[i] = next.load(2 * i);
                });
            }
            page = upcoming[0];
            last -= Shape::kTokens;
            upcoming[0] = upcoming[1];
            upcoming[1] = third;
            STAMP(left, 4);
            mbarrier_wait(memory.empty(stage, stage ^ 1), parity);
            STAMP(left, 5);
            Source next;
            convert_codes<0>(stage, stage ^ 1, bytes, ratios, [&](int i) {
                if (i == 0) next = rotary(page, last);
                if (i == 4) next = codes(page, last, stage ^ 1);
                if (more) bytes[i] = next.load(i < 4 ? 4 * i : 2 * i);
            });
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
            // Through the pages the walk lies in one register, a number in each of five lanes.
            const int lane = own_lane();
            const int kept = lane == 0   ? walk.request
                             : lane == 1 ? walk.start
                             : lane == 2 ? walk.begin
                             : lane == 3 ? walk.end
                                         : walk.extra;
            convert_piece(piece, uses);
            walk.request = __shfl_sync(0xffffffffu, kept, 0);
            walk.start = __shfl_sync(0xffffffffu, kept, 1);
            walk.begin = __shfl_sync(0xffffffffu, kept, 2);
            walk.end = __shfl_sync(0xffffffffu, kept, 3);
            walk.extra = __shfl_sync(0xffffffffu, kept, 4);
        }
    }
};
