// SPDX-License-Identifier: MIT
// Parts of requests that chunks of the line cut anywhere, merged by the blocks that computed them (16 rows).
//
// As tile/latent_gather.h does with 64 rows, by the counts of tile/latent_parts.h: a block that has stored its parts waits for the
// others of its requests and merges its share of the columns, as many bytes as it has stored. Parts are fp32, normalised, with an LSE
// for each row (SplitWorkspace). They come to shared memory asynchronously, where pages were.
#pragma once

#include "online_softmax.h"
#include "ptx/cp_async.h"
#include "ptx/exp2.h"
#include "ptx/mbarrier.h"
#include "ptx/mma_16bit.h"
#include "ptx/shared_address.h"
#include "tile/latent_parts.h"
#include "tile/wgmma_coded_shape.h"
#include "tile/wide_rows.h"

template <class Shape>
struct CodedJoin {
    static constexpr int kThreads = Shape::kConsumers, kWarps = kThreads / 32;
    static constexpr int kVectors = CodedRow::kLatent / 4;        // 4 columns each, of a row
    static constexpr int kUnits = Shape::kRows * kVectors;        // of a part, shared out among a request's blocks
    static constexpr int kMostParts = kCountsOfSet;
    // Where pages were: units of all parts, what each sharer makes of them, weights [row][part].
    static constexpr int kSums = (kUnits + kMostParts) * 16;      // a share is kUnits / parts units, rounded up
    static constexpr int kWeights = kSums + kThreads * 16;
    static_assert(kWeights + Shape::kRows * kMostParts * 4 <= Shape::kSlots * Shape::kSlotBytes, "no more than pages take");

    const CodedMemory<Shape>& memory;
    const typename Shape::Arguments& a;
    int row_tile;

    /// By a warp beside those that merge: note which parts this block will have, and count it as started there.
    __device__ __forceinline__ void start(const CodedPlan<Shape>& plan, int chunk, int lane) const {
        const auto schedule = plan.schedule();
        DecodeWalk walk = plan.walk;
        DecodePiece piece = plan.piece;
        if (lane < 2) memory.open()[lane].request = -1;
        __syncwarp();
#pragma unroll 1
        for (bool any = plan.any; any; any = walk.next(schedule, piece)) {
            if (piece.whole()) continue;
            const KvRange groups = walk.groups_of(schedule, piece);
            if (lane != 0) continue;
            OpenCodedPart& part = memory.open()[piece.first ? 1 : 0];
            part.request = piece.request;
            part.first = groups.begin;
            part.parts = groups.end - groups.begin + 1;
            part.share = chunk - groups.begin;
            count(part).start();
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(memory.noted());
    }

    /// All of this block's requests, by its first kThreads threads, which `meet`.
    template <class Meet>
    __device__ __forceinline__ void merge(Meet meet) const {
        const int thread = recomputed_thread();
        mbarrier_wait(memory.noted(), 0);
        meet();   // all of this block's parts are stored
        if (thread == 0) {
#pragma unroll 1
            for (int i = 0; i < 2; ++i) {
                if (memory.open()[i].request >= 0) count(memory.open()[i]).store();
            }
        }
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            OpenCodedPart& part = memory.open()[i];
            if (part.request < 0) continue;
            unsigned last = 0;
            if (thread == 0) part.merges = count(part).wait(part.parts, last);
            meet();
            const int merges = part.merges;
            const bool all = merges == kAllShares;
            const int end = merges == kNoShare ? 0 : all ? part.parts : part.share + 1;
#pragma unroll 1
            for (int share = all ? 0 : part.share; share < end; ++share) merge_share(part, share, thread, meet);
            if (thread == 0) count(part).end(part.parts, last);
        }
    }

private:
    __device__ __forceinline__ PartCount count(const OpenCodedPart& part) const {
        return {&part_counts[a.count_set][part.first * a.row_tiles + row_tile]};
    }

    template <class Meet>
    __device__ __forceinline__ void merge_share(const OpenCodedPart& part, int share, int thread, Meet meet) const {
        const int parts = part.parts, rows = a.seqlen_q * a.heads, first_row = row_tile * Shape::kRows;
        const int begin = kUnits * share / parts, units = kUnits * (share + 1) / parts - begin;
        uint8_t* const scratch = memory.at(memory.slot(0));
        float4* const sums = reinterpret_cast<float4*>(scratch + kSums);
        float* const weights = reinterpret_cast<float*>(scratch + kWeights);
        const auto row_of = [&](int s) {   // of the workspace, a part's first
            return static_cast<long long>(s == 0 ? a.schedule.groups + part.request : part.first + s) * rows + first_row;
        };
        // So many threads have a unit, each with some of the parts.
        int sharers = 8;
        while (sharers > 1 && kThreads / sharers < units) sharers /= 2;
        const int slots = kThreads / sharers, slot = thread % slots, sharer = thread / slots;
#pragma unroll 1
        for (int s = sharer; s < parts; s += sharers) {
            const float* const from = a.parts.o + row_of(s) * CodedRow::kLatent + begin * 4;
#pragma unroll 1
            for (int unit = slot; unit < units; unit += slots) {
                cp_async_16(shared_address(scratch) + (s * units + unit) * 16, from + unit * 4, true);
            }
        }
        cp_async_commit();
        // A warp has one or two rows.
        const int lane = thread % 32, first = begin / kVectors, last = (begin + units - 1) / kVectors;
#pragma unroll 1
        for (int row = first + thread / 32; row <= last; row += kWarps) {
            float* const own = weights + row * kMostParts;
            SoftmaxRow total;
#pragma unroll 1
            for (int s = lane; s < parts; s += 32) {
                own[s] = __ldcg(a.parts.lse + row_of(s) + row);
                total.maximum = fmaxf(total.maximum, own[s]);
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2) {
                total.maximum = fmaxf(total.maximum, __shfl_xor_sync(0xffffffffu, total.maximum, step));
            }
            const float shift = total.shift(kLog2E);
#pragma unroll 1
            for (int s = lane; s < parts; s += 32) {
                own[s] = Exp2()(own[s] * kLog2E - shift);
                total.sum += own[s];
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, step);
            const float inverse = total.inverse();
#pragma unroll 1
            for (int s = lane; s < parts; s += 32) own[s] *= inverse;
            if (lane == 0 && row * kVectors >= begin) {   // who has a row's first unit
                const int at = first_row + row, query = at / a.heads, head = at - query * a.heads;
                a.lse[(static_cast<size_t>(part.request) * a.heads + head) * a.seqlen_q + query] = total.lse(kLog2E);
            }
        }
        cp_async_wait<0>();
        meet();
#pragma unroll 1
        for (int first_unit = 0; first_unit < units; first_unit += slots) {
            const int unit = first_unit + slot, at = begin + unit;
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (unit < units) {
                const float* const own = weights + at / kVectors * kMostParts;
#pragma unroll 2
                for (int s = sharer; s < parts; s += sharers) {
                    const float weight = own[s];
                    const float4 x = *reinterpret_cast<const float4*>(scratch + (s * units + unit) * 16);
                    // Where a part saw no key, its output was never written, and may be anything.
                    if (weight != 0.0f) {
                        sum = make_float4(sum.x + weight * x.x, sum.y + weight * x.y, sum.z + weight * x.z, sum.w + weight * x.w);
                    }
                }
            }
            if (sharers > 1) {   // then slots hold all units
                sums[thread] = sum;
                meet();
#pragma unroll 1
                for (int other = 1; other < sharers; ++other) {
                    const float4 x = sums[other * slots + slot];
                    sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
                }
            }
            if (unit < units && sharer == 0) {
                const size_t row = static_cast<size_t>(part.request) * rows + first_row + at / kVectors;
                *reinterpret_cast<uint2*>(a.o + (row * kVectors + at % kVectors) * 8) =
                    make_uint2(Bf16::pack(sum.x, sum.y), Bf16::pack(sum.z, sum.w));
            }
        }
        meet();
    }
};
