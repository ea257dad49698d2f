// SPDX-License-Identifier: MIT
// The merge of MLA decode by the blocks that computed the parts (mla/workspace.h), right behind their last piece.
//
// The units of a request's row tile are shared out among the blocks that have a part of it, each of which adds up its units of all
// parts: as many bytes as it has stored. They come to shared memory asynchronously, with the notes of their rows; a warp then has
// one or more units, or, where parts are many, some parts of one unit.
//
// This code runs once per call: what an instruction takes is mostly its fetch (5 to 6 cycles where it is not repeated), so loops
// are not unrolled.
#pragma once

#include <cstdint>

#include "mla/call.h"
#include "mla/schedule.h"
#include "mla/workspace.h"
#include "online_softmax.h"
#include "ptx/barrier.h"
#include "ptx/convert.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"

namespace mla {

constexpr int kGatherBarrier = 10;  // the 256 threads that merge

/// A request that others have parts of, too: its row tile of this block.
struct OpenSplit {
    int request, parts;    // none: request -1; how many parts it has
    int begin, end, most;  // this block's units, and how many of them are merged at a time
    MergedShares merges;   // what this block merges of it
    unsigned* count;
    uint8_t* own;                 // this block's part, from the row tile on
    const uint8_t *start, *rest;  // the part that starts the request, and what would lie before the second one
};

/// Those of a block: what ends in its chunk, what starts there. A warp that does not merge writes them at the start, so that
/// nothing has to be derived when the last page is done.
struct OpenSplits {
    OpenSplit part[2];
    uint64_t written;  // mbarrier
    int strips;        // of this row tile
    int first_row;     // of the request
};

/// The merge of a row tile's share. `Arguments` are LatentArguments, of a header that needs this one for its shared memory.
template <class Arguments>
struct LatentGather {
    static constexpr int kThreads = 256, kWarps = 8;
    static constexpr int kUnits = LatentSplits::kUnits;  // of a strip; each is 32 bytes of 16 rows of the output
    static constexpr int kRowBytes = kUnits * 32;        // of the output
    static constexpr int kCopied = 176;                  // units of all parts that are in shared memory at a time
    static constexpr int kPitch = 24;  // floats from a row of a unit's sums to the next, against bank conflicts
    static constexpr int kUnitFloats = 16 * kPitch;
    // Behind the units: the notes of all parts, of as many strips as units touch; what comes of them for each row; a unit's sums for
    // each warp.
    static constexpr int kNotes = kCopied * LatentSplits::kUnitBytes;
    static constexpr int kNotesBytes = kCountsOfSet * (32 + 2) * 8;
    static constexpr int kTotals = kNotes + kNotesBytes;
    static constexpr int kSums = kTotals + 4 * 16 * 8;
    static constexpr int kBytes = kSums + kWarps * kUnitFloats * 4;
    static constexpr int kMostParts = kNotesBytes / ((64 + 2) * 8);  // whose notes of two strips have room

    const Arguments& a;
    uint8_t* scratch;  // kBytes of shared memory
    int thread;

    __device__ __forceinline__ void barrier() const { named_barrier_sync(kGatherBarrier, kThreads); }

    /// `count` units from `begin` on; the row tile starts with `tile_row` of the request.
    __device__ __forceinline__ void merge_units(const OpenSplit& open, int tile_row, int begin, int count) const {
        const int lane = thread % 32, warp = thread / 32, parts = open.parts;
        const int first_strip = begin / kUnits, strips = (begin + count - 1) / kUnits - first_strip + 1;
        const int pitch = 32 * strips + 2;  // of a part's notes, against bank conflicts
        uint4* const codes = reinterpret_cast<uint4*>(scratch);
        float2* const notes = reinterpret_cast<float2*>(scratch + kNotes);
        float2* const totals = reinterpret_cast<float2*>(scratch + kTotals);
        float* const sums = reinterpret_cast<float*>(scratch + kSums);
        const int part_bytes = a.shares.strips * LatentSplits::kStripBytes;
        ask_notes(open, notes, parts, first_strip, strips, pitch, part_bytes);
        cp_async_commit();  // weights are worked out while codes are on their way
        // A warp has every kWarps-th unit, or, of fewer units, one with some of the parts.
        const int spread = count > 4 ? 3 : count > 2 ? 2 : count - 1, slots = 1 << spread, sharers = kWarps >> spread;
        const int slot = warp & (slots - 1), sharer = warp >> spread;

#pragma unroll 1
        for (int unit = slot; unit < count; unit += slots) {
            const int at = begin + unit;
            const int offset =
                at / kUnits * LatentSplits::kStripBytes + at % kUnits * LatentSplits::kUnitBytes + lane * 16;
            uint32_t to = shared_address(codes) + (sharer * count + unit) * LatentSplits::kUnitBytes + lane * 16;
            const uint32_t end = shared_address(codes) + parts * count * LatentSplits::kUnitBytes;
            const uint32_t to_step = sharers * count * LatentSplits::kUnitBytes;
            const uint8_t* from = open.rest + offset + static_cast<long long>(sharer) * part_bytes;
            const long long from_step = static_cast<long long>(sharers) * part_bytes;
            if (sharer == 0) {
                cp_async_16(to, open.start + offset, true);
                to += to_step;
                from += from_step;
            }
#pragma unroll 2
            for (; to < end; to += to_step, from += from_step) cp_async_16(to, from, true);
        }
        cp_async_commit();
        cp_async_wait<1>();
        barrier();
        weigh(notes, totals, parts, strips, pitch);
        cp_async_wait<0>();
        barrier();

        const int row = tile_row + 16 * first_strip;
        if (thread < 16 * strips) {  // who has a strip's first unit stores the LSE of its rows
            const int first_unit = (first_strip + thread / 16) * kUnits;
            if (first_unit >= begin && first_unit < begin + count) {
                a.lse[lse_index(a, open.request, row + thread)] = totals[thread].y;
            }
        }
        uint8_t* const out = a.o + (first_row_of(a, open.request) + row) * kRowBytes;
        if (sharers == 1) {
#pragma unroll 1
            for (int unit = slot; unit < count; unit += slots) {
                const int at = begin + unit, strip = at / kUnits - first_strip;
                const float2* const weights = notes + strip * 32 + lane / 4;
                const uint4* code = codes + unit * 32 + lane;
                float sum[8] = {};
#pragma unroll 2
                for (int s = 0; s < parts; ++s, code += count * 32) add_unit(sum, *code, weights + s * pitch);
                uint8_t* const to = out + (strip * 16 + lane / 4) * kRowBytes + at % kUnits * 32 + lane % 4 * 4;
                store_unit(sum, totals + strip * 16 + lane / 4, to);
            }
        } else {
            const int strip = (begin + slot) / kUnits - first_strip;
            if (slot < count) {
                const float2* const weights = notes + strip * 32 + lane / 4;
                float sum[8] = {};
                const uint4* code = codes + (sharer * count + slot) * 32 + lane;
#pragma unroll 4
                for (int s = sharer; s < parts; s += sharers, code += sharers * count * 32) {
                    add_unit(sum, *code, weights + s * pitch);
                }
                float* const to = sums + warp * kUnitFloats + lane / 4 * kPitch + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    *reinterpret_cast<float2*>(to + j % 2 * 8 * kPitch + j / 2 * 8) =
                        make_float2(sum[2 * j], sum[2 * j + 1]);
                }
            }
            barrier();
            if (sharer == 0 && slot < count) {
                uint8_t* const to =
                    out + (strip * 16 + lane / 2) * kRowBytes + (begin + slot) % kUnits * 32 + lane % 2 * 16;
                store_shared(sums + warp * kUnitFloats, sharers, slots, totals[strip * 16 + lane / 2].x, lane, to);
            }
        }
        barrier();
    }

    /// Ask for the notes of all parts, two rows' at a time.
    __device__ __forceinline__ void ask_notes(
        const OpenSplit& open, float2* notes, int parts, int first_strip, int strips, int pitch, int part_bytes) const {
#pragma unroll 1
        for (int strip = 0; strip < strips; ++strip) {
            const int two = thread % 16,
                      offset = (first_strip + strip) * LatentSplits::kStripBytes + LatentSplits::kNotes + two * 16;
            const uint32_t to = shared_address(notes) + (strip * 32 + two * 2) * 8;
#pragma unroll 1
            for (int s = thread / 16; s < parts; s += kThreads / 16) {
                const uint8_t* const from = s == 0 ? open.start : open.rest + static_cast<long long>(s) * part_bytes;
                cp_async_16(to + s * pitch * 8, from + offset, true);
            }
        }
    }

    /// Turn the notes of each row, reference and two sums, into the weight of its codes in each part, and totals: 1 / sum, LSE.
    __device__ __forceinline__ void weigh(float2* notes, float2* totals, int parts, int strips, int pitch) const {
        const int spread = strips > 2 ? 2 : strips > 1 ? 3 : 4, sharers = 1 << spread;  // lanes with a row
        const int entry = thread >> spread, first = thread & (sharers - 1);
        const bool live = entry < 16 * strips;
        float2* const own = notes + entry / 16 * 32 + entry % 16;
        SoftmaxRow row{-INFINITY, 0.0f};
        if (live) {
#pragma unroll 2
            for (int s = first; s < parts; s += sharers) row.maximum = fmaxf(row.maximum, own[s * pitch].x);
        }
#pragma unroll 1
        for (int step = sharers / 2; step > 0; step /= 2) {
            row.maximum = fmaxf(row.maximum, __shfl_xor_sync(0xffffffffu, row.maximum, step));
        }
        const float shift = row.shift(1.0f);
        if (live) {
#pragma unroll 2
            for (int s = first; s < parts; s += sharers) {
                float2* const note = own + s * pitch;
                const float weight = Exp2()(note[0].x - shift);
                row.sum += weight * (note[0].y + note[16].y);
                note[0].x = weight;
            }
        }
#pragma unroll 1
        for (int step = sharers / 2; step > 0; step /= 2) row.sum += __shfl_xor_sync(0xffffffffu, row.sum, step);
        if (live && first == 0) totals[entry] = make_float2(row.inverse(), row.lse(1.0f));
    }

    static __device__ __forceinline__ void add_unit(float (&sum)[8], const uint4& codes, const float2* weights) {
        const float upper = weights[0].x, lower = weights[8].x;
        const uint32_t x[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 two = unpack_pair<Bf16>(x[j]);
            const float factor = j % 2 == 0 ? upper : lower;
            sum[2 * j] += factor * two.x;
            sum[2 * j + 1] += factor * two.y;
        }
    }

    /// A unit's sums, all of them in one warp, to the output: `to` is where this lane's first two columns go.
    static __device__ __forceinline__ void store_unit(const float (&sum)[8], const float2* totals, uint8_t* to) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float inverse = totals[8 * i].x;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int at = 4 * j + 2 * i;
                *reinterpret_cast<uint32_t*>(to + i * 8 * kRowBytes + j * 16) =
                    Bf16::pack(sum[at] * inverse, sum[at + 1] * inverse);
            }
        }
    }

    /// A unit's sums, of as many warps as share it, to the output: 8 columns of a row per lane.
    static __device__ __forceinline__ void store_shared(
        const float* sums, int sharers, int slots, float inverse, int lane, uint8_t* to) {
        float sum[8] = {};
#pragma unroll 1
        for (int other = 0; other < sharers; ++other) {
            const float4* const from =
                reinterpret_cast<const float4*>(sums + other * slots * kUnitFloats + lane / 2 * kPitch + lane % 2 * 8);
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
        *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
    }

    /// All of this block's requests.
    __device__ __forceinline__ void run(OpenSplits& open) const {
        mbarrier_wait(shared_address(&open.written), 0);
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            OpenSplit& part = open.part[i];
            if (part.request < 0) continue;
            unsigned last = 0;
            if (thread == 0) part.merges = SplitCount{part.count}.wait(part.parts, last);
            barrier();
            const bool all = part.merges == kAllShares;
            const int end = part.merges == kNoShare ? 0 : all ? open.strips * kUnits : part.end;
#pragma unroll 1
            for (int begin = all ? 0 : part.begin, next; begin < end; begin = next) {
                next = min(end, begin + part.most);
                if (part.parts > kMostParts) next = min(next, (begin / kUnits + 1) * kUnits);
                merge_units(part, open.first_row, begin, next - begin);
            }
            if (thread == 0) SplitCount{part.count}.end(part.parts, last);
        }
    }

    /// By a warp beside those that merge: note which parts this block will have, and count it as started there.
    template <class Scheduler>
    static __device__ __forceinline__ void start(
        const Arguments& a, OpenSplits& open, int group, int row_tile, int lane) {
        Scheduler scheduler(a.schedule, group, lane, CutFromLengths());
        DecodePiece piece;
        const int first_strip = row_tile * LatentSplits::kTileStrips;
        const int strips = min(LatentSplits::kTileStrips, a.shares.strips - first_strip);
        if (lane == 0) {
            open.strips = strips;
            open.first_row = 16 * first_strip;
        }
        while (scheduler.next(a.schedule, piece)) {
            if (piece.whole() || lane != 0) continue;
            const KvRange groups = scheduler.groups_of(a.schedule, piece);
            const int parts = groups.end - groups.begin + 1, share = group - groups.begin;
            const int units = strips * kUnits;
            OpenSplit& part = open.part[piece.first ? 1 : 0];
            part.request = piece.request;
            part.parts = parts;
            part.begin = units * share / parts;
            part.end = units * (share + 1) / parts;
            // Two of many parts begin and end with a strip; else no more than three strips.
            part.most = parts == 2 ? 64 : min(kCopied / parts, 65);
            part.count = &part_counts[a.shares.count_set][groups.begin * a.row_tiles + row_tile];
            part.own = a.shares.strip(piece.part(a.schedule, group), first_strip);
            part.start = a.shares.strip(a.schedule.groups + piece.request, first_strip);
            part.rest = a.shares.strip(groups.begin, first_strip);
            SplitCount{part.count}.start();
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared_address(&open.written));
    }
};

}  // namespace mla
