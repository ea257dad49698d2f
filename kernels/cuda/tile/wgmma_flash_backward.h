// SPDX-License-Identifier: MIT
// The main kernel of attention backward on wgmma: who loads, who multiplies dQ, and the roles of a block's warps.
//
// Two warpgroups have 64 keys each (tile/wgmma_flash_backward_keys.h). A third multiplies dQ = dS K from the dS they leave in
// shared memory and adds it to fp32 sums in global memory. So the key warpgroups never wait for each other, only for room.
// Of the fourth, three threads load: tiles of Q, of dO, and the keys and values. They meet at mbarriers: full (the bytes have
// landed, or all key warps have stored) and empty (every warp that reads has read).
#pragma once

#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "ptx/bulk_copy.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/reduce_add.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
#include "ptx/tma_5d.h"
#include "ptx/turn.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "ptx/wgmma_16bit.h"
#include "tile/wgmma_flash_backward_keys.h"
#include "tile/wgmma_flash_backward_rows.h"
#include "tile/wgmma_flash_backward_shape.h"

constexpr int kBackwardTurnBarrier = 1;

/// Take tasks and load the queries of each, with the numbers that belong to S. One thread.
template <class Shape, bool kStaggered>
__device__ __forceinline__ void load_queries(
    const BackwardMemory<Shape>& memory, const TensorMap& queries, const BackwardProblem& p) {
    RingPosition<Shape::kStages> at;
    for (Board<Shape> board;;) {
        // Taken only now, when what is left of the last tile lies in the ring: who is late takes less.
        KeyTile tile;
        int task;
        do task = take_number(p.next);
        while (task < p.tasks && !find_task(tile, p, task, Shape::kQueries, Shape::kKeys));
        if (task >= p.tasks) tile = {-1, 0, 0, 0};
        board.write(memory, tile);
        if (tile.head < 0) return;
        QueryWalk<kStaggered> walk(p, tile);
        for (int left = tile.steps(p); left > 0; --left, walk.next(tile), at.advance()) {
            const uint32_t full = memory.queries_full(at.stage);
            mbarrier_wait(memory.queries_empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, Shape::kQueryBytes + Shape::kNumberBytes);
            tma_load_5d(memory.queries(at.stage), queries, full, 0, walk.tile * Shape::kQueries, 0, walk.head % p.heads,
                        walk.head / p.heads);
            bulk_load(memory.shifts(at.stage),
                      p.shifts + static_cast<size_t>(walk.head) * p.rows + walk.tile * Shape::kQueries,
                      Shape::kNumberBytes, full);
        }
    }
}

/// Load dO, with delta. One thread.
template <class Shape, bool kStaggered>
__device__ __forceinline__ void load_out(
    const BackwardMemory<Shape>& memory, const TensorMap& out, const BackwardProblem& p) {
    RingPosition<Shape::kStages> at;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read(memory);
        if (tile.head < 0) return;
        QueryWalk<kStaggered> walk(p, tile);
        for (int left = tile.steps(p); left > 0; --left, walk.next(tile), at.advance()) {
            const uint32_t full = memory.out_full(at.stage);
            mbarrier_wait(memory.out_empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, Shape::kQueryBytes + Shape::kNumberBytes);
            tma_load_5d(memory.out(at.stage), out, full, 0, walk.tile * Shape::kQueries, 0, walk.head % p.heads,
                        walk.head / p.heads);
            bulk_load(memory.deltas(at.stage),
                      p.deltas + static_cast<size_t>(walk.head) * p.rows + walk.tile * Shape::kQueries,
                      Shape::kNumberBytes, full);
        }
    }
}

/// Load keys and values as soon as nobody needs the last tile's. One thread.
template <class Shape>
__device__ __forceinline__ void load_keys(
    const BackwardMemory<Shape>& memory, const TensorMap& keys, const TensorMap& values, const BackwardProblem& p) {
    uint32_t parity = 0;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read(memory);
        if (tile.head < 0) return;
        if (tile.steps(p) == 0) continue;
        const int batch = tile.head / p.key_heads, head = tile.head % p.key_heads, first = tile.number * Shape::kKeys;
        mbarrier_wait(memory.values_empty(), parity ^ 1);
        mbarrier_arrive_expect(memory.values_full(), Shape::kKeyBytes);
        tma_load_5d(memory.values(), values, memory.values_full(), 0, first, 0, head, batch);
        mbarrier_wait(memory.keys_empty(), parity ^ 1);
        mbarrier_arrive_expect(memory.keys_full(), Shape::kKeyBytes);
        tma_load_5d(memory.keys(), keys, memory.keys_full(), 0, first, 0, head, batch);
        parity ^= 1;
    }
}

/// Add a warp's rows of a part of dQ to the sums: [8][32][4] numbers at `to`.
template <class Shape>
__device__ __forceinline__ void add_part(
    const BackwardMemory<Shape>& memory, float* to, const float (&d)[32], int part, int warp, int lane) {
    if constexpr (Shape::kBulk) {
        if (lane == 0) tma_store_wait_read<1>();   // the part before the last one has left its place
        __syncwarp();
        const uint32_t from = memory.sums(part, warp);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            *reinterpret_cast<float4*>(memory.start + (from - memory.address) + i * 512 + lane * 16) =
                make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
        }
        fence_async_shared();
        __syncwarp();
        if (lane == 0) {
            bulk_reduce_add(to, from, Shape::kPartBytes / 4);
            tma_store_commit();
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            reduce_add_x4(to + i * 128 + lane * 4, d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
        }
    }
}

/// Wait until this warp's additions are done and can be seen by others.
template <class Shape>
__device__ __forceinline__ void settle_additions(int lane) {
    if constexpr (Shape::kBulk) {
        if (lane == 0) bulk_wait_done<0>();
        __syncwarp();
    }
    fence_device();
}

/// Write 128 rows of dq once all key tiles are added, and leave zeros for the head that comes next.
template <class Shape>
__device__ __forceinline__ void finish_queries(const BackwardProblem& p, const KeyTile& t, int warp, int lane) {
    wait_for_count(p.added + t.head, p.tiles);
    write_queries<typename Shape::Element, Shape::kHeadDim, true>(p, t.last, t.first * 128, warp, lane);
    fence_device();
    named_barrier_sync(kBackwardTurnBarrier, 128);
    if (warp == 0 && lane == 0) raise_count(p.cleared + t.head);
}

/// All tiles of the warpgroup of dQ: a product per step, added to the sums as it comes.
///
/// In order: the turn at a tile of queries is passed on when the next step's product is done, since additions take so long.
template <class Shape, bool kInOrder, bool kStaggered>
__device__ __forceinline__ void add_queries(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int warp, int lane) {
    RingOfTwo at;
    uint32_t parity = 0;
    int* turn = nullptr;   // to be passed on
    int next_turn = 0;
    const auto pass = [&] {
        if (turn == nullptr) return;
        settle_additions<Shape>(lane);
        named_barrier_sync(kBackwardTurnBarrier, 128);
        if (warp == 0 && lane == 0) pass_turn(turn, next_turn);
        turn = nullptr;
    };
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        if (tile.number < 0) {
            finish_queries<Shape>(p, tile, warp, lane);
            continue;
        }
        QueryWalk<kStaggered> walk(p, tile);
        const int place = p.place(tile.head * p.group) - tile.head * p.group;
        const int former = tile.head - p.kept * p.section;   // whose sums lay here
        if (former >= 0) wait_for_count(p.cleared + former, p.pieces);
        int left = tile.steps(p);
        if (left > 0) {
            mbarrier_wait(memory.keys_full(), parity);
            parity ^= 1;
        }
        for (; left > 0; --left, walk.next(tile)) {
            mbarrier_wait(memory.gradients_full(at.stage()), at.parity());
            const uint64_t a = wgmma_operand(memory.gradients(at.stage()));
            const uint64_t b = wgmma_operand_transposed(memory.keys(), Shape::kKeyPitch);
            const size_t slices = static_cast<size_t>(walk.head) * (p.rows / 64) + walk.tile * Shape::kSlices;
            float* const to = p.sums + (static_cast<size_t>(place + walk.head) * p.rows + walk.tile * Shape::kQueries) *
                                           Shape::kHeadDim + warp * 1024;
#pragma unroll
            for (int part = 0; part < Shape::kParts; ++part) {   // slices of 64 queries, or of 64 columns
                constexpr uint64_t kNextA = Shape::kSlices > 1 ? 64 * 128 >> 4 : 0;
                constexpr uint64_t kNextB = Shape::kSlices > 1 ? 0 : Shape::kKeyPitch >> 4;
                float sums[32];
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < Shape::kKeys / 16; ++i) {
                    Wgmma16<64, typename Shape::Element, true>::product(
                        sums, a + part * kNextA + i / 4 * (Shape::kQueryPitch >> 4) + i % 4 * 2, b + part * kNextB + i * 128,
                        i > 0);
                }
                wgmma_commit();
                wgmma_wait<0>();
                wgmma_results(sums);
                if (part == Shape::kParts - 1) {
                    if (lane == 0) mbarrier_arrive(memory.gradients_empty(at.stage()));
                    if (lane == 0 && left == 1) mbarrier_arrive(memory.keys_empty());
                }
                if constexpr (kInOrder) {
                    if (part == 0) {
                        pass();
                        wait_for_turn(p.turns + slices, tile.number);
                    }
                }
                add_part<Shape>(memory, to + part * 4096, sums, part, warp, lane);
            }
            at.advance();
            if constexpr (kInOrder) {
                turn = p.turns + slices;
                next_turn = tile.number + 1;
            }
        }
        if constexpr (kInOrder) pass();
        else settle_additions<Shape>(lane);
        named_barrier_sync(kBackwardTurnBarrier, 128);
        if (warp == 0 && lane == 0) raise_count(p.added + tile.head);
    }
}

template <class Shape, bool kInOrder, bool kStaggered>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash_backward(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap out, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ BackwardProblem p) {
    static_assert(!(kInOrder && kStaggered), "key tiles take turns in one order at all queries");
    uint8_t* const shared = swizzled_shared();
    const BackwardMemory<Shape> memory = {shared, shared_address(shared)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;

    if (threadIdx.x == 0) {
        memory.init_barriers();
        tma_prefetch_map(queries);
        tma_prefetch_map(out);
        tma_prefetch_map(keys);
        tma_prefetch_map(values);
    }
    __syncthreads();
    grid_dependency_wait();
    grid_dependency_release();

    if (warp < Shape::kKeyWarps) {
        take_registers<Shape::kKeyRegisters>();
        consume_keys<Shape, kStaggered>(memory, p, warp / 4, warp % 4, lane);
    } else if (warp < Shape::kKeyWarps + Shape::kQueryWarps) {
        give_registers<Shape::kQueryRegisters>();
        add_queries<Shape, kInOrder, kStaggered>(memory, p, warp - Shape::kKeyWarps, lane);
    } else {
        give_registers<Shape::kLoadRegisters>();
        const int role = warp - Shape::kKeyWarps - Shape::kQueryWarps;
        if (role == 0 && lane == 0) load_queries<Shape, kStaggered>(memory, queries, p);
        if (role == 1 && lane == 0) load_out<Shape, kStaggered>(memory, out, p);
        if (role == 2 && lane == 0) load_keys<Shape>(memory, keys, values, p);
        __syncwarp();   // the warp ends as a whole
    }
}
