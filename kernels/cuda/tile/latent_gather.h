// SPDX-License-Identifier: MIT
// The merge of MLA decode by the blocks that computed the parts (tile/latent_parts.h), right behind their last piece.
//
// The units of a request's row tile are shared out among the blocks that have a part of it, each of which adds up its units of all
// parts: as many bytes as it has stored. They come to shared memory asynchronously, with the notes of their rows; a warp then has
// one or more units, or, where parts are many, some parts of one unit.
//
// This code runs once per call: what an instruction takes is mostly its fetch (5 to 6 cycles where it is not repeated), so loops
// are not unrolled.
#pragma once

#include <cstdint>

#include "online_softmax.h"
#include "ptx/cp_async.h"
#include "ptx/exp2.h"
#include "ptx/mbarrier.h"
#include "ptx/mma_16bit.h"
#include "ptx/named_barrier.h"
#include "ptx/shared_address.h"
#include "ptx/turn.h"
#include "ptx/unpack_16bit.h"
#include "tile/decode_schedule.h"
#include "tile/latent_parts.h"

constexpr int kGatherBarrier = 10;   // the 256 threads that merge

/// A request that others have parts of, too.
struct OpenPart {
    int request, first, parts;   // none: request -1. The first group with a part, and how many parts there are
    int begin, end, most;        // this block's units, and how many of them are merged at a time
    int merges;                  // PartCount::wait
};

/// Those of a block: what ends in its chunk, what starts there. A warp that does not merge writes them at the start.
struct OpenParts {
    OpenPart part[2];
    uint64_t written;   // mbarrier
};

/// Where a row tile's rows go, and what a share of it is.
template <class Arguments>
struct LatentGather {
    static constexpr int kThreads = 256, kWarps = 8;
    static constexpr int kCopied = 176;   // units of all parts that are in shared memory at a time
    static constexpr int kPitch = 24;     // floats from a row of a unit's sums to the next, against bank conflicts
    static constexpr int kUnitFloats = 16 * kPitch;
    // Behind the units: the notes of all parts, of at most four halves of strips, of two where parts are more than 8 and hence units
    // fewer than 17; what comes of them for each row; a unit's sums for each warp.
    static constexpr int kNotes = kCopied * LatentParts::kUnitBytes;
    static constexpr int kTotals = kNotes + kCountsOfSet * (2 * 16 + 2) * 8;
    static constexpr int kSums = kTotals + 4 * 16 * 8;
    static constexpr int kBytes = kSums + kWarps * kUnitFloats * 4;

    const Arguments& a;
    uint8_t* scratch;   // kBytes of shared memory
    int first_strip;    // of the request's
    int strips;         // of this row tile
    int thread;

    __device__ __forceinline__ void barrier() const { named_barrier_sync(kGatherBarrier, kThreads); }


    /// `count` units from `begin` on.
    __device__ __forceinline__ void merge_units(const OpenPart& open, int begin, int count) const {
        const int lane = thread % 32, warp = thread / 32, parts = open.parts;
        const int first_half = begin / 16, halves = (begin + count - 1) / 16 - first_half + 1, entries = 16 * halves;
        const int pitch = entries + 2;   // of the notes of a part, against bank conflicts
        uint4* const codes = reinterpret_cast<uint4*>(scratch);
        float2* const notes = reinterpret_cast<float2*>(scratch + kNotes);
        float2* const totals = reinterpret_cast<float2*>(scratch + kTotals);
        // Part 0 lies apart; of the others each is as many bytes behind the one before.
        const int part_bytes = a.shares.strips * LatentParts::kStripBytes;
        const uint8_t* const start = a.shares.part(a.schedule.groups + open.request);
        const uint8_t* const rest = a.shares.part(open.first);
        const auto part = [&](int s) { return s == 0 ? start : rest + static_cast<long long>(s) * part_bytes; };

        {   // every unit of every part; a warp copies one at a time
            const uint32_t to = shared_address(scratch) + lane * 16;
            int s = 0, unit = warp, parts_on = 0, units_on = kWarps;   // no divisions: they take longer
#pragma unroll 1
            for (; unit >= count; unit -= count) ++s;
#pragma unroll 1
            for (; units_on >= count; units_on -= count) ++parts_on;
#pragma unroll 1
            while (s < parts) {
                const int at = begin + unit;
                const int offset = (first_strip + at / 32) * LatentParts::kStripBytes + at % 32 * LatentParts::kUnitBytes;
                cp_async_16(to + (s * count + unit) * LatentParts::kUnitBytes, part(s) + offset + lane * 16, true);
                s += parts_on;
                unit += units_on;
                if (unit >= count) {
                    unit -= count;
                    ++s;
                }
            }
        }
        const uint32_t notes_to = shared_address(notes);
#pragma unroll 1
        for (int s = thread / 8; s < parts; s += kThreads / 8) {   // two rows' notes at a time
#pragma unroll 1
            for (int at = 0; at < halves; ++at) {
                const int half = first_half + at, two = thread % 8;
                const int offset = (first_strip + half / 2) * LatentParts::kStripBytes + LatentParts::kNotes + half % 2 * 128;
                cp_async_16(notes_to + (s * pitch + at * 16 + two * 2) * 8, part(s) + offset + two * 16, true);
            }
        }
        cp_async_commit();
        cp_async_wait<0>();
        barrier();
        weigh(notes, totals, parts, entries, pitch);
        barrier();

        // A warp has every kWarps-th unit, or, of fewer units, one with some of the parts.
        const int spread = count > 4 ? 3 : count > 2 ? 2 : count - 1, slots = 1 << spread, sharers = kWarps >> spread;
        const int sharer = warp / slots;
        float* const sums = reinterpret_cast<float*>(scratch + kSums);
        int unit = warp % slots;
#pragma unroll 1
        do {
            if (unit < count) {
                const int entry = ((begin + unit) / 16 - first_half) * 16;
                float sum[8] = {};
#pragma unroll 2
                for (int s = sharer; s < parts; s += sharers) {
                    add_unit(sum, codes[(s * count + unit) * 32 + lane], notes + s * pitch + entry + lane / 4);
                }
                float* const to = sums + warp * kUnitFloats + lane / 4 * kPitch + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    *reinterpret_cast<float2*>(to + j % 2 * 8 * kPitch + j / 2 * 8) = make_float2(sum[2 * j], sum[2 * j + 1]);
                }
            }
            if (sharers > 1) barrier();
            else __syncwarp();
            if (sharer == 0 && unit < count) {
                const float2* const total = totals + ((begin + unit) / 16 - first_half) * 16;
                store(open.request, begin + unit, sums + warp * kUnitFloats, sharers, slots, total, lane);
            }
            __syncwarp();
            unit += slots;
        } while (unit < count);
        barrier();
    }

    /// Turn the notes of each row, LSE and what a code stands for, into the weights of its codes, and totals: 1 / sum, LSE.
    __device__ __forceinline__ void weigh(float2* notes, float2* totals, int parts, int entries, int pitch) const {
        const int spread = entries > 32 ? 2 : entries > 16 ? 3 : 4, sharers = 1 << spread;   // lanes with a row
        const int entry = thread >> spread;
        SoftmaxRow row{-INFINITY, 0.0f};
        if (entry < entries) {
#pragma unroll 2
            for (int s = thread % sharers; s < parts; s += sharers) row.maximum = fmaxf(row.maximum, notes[s * pitch + entry].x);
        }
#pragma unroll 1
        for (int step = sharers / 2; step > 0; step /= 2) {
            row.maximum = fmaxf(row.maximum, __shfl_xor_sync(0xffffffffu, row.maximum, step));
        }
        const float shift = row.shift(kLog2E);
        if (entry < entries) {
#pragma unroll 2
            for (int s = thread % sharers; s < parts; s += sharers) {
                float2& note = notes[s * pitch + entry];
                const float weight = Exp2()(note.x * kLog2E - shift);
                row.sum += weight;
                note.x = weight * note.y;
            }
        }
#pragma unroll 1
        for (int step = sharers / 2; step > 0; step /= 2) row.sum += __shfl_xor_sync(0xffffffffu, row.sum, step);
        if (entry < entries && thread % sharers == 0) totals[entry] = make_float2(row.inverse(), row.lse(kLog2E));
    }

    /// Codes of a part that saw no key were never written, and may be anything.
    static __device__ __forceinline__ void add_unit(float (&sum)[8], const uint4& codes, const float2* weights) {
        const float upper = weights[0].x, lower = weights[8].x;
        const uint32_t x[4] = {
            upper != 0.0f ? codes.x : 0, lower != 0.0f ? codes.y : 0, upper != 0.0f ? codes.z : 0, lower != 0.0f ? codes.w : 0};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 two = unpack_pair<Bf16>(x[j]);
            const float factor = j % 2 == 0 ? upper : lower;
            sum[2 * j] += factor * two.x;
            sum[2 * j + 1] += factor * two.y;
        }
    }

    /// A unit's sums, of as many warps as share it, to the output: 8 columns of a row per lane.
    __device__ __forceinline__ void store(
        int request, int unit, const float* sums, int sharers, int slots, const float2* totals, int lane) const {
        const int row = lane / 2, eight = lane % 2;
        float sum[8] = {};
#pragma unroll 1
        for (int other = 0; other < sharers; ++other) {
            const float4* const from = reinterpret_cast<const float4*>(
                sums + other * slots * kUnitFloats + row * kPitch + eight * 8);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float4 four = from[j];
                sum[4 * j] += four.x;
                sum[4 * j + 1] += four.y;
                sum[4 * j + 2] += four.z;
                sum[4 * j + 3] += four.w;
            }
        }
        const float2 total = totals[row];
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = Bf16::pack(sum[2 * j] * total.x, sum[2 * j + 1] * total.x);
        const int in_request = (first_strip + unit / 32) * 16 + row, in_strip = unit % 32;
        const size_t at = static_cast<size_t>(request) * (a.seqlen_q * a.heads) + in_request;
        *reinterpret_cast<uint4*>(a.o + (at * 512 + in_strip * 16 + eight * 8) * 2) = make_uint4(x[0], x[1], x[2], x[3]);
        if (in_strip == 0 && eight == 0) {
            const int query = in_request / a.heads, head = in_request % a.heads;
            a.lse[(static_cast<size_t>(request) * a.heads + head) * a.seqlen_q + query] = total.y;
        }
    }

    /// All of this block's requests.
    __device__ __forceinline__ void run(OpenParts& open, int row_tile) const {
        mbarrier_wait(shared_address(&open.written), 0);
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            OpenPart& part = open.part[i];
            if (part.request < 0) continue;
            const PartCount count = count_of(a, part.first, row_tile);
            unsigned last = 0;
            if (thread == 0) part.merges = count.wait(part.parts, last);
            barrier();
            const int units = strips * LatentParts::kUnits;
            const bool all = part.merges == kAllShares;
            const int end = part.merges == kNoShare ? 0 : all ? units : part.end;
#pragma unroll 1
            for (int begin = all ? 0 : part.begin; begin < end; begin += part.most) {
                merge_units(part, begin, min(part.most, end - begin));
            }
            if (thread == 0) count.end(part.parts, last);
        }
    }

    static __device__ __forceinline__ PartCount count_of(const Arguments& a, int first, int row_tile) {
        return {&part_counts[a.shares.count_set][first * a.row_tiles + row_tile]};
    }

    /// Count the part of the piece that all threads of the block have stored; one thread. `first`: it starts its request.
    static __device__ __forceinline__ void count(const Arguments& a, OpenParts& open, bool first, int row_tile) {
        mbarrier_wait(shared_address(&open.written), 0);
        count_of(a, open.part[first ? 1 : 0].first, row_tile).store();
    }

    /// By a warp beside those that merge: note which parts this block will have, and count it as started there. `strips`: of its
    /// row tile.
    static __device__ __forceinline__ void start(const Arguments& a, OpenParts& open, int group, int row_tile, int strips, int lane) {
        DecodeWalk walk(a.schedule, group, lane);
        DecodePiece piece;
        while (walk.next(a.schedule, piece)) {
            if (piece.whole() || lane != 0) continue;
            const KvRange groups = walk.groups_of(a.schedule, piece);
            OpenPart& part = open.part[piece.first ? 1 : 0];
            const int parts = groups.end - groups.begin + 1, share = group - groups.begin;
            const int units = strips * LatentParts::kUnits;
            part.request = piece.request;
            part.first = groups.begin;
            part.parts = parts;
            part.begin = units * share / parts;
            part.end = units * (share + 1) / parts;
            // No more than four halves of strips: two shares begin and end with one.
            part.most = parts == 2 ? 64 : min(kCopied / parts, 49);
            count_of(a, groups.begin, row_tile).start();
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared_address(&open.written));
    }
};
