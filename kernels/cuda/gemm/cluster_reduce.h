// SPDX-License-Identifier: MIT
// How the blocks of a cluster, each with a part of K, add up their sums: each owns a share of the tile, is sent it by the
// others, and stores it.
//
// A share is a run of units; a unit is 8 columns of a slice, i.e. four registers of every consumer thread. It travels as
// these, 16 bytes per thread in the order of threads, since the owner's thread of the same number holds the same elements:
// no layout, no bank conflicts. A copy takes a whole share from shared memory to shared memory and counts its bytes at the
// owner's mbarrier, which is all that anybody waits for. (A barrier of the cluster that publishes shared memory costs a fence
// of all memory, 0.4 us each; a store per thread into another block's memory about 15 cycles, one after the other.)
//
// What can be known before the last product is computed before the first, when these threads have nothing else to do.
#pragma once

#include "gemm/consumer.h"
#include "gemm/epilogue.h"
#include "gemm/scheduler.h"
#include "gemm/shape.h"
#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace gemm {

/// Bytes of the share of `owner` among `parts`, and where it begins.
template <class Shape>
__device__ __forceinline__ int share_start(int owner, int parts) {
    return Shape::kUnits * owner / parts * Shape::kUnitBytes;
}

/// Before the first K block: make the barrier for what the others will send. One thread; cluster_arrive_relaxed follows.
template <class Shape>
__device__ __forceinline__ void expect_sums(const WgmmaMemory<Shape>& memory) {
    const int parts = cluster_blocks(), rank = cluster_rank();
    mbarrier_init(memory.received(), 1);
    mbarrier_arrive_expect(
        memory.received(), (parts - 1) * (share_start<Shape>(rank + 1, parts) - share_start<Shape>(rank, parts)));
}

/// A consumer thread's part in it.
template <class Shape>
struct ClusterReduce {
    static constexpr int kPerSlice = Shape::kN / 8;

    int parts, first, last;  // this block owns units first .. last - 1
    int thread;
    int to, from, bytes, barrier;  // the copy this thread sends; nothing if it has no bytes

    __device__ __forceinline__ ClusterReduce(const WgmmaMemory<Shape>& memory, const Consumer& who)
        : parts(cluster_blocks()), first(0), last(Shape::kUnits), thread((who.group * 4 + who.warp) * 32 + who.lane),
          to(0), from(0), bytes(0), barrier(0) {
        if (parts == 1) return;
        const int rank = cluster_rank();
        first = Shape::kUnits * rank / parts;
        last = Shape::kUnits * (rank + 1) / parts;
        if (thread < parts && thread != rank) {  // to the block of this rank
            const int start = share_start<Shape>(thread, parts);
            bytes = share_start<Shape>(thread + 1, parts) - start;
            from = memory.address + start;
            to = map_shared(memory.out() + (rank < thread ? rank : rank - 1) * bytes, thread);
            barrier = map_shared(memory.received(), thread);
        }
        compute_now(to);
        compute_now(from);
        compute_now(bytes);
        compute_now(barrier);
        compute_now(first);
        compute_now(last);
    }

    __device__ __forceinline__ bool own(int unit) const { return unit >= first && unit < last; }

    /// Send the others their shares and add theirs of one's own, in the order of ranks: only the sums of one's own units are
    /// whole after it. All consumer threads, after cluster_wait.
    __device__ __forceinline__ void add(const WgmmaMemory<Shape>& memory, WgmmaSums<Shape>& sums) const {
        float4* const leaving = reinterpret_cast<float4*>(memory.start) + thread;  // over the ring, which is used up
        named_barrier_sync(kAllBarrier, Shape::kConsumerThreads);
#pragma unroll
        for (int unit = 0; unit < Shape::kUnits; ++unit) {
            const float* const sum = &sums.total[unit / kPerSlice][unit % kPerSlice * 4];
            if (!own(unit)) leaving[unit * Shape::kConsumerThreads] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
        fence_async_shared();
        named_barrier_sync(kAllBarrier, Shape::kConsumerThreads);
        if (bytes > 0) copy_to_cluster(to, from, bytes, barrier);
        __syncwarp();
        const int mine = (last - first) * Shape::kUnitBytes;
        if (mine > 0) mbarrier_wait(memory.received(), 0);
        __syncwarp();
        cluster_arrive_relaxed();  // what was sent here has been read there
        const uint8_t* arrived = memory.start + Shape::kRingBytes + thread * 16 - first * Shape::kUnitBytes;
        for (int sender = 1; sender < parts; ++sender, arrived += mine) {
#pragma unroll
            for (int unit = 0; unit < Shape::kUnits; ++unit) {
                if (!own(unit)) continue;
                float* const sum = &sums.total[unit / kPerSlice][unit % kPerSlice * 4];
                const float4 more = *reinterpret_cast<const float4*>(arrived + unit * Shape::kUnitBytes);
                sum[0] += more.x;
                sum[1] += more.y;
                sum[2] += more.z;
                sum[3] += more.w;
            }
        }
    }
};

/// Where a consumer thread stores what its block owns of a tile. Lanes trade elements so that a store of a warp fills whole
/// sectors of 32 bytes.
template <class Shape>
struct ShareStore {
    static constexpr int kPerSlice = Shape::kN / 8;
    static constexpr bool kTrade = !Shape::kMnMajorRows;  // MN-major rows 2g and 2g + 1 are in one lane already

    uint16_t* start;  // of this thread: its first row's, or its first token's
    int whole;        // the tile lies inside c, and its words are aligned
    int left;         // tokens from this thread's first on
    int odd;          // which of two trading lanes
    int pitch;        // from a row of c to the next, or to that of the second token, in elements

    __device__ __forceinline__ ShareStore(const Consumer& who, const WgmmaProblem& p, const WorkTile& work)
        : pitch(p.n) {
        const int row = work.row + who.row<Shape>(0);
        if constexpr (Shape::kTokensAreRows) {
            odd = who.lane % 2;
            start = p.c + static_cast<size_t>(row) * p.n + work.column + who.lane % 4 / 2 * 4 + odd * 8;
            whole = p.n % 4 == 0 && work.column + Shape::kN <= p.n;
            left = p.m - row;
        } else {
            const int token = work.column + who.lane % 4 * 2;
            odd = kTrade ? who.lane / 4 % 2 : 0;
            start = p.c + static_cast<size_t>(token) * p.n + row + odd * 7;
            whole = p.n % 2 == 0 && work.row + Shape::kM <= p.n;
            left = p.m - token;
        }
        compute_now(start);
        compute_now(whole);
        compute_now(left);
        compute_now(odd);
    }

    /// Two neighbouring units with tokens as rows: 16 columns of each row, of which a lane stores four.
    __device__ __forceinline__ void two_units(const float* sum, int slice, int column) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t first = Bf16::pack(sum[2 * half], sum[2 * half + 1]);
            const uint32_t second = Bf16::pack(sum[2 * half + 4], sum[2 * half + 5]);
            const uint32_t taken = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
            const int row = slice * 64 + half * row_step<Shape>;
            if (row < left) {
                *reinterpret_cast<uint2*>(start + static_cast<size_t>(row) * pitch + column) =
                    make_uint2(odd ? taken : first, odd ? second : taken);
            }
        }
    }

    /// One unit with tokens as rows: 8 columns.
    __device__ __forceinline__ void one_unit(const float* sum, int slice, int column) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = slice * 64 + half * row_step<Shape>;
            if (row < left) {
                *reinterpret_cast<uint32_t*>(start + static_cast<size_t>(row) * pitch + column - odd * 6) =
                    Bf16::pack(sum[2 * half], sum[2 * half + 1]);
            }
        }
    }

    /// One unit with tokens as columns. Neighbouring weights are in lanes four apart; of two such, one takes a token's two weights
    /// among the upper eight rows and the other among the lower: 16 weights of each token.
    __device__ __forceinline__ void turned_unit(const float* sum, int slice, int column) const {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
            float first = sum[next], second = sum[next + 2];
            if constexpr (kTrade) {
                const float taken = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
                first = odd ? taken : first;
                second = odd ? second : taken;
            }
            if (column + next < left) {
                *reinterpret_cast<uint32_t*>(start + static_cast<size_t>(column + next) * pitch + slice * 64) =
                    Bf16::pack(first, second);
            }
        }
    }

    /// Store the units of `share`. All consumer threads.
    __device__ __forceinline__ void store(
        const Consumer& who, const WgmmaSums<Shape>& sums, const ClusterReduce<Shape>& share, const WgmmaProblem& p,
        const WorkTile& work) const {
        if (!whole) return store_elements<Shape>(who, sums, p, work, share.first, share.last);
#pragma unroll
        for (int unit = 0; unit < Shape::kUnits; unit += 2) {
            const int slice = unit / kPerSlice, column = unit % kPerSlice * 8;
            const float* const sum = &sums.total[slice][column / 2];
            const bool here = share.own(unit), next = share.own(unit + 1);
            if constexpr (Shape::kTokensAreRows) {
                if (here && next) two_units(sum, slice, column);
                else if (here) one_unit(sum, slice, column);
                else if (next) one_unit(sum + 4, slice, column + 8);
            } else {
                if (here) turned_unit(sum, slice, column);
                if (next) turned_unit(sum + 4, slice, column + 8);
            }
        }
    }
};

}  // namespace gemm
