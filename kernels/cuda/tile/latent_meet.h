// SPDX-License-Identifier: MIT
// Few parts of a request of MLA decode, merged by whichever of its blocks stores the last one.
//
// A block stores its part, counts it, and goes on; the one that finds all others counted merges all of them, from the workspace and in
// the order of parts, so that results do not depend on which block it is. Nobody waits. Against a second kernel it saves that kernel's
// start and the next call's wait for it; a request in many parts would keep one block busy too long (kMetParts).
//
// The counts are those of tile/latent_parts.h; they are zero between calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/fetch_add.h"
#include "ptx/mma_16bit.h"
#include "ptx/named_barrier.h"
#include "ptx/turn.h"
#include "split_kv.h"
#include "tile/latent_parts.h"

constexpr int kMetParts = 8;   // requests of fewer parts are merged here, others by tile/latent_merge.h

/// The merge of requests of kRows rows, a multiple of 16, by 256 threads that meet at the named barrier kBarrier.
template <class Arguments, int kRows, int kBarrier>
struct LatentMeeting {
    static constexpr int kThreads = 256, kWarps = kThreads / 32;

    const Arguments& a;
    int thread;
    int* last;   // in shared memory: whether this block came last

    __device__ __forceinline__ void wait() const { named_barrier_sync(kBarrier, kThreads); }
    static __device__ __forceinline__ void add(float4& sum, float factor, const float4& x) {
        sum = make_float4(sum.x + factor * x.x, sum.y + factor * x.y, sum.z + factor * x.z, sum.w + factor * x.w);
    }

    /// All threads, when the block's part of `request` is stored; `groups`: the first and the last one with a part.
    __device__ __forceinline__ void come(int request, KvRange groups) const {
        const int parts = groups.end - groups.begin + 1;
        wait();
        if (thread == 0) {
            unsigned* const count = &part_counts[a.shares.count_set][groups.begin];
            fence_between();
            const bool all = fetch_add(count, 1) == static_cast<unsigned>(parts - 1);
            fence_between();
            if (all) *count = 0;
            *last = all ? 1 : 0;
        }
        wait();
        if (*last != 0) merge(request, groups.begin, parts);
    }

    /// Two rows per warp at a time, 8 columns per lane and half.
    __device__ __forceinline__ void merge(int request, int first_group, int parts) const {
        const int lane = thread % 32, warp = thread / 32;
        const auto part = [&](int s) { return s == 0 ? a.schedule.groups + request : first_group + s; };
#pragma unroll 1
        for (int base = warp; base < kRows; base += 2 * kWarps) {
            // Lane s has the first row's part s, lane 8 + s the second one's.
            const int row = base + (lane & kMetParts ? kWarps : 0), own_part = lane % kMetParts;
            float4 sum[2][4], x[2][4];
            const auto ask = [&](float4(&to)[2][4], int s) {
                const float* from = a.parts.o + (static_cast<size_t>(part(s)) * kRows + base) * 512 + lane * 8;
#pragma unroll
                for (int r = 0; r < 2; ++r) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) to[r][j] = load_from_l2(from + r * (kWarps * 512) + j / 2 * 256 + j % 2 * 4);
                }
            };
            const float own = lane < 2 * kMetParts && own_part < parts
                ? load_one_from_l2(a.parts.lse + static_cast<size_t>(part(own_part)) * kRows + row) : -INFINITY;
            ask(sum, 0);
            ask(x, 1);
            SoftmaxRow total{own, 0.0f};
#pragma unroll
            for (int step = 1; step < kMetParts; step *= 2) {
                total.maximum = fmaxf(total.maximum, __shfl_xor_sync(0xffffffffu, total.maximum, step));
            }
            float weight = Exp2()(own * kLog2E - total.shift(kLog2E));
            total.sum = weight;
#pragma unroll
            for (int step = 1; step < kMetParts; step *= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, step);
            weight *= total.inverse();
            // Where a part saw no key, its output was never written, and may be anything.
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float factor = __shfl_sync(0xffffffffu, weight, r * kMetParts);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float4 y = sum[r][j];
                    sum[r][j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    if (factor != 0.0f) add(sum[r][j], factor, y);
                }
            }
#pragma unroll 1
            for (int s = 1; s < parts; ++s) {
                if (s != 1) ask(x, s);
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const float factor = __shfl_sync(0xffffffffu, weight, r * kMetParts + s);
                    if (factor == 0.0f) continue;
#pragma unroll
                    for (int j = 0; j < 4; ++j) add(sum[r][j], factor, x[r][j]);
                }
            }
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const size_t at = static_cast<size_t>(request) * kRows + base + r * kWarps;
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    const float4 y = sum[r][j], z = sum[r][j + 1];
                    *reinterpret_cast<uint4*>(a.o + (at * 512 + j * 128 + lane * 8) * 2) = make_uint4(
                        Bf16::pack(y.x, y.y), Bf16::pack(y.z, y.w), Bf16::pack(z.x, z.y), Bf16::pack(z.z, z.w));
                }
            }
            if (lane < 2 * kMetParts && own_part == 0) {
                const int query = row / a.heads, head = row % a.heads;
                a.lse[(static_cast<size_t>(request) * a.heads + head) * a.seqlen_q + query] = total.lse(kLog2E);
            }
        }
    }
};
