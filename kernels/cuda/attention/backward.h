// SPDX-License-Identifier: MIT
// Attention backward on wgmma: the producers, the warpgroup that multiplies dQ, the kernel, and its launch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "attention/backward_call.h"
#include "attention/backward_mainloop.h"
#include "attention/backward_roles.h"
#include "attention/backward_rows.h"
#include "attention/backward_shape.h"
#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "common/ring.h"
#include "common/swizzle.h"
#include "common/tensor_map.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/atomic.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"
#include "status.h"

namespace attention {

// The main kernel of attention backward on wgmma: who loads, who multiplies dQ, and the roles of a block's warps.
//
// Two warpgroups have 64 keys each (attention/backward_mainloop.h), or a role each (attention/backward_roles.h). A third
// multiplies dQ = dS K from the dS they leave in shared memory and has TMA add it to fp32 sums in global memory. So key
// warpgroups never wait for each other, only for room and, with roles, for P. Of the fourth, two or three threads load: tiles of Q, of dO, and keys and values. They meet at mbarriers: full (the
// bytes have landed, or all key warps have stored) and empty (every warp that reads has read). Another thread adds dQ to the
// sums if that has an order, and the last warp tends the sums: zeros before they are needed, dq when they are complete.

/// Take tasks and load the queries of each, with the numbers that belong to S. One thread.
template <class Shape, Order kOrder>
__device__ __forceinline__ void load_queries(
    const BackwardMemory<Shape>& memory, const TensorMap& queries, const BackwardProblem& p) {
    RingPosition<Shape::kStages> at;
    bool first = p.given > 0;
    for (Board<Shape> board;; first = false) {
        // Taken only now, when what is left of the last tile lies in the ring: who is late takes less.
        const int task = first ? static_cast<int>(blockIdx.x) : take_number(p.next);
        KeyTile tile = find_task<kOrder>(p, min(task, p.tasks - 1), Shape::kQueries, Shape::kKeys);
        if (task >= p.tasks) tile.head = -1;
        board.write(memory, tile);
        if (tile.head < 0) return;
        QueryOrder<kOrder> visit(p, tile);
        for (int left = tile.steps(p); left > 0; --left, visit.next(p, tile), at.advance()) {
            const uint32_t full = memory.queries_full(at.stage);
            mbarrier_wait(memory.queries_empty(at.stage), at.parity ^ 1);
            mbarrier_arrive_expect(full, Shape::kQueryBytes + Shape::kNumberBytes);
            tma_load_5d(
                memory.queries(at.stage), queries, full, 0, visit.tile * Shape::kQueries, 0, visit.head % p.heads,
                visit.head / p.heads);
            bulk_load(
                memory.shifts(at.stage),
                p.shifts + static_cast<size_t>(visit.head) * p.rows + visit.tile * Shape::kQueries, Shape::kNumberBytes,
                full);
        }
    }
}

/// Load keys and values (kKeys) of a tile as soon as there is a place, from memory to L2 even before that; then dO, with delta
/// (kOut). One thread.
template <class Shape, Order kOrder, bool kKeys, bool kOut>
__device__ __forceinline__ void load_others(
    const BackwardMemory<Shape>& memory, const TensorMap& keys, const TensorMap& values, const TensorMap& out,
    const BackwardProblem& p) {
    ShortRing<Shape::kPlaces> key_at;  // of keys and values
    RingPosition<Shape::kStages> at;
    const auto load_key = [&](const KeyTile& tile) {
        const uint32_t full = memory.keys_full(key_at.stage());
        mbarrier_wait(memory.keys_empty(key_at.stage()), key_at.parity() ^ 1);
        mbarrier_arrive_expect(full, Shape::kKeyBytes);
        tma_load_5d(
            memory.keys(key_at.stage()), keys, full, 0, tile.number * Shape::kKeys, 0, tile.head % p.key_heads,
            tile.head / p.key_heads);
    };
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read(memory);
        if (tile.head < 0) return;
        int left = tile.steps(p);
        if (left == 0) continue;
        if constexpr (kKeys) {
            const int batch = tile.head / p.key_heads, head = tile.head % p.key_heads,
                      first = tile.number * Shape::kKeys;
            if constexpr (Shape::kPlaces == 1) {
                tma_prefetch_5d(keys, 0, first, 0, head, batch);
                tma_prefetch_5d(values, 0, first, 0, head, batch);
            } else {
                load_key(tile);
            }
            const uint32_t full = memory.values_full(key_at.stage());
            mbarrier_wait(memory.values_empty(key_at.stage()), key_at.parity() ^ 1);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            tma_load_5d(memory.values(key_at.stage()), values, full, 0, first, 0, head, batch);
            if constexpr (Shape::kPlaces == 1) load_key(tile);  // dQ needs the last tile's longest
            key_at.advance();
        }
        if constexpr (kOut) {
            for (QueryOrder<kOrder> visit(p, tile); left > 0; --left, visit.next(p, tile), at.advance()) {
                const uint32_t full = memory.out_full(at.stage);
                mbarrier_wait(memory.out_empty(at.stage), at.parity ^ 1);
                mbarrier_arrive_expect(full, Shape::kQueryBytes + Shape::kNumberBytes);
                tma_load_5d(
                    memory.out(at.stage), out, full, 0, visit.tile * Shape::kQueries, 0, visit.head % p.heads,
                    visit.head / p.heads);
                bulk_load(
                    memory.deltas(at.stage),
                    p.deltas + static_cast<size_t>(visit.head) * p.rows + visit.tile * Shape::kQueries,
                    Shape::kNumberBytes, full);
            }
        }
    }
}

/// Wait until there are zeros, or others' parts, in the sums of a tile's queries.
__device__ __forceinline__ void wait_for_zeros(const BackwardProblem& p, const KeyTile& tile) {
    if (p.chores == 0 || tile.head < p.first_head(2)) return;  // prepare_rows left them
    wait_for_count(p.cleared + tile.head, p.pieces);
    if (lane_index() == 0) fence_async_global();  // who has TMA add
}

/// This thread has added its part of a tile.
__device__ __forceinline__ void report_added(const BackwardProblem& p, const KeyTile& tile) {
    if (!p.tends) return;
    bulk_wait_done<0>();
    raise_count(p.added + tile.head);
}

/// Leave a piece of a warp's rows of a part of dQ in shared memory: [8 / kPieces][32][4] numbers.
template <class Shape>
__device__ __forceinline__ void put_piece(
    const BackwardMemory<Shape>& memory, const float* d, int place, int warp, int lane) {
    uint8_t* const to = memory.start + (memory.sums(place, warp) - memory.address) + lane * 16;
#pragma unroll
    for (int i = 0; i < 8 / Shape::kPieces; ++i) {
        *reinterpret_cast<float4*>(to + i * 512) = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
}

/// The same, for TMA to see.
template <class Shape>
__device__ __forceinline__ void write_piece(
    const BackwardMemory<Shape>& memory, const float (&d)[32], int piece, int place, int warp, int lane) {
    put_piece<Shape>(memory, d + piece * (32 / Shape::kPieces), place, warp, lane);
    fence_async_shared();
    __syncwarp();
}

/// Wait until the place of a step's piece `use` may be written. `steps`: how many steps there were before.
template <class Shape, Order kOrder>
__device__ __forceinline__ void wait_for_place(const BackwardMemory<Shape>& memory, int steps, int use, int lane) {
    if constexpr (kOrder == Order::kUp) {
        constexpr int kUses = Shape::kParts * Shape::kPieces / 2;  // of a place in a step
        mbarrier_wait(memory.sums_empty(use % 2), (steps * kUses + use / 2 & 1) ^ 1);
    } else {
        if (lane == 0) tma_store_wait_read<1>();  // the piece before the last one has left its place
        __syncwarp();
    }
}

/// Have a step's piece `use`, which TMA sees, added to the sums: by TMA at once, or, in order, by add_in_order.
template <class Shape, Order kOrder>
__device__ __forceinline__ void add_piece(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, const QueryOrder<kOrder>& visit, int use, int warp,
    int lane) {
    if (lane != 0) return;
    if constexpr (kOrder == Order::kUp) {
        mbarrier_arrive(memory.sums_full(use % 2));
    } else {
        float* const to = p.sums +
                          (static_cast<size_t>(visit.head) * p.rows + visit.tile * Shape::kQueries) * Shape::kHeadDim +
                          use / Shape::kPieces * 4096 + warp * 1024 + use % Shape::kPieces * (1024 / Shape::kPieces);
        bulk_reduce_add(to, memory.sums(use % 2, warp), Shape::kPlaceBytes / 4);
        tma_store_commit();
    }
}

/// All tiles of the warpgroup of dQ: a product per step. Each warp has TMA add its rows to the sums as they come, or, in order,
/// leaves that to add_in_order.
template <class Shape, Order kOrder>
__device__ __forceinline__ void multiply_queries(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int warp, int lane) {
    constexpr bool kInOrder = kOrder == Order::kUp;
    ShortRing<Shape::kGradientStages> at;
    ShortRing<Shape::kPlaces> key_at;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        int left = tile.steps(p);
        if (left > 0) {
            if (!kInOrder) wait_for_zeros(p, tile);
            mbarrier_wait(memory.keys_full(key_at.stage()), key_at.parity());
        }
        for (QueryOrder<kOrder> visit(p, tile); left > 0; --left, visit.next(p, tile)) {
            mbarrier_wait(memory.gradients_full(at.stage()), at.parity());
            const uint64_t a = wgmma_operand(memory.gradients(at.stage()));
            const uint64_t b = wgmma_operand_transposed(memory.keys(key_at.stage()), Shape::kKeyPitch);
#pragma unroll
            for (int part = 0; part < Shape::kParts; ++part) {  // slices of 64 queries, or of 64 columns
                constexpr uint64_t kNextA = Shape::kSlices > 1 ? 64 * 128 >> 4 : 0;
                constexpr uint64_t kNextB = Shape::kSlices > 1 ? 0 : Shape::kKeyPitch >> 4;
                float sums[32];
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < Shape::kKeys / 16; ++i) {
                    Wgmma16<64, typename Shape::Element, true>::product(
                        sums, a + part * kNextA + i / 4 * (Shape::kQueryPitch >> 4) + i % 4 * 2,
                        b + part * kNextB + i * 128, i > 0);
                }
                wgmma_commit();
                wgmma_wait<0>();
                wgmma_results(sums);
                if (part == Shape::kParts - 1) {
                    if (lane == 0) mbarrier_arrive(memory.gradients_empty(at.stage()));
                    if (lane == 0 && left == 1) mbarrier_arrive(memory.keys_empty(key_at.stage()));
                }
#pragma unroll
                for (int piece = 0; piece < Shape::kPieces; ++piece) {
                    const int use = part * Shape::kPieces + piece;
                    wait_for_place<Shape, kOrder>(memory, at.uses, use, lane);
                    write_piece<Shape>(memory, sums, piece, use % 2, warp, lane);
                    add_piece<Shape, kOrder>(memory, p, visit, use, warp, lane);
                }
            }
            at.advance();
            if (left == 1) key_at.advance();
        }
        if (!kInOrder && lane == 0) report_added(p, tile);
    }
    if (!kInOrder && lane == 0) bulk_wait_done<0>();
}

/// multiply_queries where the two other warpgroups have roles: a step has more pieces of dQ to write, and shared memory is what
/// it waits for. So a warp keeps its 16 rows of dS in registers, where all columns of K meet them: shared memory is read less,
/// and the place of dS is free at once. A product is a piece: it runs while TMA is given the piece before it.
template <class Shape, Order kOrder>
__device__ __forceinline__ void multiply_queries_by_pieces(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int warp, int lane) {
    using Element = typename Shape::Element;
    constexpr bool kInOrder = kOrder == Order::kUp;
    constexpr int kUses = Shape::kParts * Shape::kPieces, kColumns = Shape::kHeadDim / kUses;  // pieces of a step
    static_assert(Shape::kKeys == 64 && Shape::kSlices == 1 && Shape::kPlaces == 1, "dS is a box of 64 x 64");
    const int row = warp * 16 + lane % 16;
    ShortRing<Shape::kGradientStages> at;
    ShortRing<1> key_at;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        int left = tile.steps(p);
        if (left > 0) {
            if (!kInOrder) wait_for_zeros(p, tile);
            mbarrier_wait(memory.keys_full(0), key_at.parity());
        }
        for (QueryOrder<kOrder> visit(p, tile); left > 0; --left, visit.next(p, tile)) {
            uint32_t rows[4][4];  // dS of all keys
            float sums[kColumns / 2];
            const auto multiply = [&](int use) {
                const uint32_t columns =
                    memory.keys(0) + use / Shape::kPieces * Shape::kKeyPitch + use % Shape::kPieces * (kColumns * 2);
                const uint64_t b = wgmma_operand_transposed(columns, Shape::kKeyPitch);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    Wgmma16<kColumns, Element, true>::product(sums, rows[i], b + i * 128, i > 0);
                }
                wgmma_commit();
            };
            mbarrier_wait(memory.gradients_full(at.stage()), at.parity());
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                ldmatrix_x4(rows[i], memory.gradients(at.stage()) + Swizzle<8>::offset(row, 2 * i + lane / 16));
            }
            __syncwarp();
            if (lane < kWarpArrivals) mbarrier_arrive(memory.gradients_empty(at.stage()));
            multiply(0);
#pragma unroll
            for (int use = 0; use < kUses; ++use) {
                wait_for_place<Shape, kOrder>(memory, at.uses, use, lane);
                wgmma_wait<0>();
                wgmma_results(sums);
                put_piece<Shape>(memory, sums, use % 2, warp, lane);
                if (use + 1 < kUses) multiply(use + 1);
                else if (lane == 0 && left == 1) mbarrier_arrive(memory.keys_empty(0));
                fence_async_shared();
                __syncwarp();
                add_piece<Shape, kOrder>(memory, p, visit, use, warp, lane);
            }
            at.advance();
            if (left == 1) key_at.advance();
        }
        if (!kInOrder && lane == 0) report_added(p, tile);
    }
    if (!kInOrder && lane == 0) bulk_wait_done<0>();
}

/// Add the parts of dQ to the sums, those of a tile of queries when it is this key tile's turn, and pass the turn on. One
/// thread: it waits for memory, which the warpgroup of dQ has no time for.
template <class Shape>
__device__ __forceinline__ void add_in_order(const BackwardMemory<Shape>& memory, const BackwardProblem& p) {
    constexpr int kUses = Shape::kParts * Shape::kPieces;  // of the two places, in a step
    int step = 0;
    for (Board<Shape> board;;) {
        const KeyTile tile = board.read(memory);
        if (tile.head < 0) return;
        QueryOrder<Order::kUp> visit(p, tile);
        wait_for_zeros(p, tile);
        for (int left = tile.steps(p); left > 0; --left, visit.next(p, tile), ++step) {
            const size_t first_row = static_cast<size_t>(visit.head) * p.rows + visit.tile * Shape::kQueries;
            const int turn = turn_of(p, tile, visit.tile, Shape::kQueries, Shape::kKeys);
            wait_for_turn(p.turns + first_row / 64, turn);
            fence_async_global();
#pragma unroll
            for (int use = 0; use < kUses; ++use) {
                float* const to = p.sums + first_row * Shape::kHeadDim + use / Shape::kPieces * 4096 +
                                  use % Shape::kPieces * (1024 / Shape::kPieces);
                mbarrier_wait(memory.sums_full(use % 2), step * (kUses / 2) + use / 2 & 1);
                if constexpr (Shape::kPieces == 1) {
                    bulk_reduce_add(to, memory.sums(use % 2, 0), Shape::kPlaceBytes);
                } else {  // those of four warps lie apart
#pragma unroll
                    for (int warp = 0; warp < 4; ++warp) {
                        bulk_reduce_add(to + warp * 1024, memory.sums(use % 2, warp), Shape::kPlaceBytes / 4);
                    }
                }
                tma_store_commit();
                if (use == 0) continue;
                tma_store_wait_read<1>();
                mbarrier_arrive(memory.sums_empty((use - 1) % 2));
            }
            tma_store_wait_read<0>();
            mbarrier_arrive(memory.sums_empty(1));
            bulk_wait_done<0>();
            pass_turn(p.turns + first_row / 64, turn + 1);
        }
        report_added(p, tile);
    }
}

template <class Shape, Order kOrder>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash_backward(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap out,
    const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values,
    const __grid_constant__ BackwardProblem p) {
    constexpr bool kInOrder = kOrder == Order::kUp;
    constexpr bool kApart =
        !kInOrder && Shape::kPlaces > 1;  // keys and values that load early have a thread of their own
    uint8_t* const shared = swizzled_shared();
    const BackwardMemory<Shape> memory = {shared, shared_address(shared)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);

    if (threadIdx.x == 0) {
        memory.init_barriers(kInOrder || kApart ? 2 : 1);
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
        if constexpr (Shape::kRoles == 1) {
            consume_keys<Shape, kOrder>(memory, p, warp / 4, warp % 4, lane_index());
        } else if (warp < Shape::kRoleWarps) {
            consume_as<Shape, kOrder, 0>(memory, p, warp, lane_index());
        } else {
            consume_as<Shape, kOrder, 1>(memory, p, warp - Shape::kRoleWarps, lane_index());
        }
    } else if (warp < Shape::kKeyWarps + Shape::kQueryWarps) {
        give_registers<Shape::kQueryRegisters>();
        if constexpr (Shape::kRoles == 1) {
            multiply_queries<Shape, kOrder>(memory, p, warp - Shape::kKeyWarps, lane_index());
        } else {
            multiply_queries_by_pieces<Shape, kOrder>(memory, p, warp - Shape::kKeyWarps, lane_index());
        }
    } else {
        give_registers<Shape::kLoadRegisters>();
        const int role = warp - Shape::kKeyWarps - Shape::kQueryWarps, lane = lane_index();
        if (role == 0 && lane == 0) load_queries<Shape, kOrder>(memory, queries, p);
        if (role == 1 && lane == 0) load_others<Shape, kOrder, !kApart, true>(memory, keys, values, out, p);
        if (kApart && role == 2 && lane == 0) load_others<Shape, kOrder, true, false>(memory, keys, values, out, p);
        if (kInOrder && role == 2 && lane == 0) add_in_order<Shape>(memory, p);
        if (role == 3) tend_sums<typename Shape::Element, Shape::kHeadDim, kInOrder ? 1 : Shape::kQueryWarps>(p);
        __syncwarp();  // the warp ends as a whole
    }
}

// Host side of attention backward on wgmma (attention/backward.h): workspace, tensor maps, order of tiles, launches.

#ifndef EARLY_START
#error "EARLY_START is a tunable of the kernel file: 0 starts after the launch before, 1 beside its end"
#endif

#ifndef TENDED_KEYS
#error "TENDED_KEYS is a tunable of the kernel file: keys that a query sees, at least, for the main kernel to write dq"
#endif

// What tiles and their parts cost, in steps (a tile of queries each).
constexpr double kTileSteps = 1.75;    // between two tiles, measured at head dimension 128
constexpr double kPartSteps = 0.5;     // additions of a part
constexpr double kBytesPerStep = 8e6;  // of sums, written and read, in the 2.3 us of a step

/// How many halvings of the work of a tile of keys let blocks end soonest, by a count of steps. Few
/// tiles, as a single key head has, leave multiprocessors idle. Parts cost additions in fp32, and a pass to round their sums.
inline int choose_part_bits(const BackwardProblem& p, int queries, int keys, int head_dim, int multiprocessors) {
    const int all = p.key_heads_in_all(), most = ceil_div(p.queries, queries);
    double longest = 0.0, total = 0.0;
    for (int tile = 0; tile < p.tiles; ++tile) {
        const int first = p.causal ? std::max(0, tile * keys - (p.keys - p.queries)) / queries : 0;
        const double steps = static_cast<double>(std::max(0, most - first)) * p.group;
        longest = std::max(longest, steps);
        total += steps;
    }
    double best = 0.0;
    int chosen = 0;
    for (int bits = 0; bits <= kMostPartBits && most * p.group >> bits > 0; ++bits) {
        const double tasks = static_cast<double>(all) * p.tiles * (1 << bits);
        const double around = kTileSteps + (bits > 0 ? kPartSteps : 0.0), part = longest / (1 << bits) + around;
        const double mean = (total * all + around * tasks) / multiprocessors;
        double time = p.causal ? std::max(mean, part) : std::ceil(tasks / multiprocessors) * part;
        if (bits > 0) time += 16.0 * all * p.tiles * keys * head_dim / kBytesPerStep;
        if (bits == 0 || time < 0.93 * best) best = time, chosen = bits;
    }
    return chosen;
}

/// The same for the tiles that are left when all multiprocessors have had as many as each other: without a mask tiles take
/// equally long, and the last ones would have few of the multiprocessors at work.
inline int choose_last_parts(
    const BackwardProblem& p, int queries, int keys, int head_dim, int multiprocessors, long long tasks) {
    constexpr double kLeastGain = 0.005;  // of all steps
    const int left = static_cast<int>(tasks % multiprocessors), most = ceil_div(p.queries, queries);
    if (p.causal || p.part_bits > 0 || tasks < multiprocessors) return 1;
    const double tile = most * p.group + kTileSteps;
    double best = tile;
    int chosen = 1;
    for (int parts = 2; parts <= std::min(most, 1 << kMostPartBits); ++parts) {
        const double part = ceil_div(most, parts) * p.group + kTileSteps + kPartSteps;
        const double time =
            ceil_div(left * parts, multiprocessors) * part + 16.0 * left * keys * head_dim / kBytesPerStep;
        if (time < best) best = time, chosen = parts;
    }
    return left > 0 && tile - best > kLeastGain * tile * (tasks / multiprocessors + 1) ? chosen : 1;
}

/// Lay the workspace out: sums, shifts, deltas, turns, counts, sums of keys. Returns false if it is too small.
inline bool place_workspace(BackwardProblem* p, const BackwardCall& a, int keys, int head_dim) {
    const size_t lines = static_cast<size_t>(a.batch) * a.heads * p->rows;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(a.workspace) + 127) / 128 * 128;
    p->sums = reinterpret_cast<float*>(start);
    p->shifts = p->sums + lines * head_dim;
    p->deltas = p->shifts + lines;
    p->turns = reinterpret_cast<int*>(p->deltas + lines);
    p->next = p->turns + lines / 64;
    p->chore = p->next + 1;
    p->added = p->chore + 1;
    p->cleared = p->added + static_cast<size_t>(a.batch) * a.key_heads;
    uintptr_t end = reinterpret_cast<uintptr_t>(p->cleared + static_cast<size_t>(a.batch) * a.key_heads);
    if (p->tiles_in_parts() > 0) {
        p->key_sums = reinterpret_cast<float*>((end + 15) / 16 * 16);
        end =
            reinterpret_cast<uintptr_t>(p->key_sums + static_cast<size_t>(p->tiles_in_parts()) * (2 * keys * head_dim));
    }
    return a.workspace != nullptr && end - reinterpret_cast<uintptr_t>(a.workspace) <= a.workspace_bytes;
}

/// Launch the kernels of one instance. Returns 0, a KernelStatus, or the runtime's or the driver's error.
template <class Shape, Order kOrder>
int launch_flash_backward(const BackwardCall& a, int multiprocessors, void* queue) {
    using Element = typename Shape::Element;
    constexpr int kHeadDim = Shape::kHeadDim;
    BackwardProblem p{};
    p.dq = static_cast<uint8_t*>(a.dq);
    p.dk = static_cast<uint8_t*>(a.dk);
    p.dv = static_cast<uint8_t*>(a.dv);
    p.batch = a.batch;
    p.queries = a.queries;
    p.keys = a.keys;
    p.heads = a.heads;
    p.key_heads = a.key_heads;
    p.group = a.heads / a.key_heads;
    p.rows = ceil_div(a.queries, 128) * 128;
    p.causal = a.causal;
    p.softmax_scale = a.softmax_scale;
    p.scale = a.softmax_scale * kLog2E;
    p.tiles = ceil_div(a.keys, Shape::kKeys);
    const long long lines = static_cast<long long>(a.batch) * a.heads * p.rows;
    constexpr bool kInOrder = kOrder == Order::kUp;
    static_assert(Shape::kKeys == kKeyRows<kHeadDim>, "sums of keys");
    p.part_bits = kInOrder ? 0 : choose_part_bits(p, Shape::kQueries, Shape::kKeys, kHeadDim, multiprocessors);
    p.heads_apart = p.part_bits > 0 && p.group >> p.part_bits > 0;
    long long tasks = static_cast<long long>(a.batch) * a.key_heads * p.tasks_of_head();
    p.last_parts = kInOrder ? 1 : choose_last_parts(p, Shape::kQueries, Shape::kKeys, kHeadDim, multiprocessors, tasks);
    const long long rest = p.last_parts > 1 ? tasks % multiprocessors : 0;  // tiles, of the last section
    const long long whole = tasks - rest, chores = lines / 32;              // at most, of both
    tasks = whole + rest * p.last_parts;
    // Every block takes one number too many.
    if (std::max(tasks, chores) > 0x7fffff00LL || lines > 0x7fffffffLL) return kUnsupportedShape;

    // A section gives every block a tile. At the end blocks end together if they take causal tiles of enough heads, the long
    // ones first. Where all tiles of a head take turns, blocks that end together begin with the same key tile of different
    // heads: of as many as there are blocks for. The last section's causal tiles take turns downwards.
    const int all = a.batch * a.key_heads, round = ceil_div(multiprocessors, p.tasks_of_head());
    const int enough = p.causal ? ceil_div(2 * multiprocessors, p.tasks_of_head()) : round;
    p.section = std::min(all, kInOrder && !p.causal ? std::max(1, multiprocessors / p.tiles) : round);
    p.sections = 1 + std::max(0, all - enough) / p.section;
    p.last = all - p.first_head(p.sections - 1);
    // Causal tiles begin at different times anyway; of some lengths, they were faster without.
    p.around = !a.causal || kHeadDim == 64 || a.keys <= 1024 || a.keys > 4096;
    p.down = kInOrder && p.causal ? all - p.last : all;
    p.pieces = p.rows / 64 * p.group;
    p.tasks = static_cast<int>(tasks);
    p.whole = static_cast<int>(whole);
    p.split = p.part_bits > 0 ? 0 : p.whole;
    // With three sections or more the main kernel clears all sums but those of the first two, and writes dq of all but the last
    // unless it takes too little time per query for one warp to keep up.
    const int early = p.first_head(2), late = p.last;
    const bool many = p.sections > 2;
    p.tends = many && (p.causal ? a.keys / 2 : a.keys) >= TENDED_KEYS;
    p.given = kInOrder || p.tends ? 0 : multiprocessors;  // where somebody waits for tasks, all are of blocks that run
    p.chores = (p.tends ? all - early + all - late : many ? all - early : 0) * p.pieces;
    if (!place_workspace(&p, a, Shape::kKeys, kHeadDim)) return kWorkspaceTooSmall;

    TensorMap queries, out, keys, values;
    int error = encode_head_tensor_map(&queries, {a.q, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0)
        error = encode_head_tensor_map(&out, {a.dout, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&keys, {a.k, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error == 0)
        error = encode_head_tensor_map(&values, {a.v, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error != 0) return error;

    constexpr bool kEarly = EARLY_START != 0;
    const int zeroed = (p.chores > 0 ? early : all) * p.group, finished = (p.tends ? all - late : 0) * p.group;
    const BackwardRows rows = {static_cast<const uint8_t*>(a.o), static_cast<const uint8_t*>(a.dout), a.lse};
    error = launch_cluster(
        prepare_rows<Element, kHeadDim>, static_cast<int>(lines / kPrepareRows), kPrepareThreads, 1, 0, kEarly, queue,
        rows, p, zeroed);
    if (error != 0) return error;
    error = launch_cluster(
        wgmma_flash_backward<Shape, kOrder>, multiprocessors, Shape::kThreads, 1, Shape::kSharedBytes, kEarly, queue,
        queries, out, keys, values, p);
    if (error != 0) return error;
    const int query_blocks = (all * p.group - finished) * (p.rows / 128);
    return launch_cluster(
        finish_rows<Element, kHeadDim>, query_blocks + p.tiles_in_parts() * (Shape::kKeys / 64), 256, 1, 0, kEarly,
        queue, p, finished, query_blocks);
}

}  // namespace attention
