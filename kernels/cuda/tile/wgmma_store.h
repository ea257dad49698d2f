// SPDX-License-Identifier: MIT
// How finished tiles of the Hopper product reach memory: by TMA, straight from registers, or by exchange in a cluster.
#pragma once

#include "ptx/cluster.h"
#include "ptx/mma_16bit.h"
#include "ptx/named_barrier.h"
#include "ptx/shared_address.h"
#include "ptx/stmatrix.h"
#include "ptx/tma.h"
#include "tile/swizzle.h"
#include "tile/wgmma_consume.h"

__device__ __forceinline__ void swap_words(uint32_t& a, uint32_t& b) {
    const uint32_t was = a;
    a = b;
    b = was;
}

/// The warpgroup's slices as bf16 through shared memory. The stores go on while the next tile is computed; the next call
/// waits for them before it reuses the memory, and so must the last one's caller before the block ends. Of the columns, part
/// kPart of kParts.
template <class Shape, int kPart = 0, int kParts = 1>
__device__ __forceinline__ void store_boxes(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, const TensorMap& output,
    const WgmmaWork& work) {
    static_assert(Shape::kTokensAreRows, "tokens as columns: store_turned_boxes");
    using Pattern = Swizzle<Shape::kBox / 8>;
    constexpr int kBoxBytes = 64 * Shape::kBox * 2;
    const bool issues = who.warp == 0 && who.lane == 0;
    const uint32_t region = memory.out() + who.group * (Shape::kSlices * Shape::kSliceBytes);
    if (issues) tma_store_wait_read<0>();
    named_barrier_sync(kGroupBarrier + who.group, 128);

    // Whose address this lane gives stmatrix. Outermost rows 2g and 2g + 1 lie in one lane: a matrix takes the even ones of the
    // first half and the odd ones of the second, the next matrix the others, or rows would share banks.
    constexpr bool kMixed = Shape::kRowsOutermost;
    const int row = who.warp * 16 + (kMixed ? who.lane % 8 * 2 + (who.lane / 8 % 2 ^ who.lane % 8 / 4) : who.lane % 16);
    const int odd = who.lane / 16;                   // and of which of the two 8-column chunks
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int pair = kPart * Shape::kN / 16 / kParts; pair < (kPart + 1) * Shape::kN / 16 / kParts; ++pair) {
            const int box = pair * 16 / Shape::kBox, chunk = pair * 2 % (Shape::kBox / 8);
            uint32_t packed[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                packed[i] = Bf16::pack(sums.total[slice][pair * 8 + 2 * i], sums.total[slice][pair * 8 + 2 * i + 1]);
            }
            if (kMixed && who.lane >= 16) {
                swap_words(packed[0], packed[1]);
                swap_words(packed[2], packed[3]);
            }
            stmatrix_x4(
                region + slice * Shape::kSliceBytes + box * kBoxBytes + Pattern::offset(row, chunk + odd), packed);
        }
    }
    fence_async_shared();
    named_barrier_sync(kGroupBarrier + who.group, 128);
    if (issues) {
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            const int y = work.row + who.group * Shape::kRowsPerConsumer + slice * 64;
            constexpr int kBoxes = Shape::kN / Shape::kBox / kParts;
            for (int box = kPart * kBoxes; box < (kPart + 1) * kBoxes; ++box) {
                tma_store(
                    output, region + slice * Shape::kSliceBytes + box * kBoxBytes, work.column + box * Shape::kBox, y);
            }
        }
        tma_store_commit();
    }
}

/// The same with weights as rows that lie K-outermost: a thread has two neighbouring weights of each of its tokens, which are
/// two neighbours in c. Boxes are kBox tokens high and the warpgroup's 64 weights wide.
template <class Shape>
__device__ __forceinline__ void store_turned_boxes(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, const TensorMap& output,
    const WgmmaWork& work) {
    static_assert(Shape::kRowsOutermost && Shape::kSlices == 1, "whose lanes hold neighbouring rows");
    using Pattern = Swizzle<8>;
    const bool issues = who.warp == 0 && who.lane == 0;
    const uint32_t offset = Shape::kRingBytes + who.group * Shape::kSliceBytes;
    if (issues) tma_store_wait_read<0>();
    named_barrier_sync(kGroupBarrier + who.group, 128);

    const int chunk = who.warp * 2 + who.lane / 16, inside = who.lane / 4 % 4 * 4;
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; i += 4) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
            const int token = i * 2 + who.lane % 4 * 2 + next;
            *reinterpret_cast<uint32_t*>(memory.start + offset + Pattern::offset(token, chunk) + inside) =
                Bf16::pack(sums.total[0][i + next], sums.total[0][i + next + 2]);
        }
    }
    fence_async_shared();
    named_barrier_sync(kGroupBarrier + who.group, 128);
    if (issues) {
        for (int token = 0; token < Shape::kN; token += Shape::kBox) {
            tma_store(output, memory.address + offset + token * 128, work.row + who.group * 64, work.column + token);
        }
        tma_store_commit();
    }
}

/// For rows of c that TMA cannot address (n no multiple of 8): each thread stores its own elements, of part kPart of the columns.
template <class Shape, int kPart = 0, int kParts = 1>
__device__ __forceinline__ void store_elements(
    const Consumer& who, const WgmmaSums<Shape>& sums, const WgmmaProblem& p, const WgmmaWork& work) {
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int i = kPart * Shape::kN / 2 / kParts; i < (kPart + 1) * Shape::kN / 2 / kParts; ++i) {
            const int row = work.row + who.row<Shape>(slice) + i % 4 / 2 * row_step<Shape>;
            const int column = work.column + i / 4 * 8 + who.lane % 4 * 2 + i % 2;
            const int token = Shape::kTokensAreRows ? row : column, weight = Shape::kTokensAreRows ? column : row;
            if (token < p.m && weight < p.n) {
                const float value = sums.total[slice][i];
                p.c[static_cast<size_t>(token) * p.n + weight] = static_cast<uint16_t>(Bf16::pack(value, value));
            }
        }
    }
}

/// Put the sums where the cluster can read them: fp32, in the orientation of c, over the ring, which nobody uses any more.
template <class Shape>
__device__ __forceinline__ void offer_sums(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums) {
    named_barrier_sync(kAllBarrier, Shape::kConsumerThreads);   // all have multiplied their last K block
    float* const tile = memory.exchange();
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
        const int row = who.row<Shape>(slice);
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; i += 2) {
            const int r = row + i % 4 / 2 * row_step<Shape>, column = i / 4 * 8 + who.lane % 4 * 2;
            const float2 two = {sums.total[slice][i], sums.total[slice][i + 1]};
            if constexpr (Shape::kTokensAreRows) {
                *reinterpret_cast<float2*>(tile + r * Shape::kExchangePitch + column) = two;
            } else {
                tile[column * Shape::kExchangePitch + r] = two.x;
                tile[(column + 1) * Shape::kExchangePitch + r] = two.y;
            }
        }
    }
}

/// Four neighbouring elements of a row of c, of which `left` exist.
__device__ __forceinline__ void store_quad(uint16_t* to, const float4& sum, int left, bool aligned) {
    const uint2 packed = make_uint2(Bf16::pack(sum.x, sum.y), Bf16::pack(sum.z, sum.w));
    if (left <= 0) return;
    if (aligned) {
        *reinterpret_cast<uint2*>(to) = packed;
    } else {
        to[0] = static_cast<uint16_t>(packed.x);
        if (left > 1) to[1] = static_cast<uint16_t>(packed.x >> 16);
        if (left > 2) to[2] = static_cast<uint16_t>(packed.y);
        if (left > 3) to[3] = static_cast<uint16_t>(packed.y >> 16);
    }
}

/// Add up what the blocks of the cluster offered, always in the order of K, and store it; each block takes an equal share.
/// A thread has the loads of kTogether sums on their way at a time: another block's memory is several hundred cycles off.
template <class Shape>
__device__ __forceinline__ void store_sums(
    const WgmmaMemory<Shape>& memory, int thread, const WgmmaProblem& p, const WgmmaWork& work) {
    constexpr int kTogether = 4;
    constexpr int kQuads = Shape::kExchangeColumns / 4;   // of one row
    const int parts = cluster_blocks(), rank = cluster_rank();
    const int first_row = Shape::kTokensAreRows ? work.row : work.column;
    const int first_column = Shape::kTokensAreRows ? work.column : work.row;
    const int quads = min(Shape::kExchangeRows, p.m - first_row) * kQuads, step = parts * Shape::kConsumerThreads;
    const uint32_t tile = shared_address(memory.exchange());
    for (int first = rank * Shape::kConsumerThreads + thread; first < quads; first += kTogether * step) {
        float4 sum[kTogether] = {};
#pragma unroll 2
        for (int part = 0; part < parts; ++part) {
            float4 value[kTogether] = {};
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                const int quad = first + i * step;
                const uint32_t from = tile + (quad / kQuads * Shape::kExchangePitch + quad % kQuads * 4) * 4;
                if (quad < quads) value[i] = load_cluster(map_shared(from, part));
            }
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
                sum[i].x += value[i].x;
                sum[i].y += value[i].y;
                sum[i].z += value[i].z;
                sum[i].w += value[i].w;
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            const int quad = first + i * step;
            if (quad >= quads) break;
            const int row = first_row + quad / kQuads, column = first_column + quad % kQuads * 4;
            store_quad(p.c + static_cast<size_t>(row) * p.n + column, sum[i], p.n - column, p.n % 4 == 0);
        }
    }
}
