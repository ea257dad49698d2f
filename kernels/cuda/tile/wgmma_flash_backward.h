// SPDX-License-Identifier: MIT
// The main kernel of attention backward on wgmma: who loads, who multiplies dQ, and the roles of a block's warps.
//
// Two warpgroups have 64 keys each (tile/wgmma_flash_backward_keys.h). A third multiplies dQ = dS K from the dS they leave in
// shared memory and has TMA add it to fp32 sums in global memory. So the key warpgroups never wait for each other, only for
// room. Of the fourth, three threads load: tiles of Q, of dO, and the keys and values. They meet at mbarriers: full (the bytes
// have landed, or all key warps have stored) and empty (every warp that reads has read). Its last warp tends the sums: zeros
// for a section of heads before its tiles begin, dq from those of a section that is complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "ptx/bulk_copy.h"
#include "ptx/grid_dependency.h"
#include "ptx/lane_index.h"
#include "ptx/mbarrier.h"
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

#if !defined(PASS_LATE)
#define PASS_LATE 0
#endif

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
        if (task >= p.tasks) tile.head = -1;
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

/// Load keys and values as soon as there is a place, from memory to L2 even before that. One thread.
template <class Shape>
__device__ __forceinline__ void load_keys(
    const BackwardMemory<Shape>& memory, const TensorMap& keys, const TensorMap& values, const BackwardProblem& p) {
    ShortRing<Shape::kKeyPlaces> key_at;
    ShortRing<Shape::kValuePlaces> value_at;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read(memory);
        if (tile.head < 0) return;
        if (tile.steps(p) == 0) continue;
        const int batch = tile.head / p.key_heads, head = tile.head % p.key_heads, first = tile.number * Shape::kKeys;
        const auto load_key = [&] {
            const uint32_t full = memory.keys_full(key_at.stage());
            mbarrier_wait(memory.keys_empty(key_at.stage()), key_at.parity() ^ 1);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            tma_load_5d(memory.keys(key_at.stage()), keys, full, 0, first, 0, head, batch);
            key_at.advance();
        };
        const auto load_value = [&] {
            const uint32_t full = memory.values_full(value_at.stage());
            mbarrier_wait(memory.values_empty(value_at.stage()), value_at.parity() ^ 1);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            tma_load_5d(memory.values(value_at.stage()), values, full, 0, first, 0, head, batch);
            value_at.advance();
        };
        if constexpr (Shape::kKeyPlaces > 1) {
            load_key();
            if (Shape::kValuePlaces == 1) tma_prefetch_5d(values, 0, first, 0, head, batch);
            load_value();
        } else {   // dQ needs the keys longest
            tma_prefetch_5d(keys, 0, first, 0, head, batch);
            if (Shape::kValuePlaces == 1) tma_prefetch_5d(values, 0, first, 0, head, batch);
            load_value();
            load_key();
        }
    }
}

/// Add a warp's rows of a part of dQ to the sums: [8][32][4] numbers at `to`.
template <class Shape>
__device__ __forceinline__ void add_part(
    const BackwardMemory<Shape>& memory, float* to, const float (&d)[32], int part, int warp, int lane) {
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
}

/// The turns of one warp of dQ at its rows of the sums, where key tiles are added in order.
struct AddingTurn {
    int* turn = nullptr;   // to be passed on once what was added there is done
    int number = 0;        // of the key tile

    /// Wait for the turn of key tile `next` at `counter`.
    __device__ __forceinline__ void take(int* counter, int next, int lane) {
        if (!turn_reached(counter, next)) {
            pass(lane);   // who is waited for may wait for this one
            wait_for_turn(counter, next);
        }
        if (lane == 0) fence_async_global();
    }
    __device__ __forceinline__ void hold(int* counter, int own) {
        turn = counter;
        number = own;
    }
    /// Pass the turn on, when all but the last kPending parts are added.
    template <int kPending = 0>
    __device__ __forceinline__ void pass(int lane) {
        if (turn == nullptr) return;
        if (lane == 0) {
            bulk_wait_done<kPending>();
            pass_turn(turn, number + 1);
        }
        turn = nullptr;
    }
};

/// All tiles of the warpgroup of dQ: a product per step, added to the sums as it comes.
template <class Shape, bool kInOrder, bool kStaggered>
__device__ __forceinline__ void add_queries(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int warp, int lane) {
    ShortRing<2> at;
    ShortRing<Shape::kKeyPlaces> key_at;
    AddingTurn turn;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        int left = tile.steps(p);
        if (left > 0) {
            if (p.tends && tile.head >= p.first_head(1)) {   // prepare_rows left zeros in the first section
                wait_for_count(p.cleared + tile.head, p.pieces);
                if (lane == 0) fence_async_global();
            }
            mbarrier_wait(memory.keys_full(key_at.stage()), key_at.parity());
        }
        for (QueryWalk<kStaggered> walk(p, tile); left > 0; --left, walk.next(tile)) {
            const size_t first_row = static_cast<size_t>(walk.head) * p.rows + walk.tile * Shape::kQueries;
            float* const to = p.sums + first_row * Shape::kHeadDim + warp * 1024;
            int* const counter = p.turns + first_row / 16 + warp;
            if constexpr (kInOrder) turn.take(counter, tile.number, lane);
            mbarrier_wait(memory.gradients_full(at.stage()), at.parity());
            const uint64_t a = wgmma_operand(memory.gradients(at.stage()));
            const uint64_t b = wgmma_operand_transposed(memory.keys(key_at.stage()), Shape::kKeyPitch);
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
                    if (lane == 0 && left == 1) mbarrier_arrive(memory.keys_empty(key_at.stage()));
                }
                add_part<Shape>(memory, to + part * 4096, sums, part, warp, lane);
                if (kInOrder && PASS_LATE && part == 0) turn.pass<1>(lane);
            }
            at.advance();
            if (left == 1) key_at.advance();
            if constexpr (kInOrder) {
                turn.hold(counter, tile.number);
                if (!PASS_LATE) turn.pass(lane);
            }
        }
        if constexpr (kInOrder) turn.pass(lane);
        if (p.tends && lane == 0) {
            bulk_wait_done<0>();
            raise_count(p.added + tile.head);
        }
    }
    if (lane == 0) bulk_wait_done<0>();
}

template <class Shape, bool kInOrder, bool kStaggered>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash_backward(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap out, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ BackwardProblem p) {
    static_assert(!(kInOrder && kStaggered), "key tiles take turns in one order at all queries");
    uint8_t* const shared = swizzled_shared();
    const BackwardMemory<Shape> memory = {shared, shared_address(shared)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);

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

    // Each role reads its lane itself: there is no register to keep it in for all.
    if (warp < Shape::kKeyWarps) {
        take_registers<Shape::kKeyRegisters>();
        consume_keys<Shape, kStaggered>(memory, p, warp / 4, warp % 4, lane_index());
    } else if (warp < Shape::kKeyWarps + Shape::kQueryWarps) {
        give_registers<Shape::kQueryRegisters>();
        add_queries<Shape, kInOrder, kStaggered>(memory, p, warp - Shape::kKeyWarps, lane_index());
    } else {
        give_registers<Shape::kLoadRegisters>();
        const int role = warp - Shape::kKeyWarps - Shape::kQueryWarps, lane = lane_index();
        if (role == 0 && lane == 0) load_queries<Shape, kStaggered>(memory, queries, p);
        if (role == 1 && lane == 0) load_out<Shape, kStaggered>(memory, out, p);
        if (role == 2 && lane == 0) load_keys<Shape>(memory, keys, values, p);
        if (role == 3 && p.tends) tend_sums<typename Shape::Element, Shape::kHeadDim>(p);
        __syncwarp();   // the warp ends as a whole
    }
}
