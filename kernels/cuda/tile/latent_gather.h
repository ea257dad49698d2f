// SPDX-License-Identifier: MIT
// The merge of MLA decode by the blocks that computed the parts (tile/latent_parts.h), right behind their last piece.
//
// The units of a request's row tile are shared out among the blocks that have a part of it, each of which adds up its units of all
// parts: as many bytes as it has stored. A warp has one or more units, or, where parts are many, some parts of one unit; it asks
// for 16 of them before it knows their weights, so that one delay of memory covers both. Sums meet in shared memory as rows.
#pragma once

#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/mma_16bit.h"
#include "ptx/named_barrier.h"
#include "ptx/turn.h"
#include "ptx/unpack_16bit.h"
#include "tile/decode_schedule.h"
#include "tile/latent_parts.h"

constexpr int kGatherBarrier = 10;   // the 256 threads that merge
constexpr int kBegunBarrier = 11;    // and the warp that has counted this block as started

/// A request that others have parts of, too: what a block keeps of it until its last piece is stored.
struct OpenPart {
    int request, first, parts;   // none: request -1. The first group with a part, and how many parts there are
    unsigned before;             // PartCount::store
    int merges, all;             // PartCount::wait
};

/// Where a row tile's rows go, and what a share of it is.
template <class Arguments>
struct LatentGather {
    static constexpr int kThreads = 256, kWarps = 8;
    static constexpr int kMostParts = kCountsOfSet;
    static constexpr int kMostUnits = 64;                 // of a share
    static constexpr int kAsked = 16;                     // units that a warp asks for at once
    static constexpr int kPitch = 24;                     // floats from a row of a unit's sums to the next, against bank conflicts
    static constexpr int kUnitFloats = 16 * kPitch;
    static constexpr int kWeights = kMostParts * 32 * 8;  // bytes; more than 32 rows only where parts are fewer than 9
    static constexpr int kReduced = 2 * 256 * 4;
    static constexpr int kBytes = kWeights + kReduced + kMostUnits * kUnitFloats * 4;

    const Arguments& a;
    uint8_t* scratch;   // kBytes of shared memory
    int first_strip;    // of the request's
    int strips;         // of this row tile
    int thread;

    __device__ __forceinline__ void barrier() const { named_barrier_sync(kGatherBarrier, kThreads); }
    __device__ __forceinline__ float2* weights() const { return reinterpret_cast<float2*>(scratch); }
    __device__ __forceinline__ float* reduced(int which) const {
        return reinterpret_cast<float*>(scratch + kWeights) + which * kThreads;
    }
    __device__ __forceinline__ float* sums(int unit) const {
        return reinterpret_cast<float*>(scratch + kWeights + kReduced) + unit * kUnitFloats;
    }

    /// Share `share` of `open.parts`.
    __device__ __forceinline__ void merge(const OpenPart& open, int share) const {
        const int units = strips * LatentParts::kUnits, parts = open.parts;
        const int begin = units * share / parts, count = units * (share + 1) / parts - begin;
        if (count == 0) return;
        const int lane = thread % 32, warp = thread / 32;
        // A warp has every kWarps-th unit, or, of fewer units, one with some of the parts.
        const int spread = count > 4 ? 3 : count > 2 ? 2 : count - 1, slots = 1 << spread, sharers = kWarps >> spread;
        const int slot = warp % slots, sharer = warp / slots;
        const int own_units = slot < count ? (count - slot + slots - 1) / slots : 0;
        const int own_parts = sharer < parts ? (parts - sharer + sharers - 1) / sharers : 0;
        const int asked = own_units * own_parts;

        // Part 0 lies apart; of the others each is `pitch` bytes behind the one before.
        const int pitch = a.shares.strips * LatentParts::kStripBytes;
        const uint8_t* const start = a.shares.part(a.schedule.groups + open.request);
        const uint8_t* const rest = a.shares.part(open.first);
        const auto part = [&](int s) { return s == 0 ? start : rest + static_cast<long long>(s) * pitch; };

        uint4 codes[kAsked];
        const auto offset_of = [&](int unit) {
            const int strip = first_strip + (begin + unit) / 32, in_strip = (begin + unit) % 32;
            return strip * LatentParts::kStripBytes + in_strip * LatentParts::kUnitBytes + lane * 16;
        };
        int next_unit = slot, next_part = sharer, offset = offset_of(slot);
        const auto ask = [&](int from) {
#pragma unroll
            for (int i = 0; i < kAsked; ++i) {
                if (from + i >= asked) continue;
                codes[i] = __ldcg(reinterpret_cast<const uint4*>(part(next_part) + offset));
                next_part += sharers;
                if (next_part >= parts) {
                    next_part = sharer;
                    next_unit += slots;
                    offset = offset_of(next_unit);
                }
            }
        };
        ask(0);

        // The weights of every entry, a row and half of the columns, in all parts.
        const int first_entry = begin / 16, groups = (begin + count - 1) / 16 - first_entry + 1, entries = groups * 16;
        const int shift_of = groups > 2 ? 2 : groups - 1;            // entries rounded up to 16, 32 or 64
        const int entry = thread % (16 << shift_of), weigher = thread / (16 << shift_of), weighers = 16 >> shift_of;
        const int pair = first_entry + entry / 16;                   // strip and half
        const int note_offset = (first_strip + pair / 2) * LatentParts::kStripBytes + LatentParts::kNotes +
                                (pair % 2 * 16 + entry % 16) * 8;
        SoftmaxRow own{-INFINITY, 0.0f};
        if (entry < entries) {
#pragma unroll 4
            for (int s = weigher; s < parts; s += weighers) {
                const float2 note = __ldcg(reinterpret_cast<const float2*>(part(s) + note_offset));
                weights()[s * entries + entry] = note;
                own.maximum = fmaxf(own.maximum, note.x);
            }
        }
        reduced(0)[thread] = own.maximum;
        barrier();
        if (entry < entries) {
            for (int w = 0; w < weighers; ++w) own.maximum = fmaxf(own.maximum, reduced(0)[w * (16 << shift_of) + entry]);
            const float shift = own.shift(kLog2E);
#pragma unroll 4
            for (int s = weigher; s < parts; s += weighers) {
                float2& note = weights()[s * entries + entry];
                const float weight = Exp2()(note.x * kLog2E - shift);
                own.sum += weight;
                note.x = weight * note.y;
            }
        }
        reduced(1)[thread] = own.sum;
        barrier();

        // Codes of a part that saw no key were never written, and may be anything.
        int unit = slot, s = sharer;
        float sum[8] = {};
#pragma unroll 1
        for (int from = 0; from < asked; from += kAsked) {
            if (from != 0) ask(from);
#pragma unroll
            for (int i = 0; i < kAsked; ++i) {
                if (from + i >= asked) continue;
                const float2* const weight = weights() + s * entries + ((begin + unit) / 16 - first_entry) * 16 + lane / 4;
                const float upper = weight[0].x, lower = weight[8].x;
                const uint32_t x[4] = {
                    upper != 0.0f ? codes[i].x : 0, lower != 0.0f ? codes[i].y : 0, upper != 0.0f ? codes[i].z : 0,
                    lower != 0.0f ? codes[i].w : 0};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float2 two = unpack_pair<Fp16>(x[j]);
                    const float factor = j % 2 == 0 ? upper : lower;
                    sum[2 * j] += factor * two.x;
                    sum[2 * j + 1] += factor * two.y;
                }
                s += sharers;
                if (s < parts) continue;
                float* const to = sums(unit * sharers + sharer) + lane / 4 * kPitch + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    *reinterpret_cast<float2*>(to + j % 2 * 8 * kPitch + j / 2 * 8) = make_float2(sum[2 * j], sum[2 * j + 1]);
                    sum[2 * j] = sum[2 * j + 1] = 0.0f;
                }
                s = sharer;
                unit += slots;
            }
        }
        barrier();
        store(open, begin, count, sharers, entries, first_entry, shift_of);
        barrier();
    }

    /// The sums of `count` units, each of `sharers`, to the output: 8 columns of a row per thread.
    __device__ __forceinline__ void store(
        const OpenPart& open, int begin, int count, int sharers, int entries, int first_entry, int shift_of) const {
        const int request_rows = a.seqlen_q * a.heads;
#pragma unroll 1
        for (int item = thread; item < count * 32; item += kThreads) {
            const int unit = begin + item / 32, row = item % 32 / 2, eight = item % 2, v = unit % 32;
            const int entry = (unit / 16 - first_entry) * 16 + row;
            SoftmaxRow total{-INFINITY, 0.0f};
            for (int w = 0; w < 16 >> shift_of; ++w) {
                total.maximum = fmaxf(total.maximum, reduced(0)[w * (16 << shift_of) + entry]);
                total.sum += reduced(1)[w * (16 << shift_of) + entry];
            }
            const float inverse = total.inverse();
            float sum[8] = {};
            for (int other = 0; other < min(sharers, open.parts); ++other) {
                const float4* const from = reinterpret_cast<const float4*>(
                    sums(item / 32 * sharers + other) + row * kPitch + eight * 8);
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float4 four = from[j];
                    sum[4 * j] += four.x;
                    sum[4 * j + 1] += four.y;
                    sum[4 * j + 2] += four.z;
                    sum[4 * j + 3] += four.w;
                }
            }
            uint32_t x[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) x[j] = Bf16::pack(sum[2 * j] * inverse, sum[2 * j + 1] * inverse);
            const int in_request = (first_strip + unit / 32) * 16 + row;
            const size_t at = static_cast<size_t>(open.request) * request_rows + in_request;
            *reinterpret_cast<uint4*>(a.o + (at * 512 + v * 16 + eight * 8) * 2) = make_uint4(x[0], x[1], x[2], x[3]);
            if (v == 0 && eight == 0) {
                const int query = in_request / a.heads, head = in_request % a.heads;
                a.lse[(static_cast<size_t>(open.request) * a.heads + head) * a.seqlen_q + query] = total.lse(kLog2E);
            }
        }
    }

    /// All of this block's requests in `open`, of `row_tile` among `row_tiles`; `group` is the block's.
    __device__ __forceinline__ void run(OpenPart (&open)[2], int group, int row_tile) const {
        named_barrier_sync(kBegunBarrier, kThreads + 32);
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            OpenPart& part = open[i];
            if (part.request < 0) continue;
            unsigned last = 0;
            if (thread == 0) {
                bool all;
                part.merges = count_of(a, part, row_tile).wait(part.parts, part.before, all, last);
                part.all = all;
            }
            barrier();
            if (part.merges) {
                const int own = group - part.first;
                for (int share = part.all ? 0 : own; share < (part.all ? part.parts : own + 1); ++share) merge(part, share);
            }
            if (thread == 0) count_of(a, part, row_tile).end(part.parts, last);
        }
    }

    static __device__ __forceinline__ PartCount count_of(const Arguments& a, const OpenPart& part, int row_tile) {
        return {&part_counts[a.shares.count_set][part.first * a.row_tiles + row_tile]};
    }

    /// Count a part that all threads of the block have stored, and keep what its request is; one thread.
    static __device__ __forceinline__ void count(
        const Arguments& a, OpenPart& open, const DecodeWalk& walk, const DecodePiece& piece, int row_tile) {
        const KvRange groups = walk.groups_of(a.schedule, piece);
        open.request = piece.request;
        open.first = groups.begin;
        open.parts = groups.end - groups.begin + 1;
        open.before = count_of(a, open, row_tile).store();
    }

    /// By a warp beside those that merge: count this block as started wherever it will have a part.
    static __device__ __forceinline__ void start(const Arguments& a, int group, int row_tile, int lane) {
        DecodeWalk walk(a.schedule, group, lane);
        DecodePiece piece;
        while (walk.next(a.schedule, piece)) {
            if (piece.whole() || lane != 0) continue;
            const OpenPart part = {piece.request, walk.groups_of(a.schedule, piece).begin, 0, 0, 0, 0};
            count_of(a, part, row_tile).start();
        }
        __syncwarp();
        named_barrier_arrive(kBegunBarrier, kThreads + 32);
    }
};
