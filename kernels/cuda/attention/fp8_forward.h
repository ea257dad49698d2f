// SPDX-License-Identifier: MIT
// Attention forward from e4m3 on wgmma: the producers, the kernel, and its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/fp8_mainloop.h"
#include "attention/fp8_shape.h"
#include "attention/fp8_transpose.h"
#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "common/ring.h"
#include "common/tensor_map.h"
#include "launch.h"
#include "ptx/atomic.h"
#include "ptx/barrier.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"
#include "status.h"

namespace attention {

// The device code of attention forward from e4m3 on wgmma.
//
// Roles in a block: kGroups warpgroups with 64 query rows each, then a warpgroup of which one thread drives TMA and, where values
// were not transposed before, three warps turn them over. They meet at mbarriers, a full and an empty one for each stage of the
// rings: queries, keys, values as they come (TMA to the transposers) and values transposed (to the consumers, of
// attention/fp8_mainloop.h). See flash_attention_fp8/wgmma_tma.cu for the algorithm, the instances and the launch.

/// Fill the rings for all tiles of this block. One thread. Keys run one step ahead of values, as the consumers do.
template <class Shape>
__device__ __forceinline__ void produce_fp8_flash(
    const Fp8FlashMemory<Shape>& memory, const TensorMap& queries, const TensorMap& keys, const TensorMap& values,
    const Fp8FlashProblem& p) {
    RingPosition<Shape::kStages> keys_at;
    RingPosition<Shape::kValueStages> values_at;
    uint32_t tile_count = 0;
    // Until all of V is transposed: has it been done for the keys of a step of a head? A step touches at most two blocks of
    // keys. Their counts are asked for a step ahead, as an answer takes about as long as half a step.
    constexpr int kColumns = Shape::kHeadDim / kPieceSide;
    bool all_turned = false;
    int turned_first = 0, turned_last = 0;
    const auto counts = [&](int head, int step, int which) {
        const int end = min(p.pieces.blocks, ceil_div((step + 1) * Shape::kKeys, kPieceSide));
        return p.pieces.ready + head * p.pieces.blocks + (which == 0 ? step * Shape::kKeys / kPieceSide : end - 1);
    };
    const auto ask_for_turned = [&](int head, int step) {
        if (all_turned) return;
        turned_first = peek(counts(head, step, 0));
        turned_last = peek(counts(head, step, 1));
    };
    const auto wait_for_turned = [&](int head, int step) {
        if (all_turned) return;
        all_turned = mbarrier_test_wait(memory.all_turned(), 0);
        if (!all_turned && min(turned_first, turned_last) < kColumns) {
            wait_for_count(counts(head, step, 0), kColumns);
            wait_for_count(counts(head, step, 1), kColumns);
        }
        if (!all_turned) fence_between();
        fence_async_global();
    };
    const auto announce = [&](const Fp8FlashTile& tile, uint32_t bytes) {
        const Fp8Place<Shape::kQueryStages> at(tile_count);
        mbarrier_wait(memory.query_empty(at.stage), at.parity ^ 1);
        memory.tile(tile_count) = tile;
        mbarrier_arrive_expect(memory.query_full(at.stage), bytes);
        ++tile_count;
        return at.stage;
    };
    for (Fp8FlashScheduler<Shape> scheduler; scheduler.more(p); scheduler.next(p)) {
        Fp8FlashTile tile = scheduler.tile(p);
        if (tile.steps == 0) {
            scheduler.fetch(p);
            announce(tile, 0);
            continue;
        }
        const int key_head = Fp8FlashScheduler<Shape>::quotient(tile.head, p.heads_per_key_head);
        const auto load_keys = [&](int step) {
            Fp8StepScales scales;
            if constexpr (Shape::kBlockScales) {
                const int scale_at = p.key_grid.at(tile.batch, step * Shape::kKeys, key_head);
                scales.keys = p.key_scales[scale_at];
                scales.value_log = p.value_scales[scale_at];  // its logarithm once the wait is over
            }
            mbarrier_wait(memory.keys_empty(keys_at.stage), keys_at.parity ^ 1);
            if constexpr (Shape::kBlockScales) {
                scales.value_log = log2f(scales.value_log);
                scales.value_inverse = Exp2()(-scales.value_log);
                scales.unused = 0.0f;
                memory.step_scales(keys_at.stage) = scales;
            }
            mbarrier_arrive_expect(memory.keys_full(keys_at.stage), Shape::kKeyBytes);
            tma_load_5d(
                memory.keys(keys_at.stage), keys, memory.keys_full(keys_at.stage), 0, step * Shape::kKeys, 0, key_head,
                tile.batch);
            keys_at.advance();
        };
        load_keys(tile.steps - 1);
        if constexpr (!Shape::kBlockScales) {
            // Here and not where scores are used: consumers would wait for memory at the start of each tile.
            const int scale_at = p.key_grid.at(tile.batch, 0, key_head);
            const float query_scale = p.query_scales[p.query_grid.at(tile.batch, 0, tile.head)];
            tile.factor = p.scale * query_scale * p.key_scales[scale_at];
            tile.value_scale = p.value_scales[scale_at];
        }
        const int query = announce(tile, Shape::kQueryBytes);
        tma_load_5d(
            memory.query(query), queries, memory.query_full(query), 0, tile.first_query, 0, tile.head, tile.batch);
        if constexpr (Shape::kShared) ask_for_turned(tile.batch * p.key_heads + key_head, tile.steps - 1);
        for (int step = tile.steps - 1; step >= 0; --step) {
            // As late as the answer allows: who has a long tile shall not take another long one meanwhile.
            if (step == 0) scheduler.fetch(p);
            if (step > 0) load_keys(step - 1);
            if constexpr (Shape::kShared) wait_for_turned(tile.batch * p.key_heads + key_head, step);
            const uint32_t come =
                Shape::kShared ? memory.values_full(values_at.stage) : memory.raw_full(values_at.stage);
            mbarrier_wait(memory.values_empty(values_at.stage), values_at.parity ^ 1);
            mbarrier_arrive_expect(come, Shape::kValueBytes);
#pragma unroll
            for (int piece = 0; piece < Shape::kKeys / Shape::kValueRow; ++piece) {
                const uint32_t to = memory.values(values_at.stage) + piece * Shape::kValuePitch;
                const int key = step * Shape::kKeys + piece * Shape::kValueRow;
                if constexpr (Shape::kShared) {
                    tma_load(to, values, come, key, (tile.batch * p.key_heads + key_head) * Shape::kHeadDim);
                } else {
                    tma_load_5d(to, values, come, 0, key, 0, key_head, tile.batch);
                }
            }
            if constexpr (Shape::kShared) {
                if (step > 0) ask_for_turned(tile.batch * p.key_heads + key_head, step - 1);
            }
            values_at.advance();
        }
    }
    announce({0, 0, 0, -1, 1.0f, 1.0f}, 0);
    if constexpr (!Shape::kShared) {
        mbarrier_wait(memory.values_empty(values_at.stage), values_at.parity ^ 1);
        memory.ends(values_at.stage) = 1;
        mbarrier_arrive(memory.raw_full(values_at.stage));
    }
}

/// Transpose the values of all tiles of this block. `warp` counts the transposers.
template <class Shape>
__device__ __forceinline__ void transpose_fp8_flash(const Fp8FlashMemory<Shape>& memory, int warp, int lane) {
    for (RingPosition<Shape::kValueStages> at;; at.advance()) {
        mbarrier_wait(memory.raw_full(at.stage), at.parity);
        if (memory.ends(at.stage) != 0) break;
        constexpr int kSide = Shape::kValueRow;
        transpose_squares<
            kSide, Shape::kValueBytes / (kSide * kSide), Shape::kTransposers, std::min(Shape::kExchanges, kSide / 32)>(
            memory.values(at.stage), warp, lane);
        fence_async_shared();  // what ordinary stores wrote, wgmma reads
        __syncwarp();
        if (lane == 0) mbarrier_arrive(memory.values_full(at.stage));
    }
}

constexpr int kPieceBarrier = 8;  // of the transposers; those before are the consumers'

/// Transpose pieces of V into the workspace until all blocks together have done all of it. A block takes the next piece whenever
/// it has room for one, and never waits for another block before it is through: so no piece waits for a block that does not run.
template <class Shape>
__device__ __forceinline__ void transpose_fp8_pieces(
    const Fp8FlashMemory<Shape>& memory, const TensorMap& raw, const TensorMap& turned, const Fp8FlashProblem& p,
    int warp, int lane) {
    constexpr int kStages = Shape::kPieceStages;
    constexpr int kThreads = 96;
    const bool leader = warp == 0 && lane == 0;
    unsigned taken = 0;  // asked for a piece ahead
    const auto take = [&](uint32_t count) {
        const Fp8Place<kStages> at(count);
        Fp8Piece& piece = memory.announced_piece(count);
        if (taken >= static_cast<unsigned>(p.pieces.count)) {
            piece.head = -1;
            mbarrier_arrive(memory.raw_full(at.stage));
            return;
        }
        // Whatever a block has taken it transposes, so that nobody waits for a piece in vain: also the one asked for here.
        piece = p.pieces.template piece<Shape::kHeadDim / kPieceSide>(static_cast<int>(taken));
        mbarrier_arrive_expect(memory.raw_full(at.stage), Shape::kPieceBytes);
        tma_load_5d(
            memory.piece(at.stage), raw, memory.raw_full(at.stage), 0, piece.block * kPieceSide, piece.columns,
            piece.head % p.key_heads, piece.head / p.key_heads);
        taken = fetch_add(p.pieces.taken, 1u);
    };
    const auto publish = [&](uint32_t count) {  // its store is done
        const Fp8Piece& piece = memory.announced_piece(count);
        fence_async_global();
        fence_between();
        raise_count_relaxed(p.pieces.ready + piece.head * p.pieces.blocks + piece.block);
        raise_count_relaxed(p.pieces.done);
    };
    if (leader) {
        taken = fetch_add(p.pieces.taken, 1u);
        for (int count = 0; count < kStages; ++count) take(count);
    }
    uint32_t count = 0;
    for (;; ++count) {
        const Fp8Place<kStages> at(count);
        mbarrier_wait(memory.raw_full(at.stage), at.parity);
        if (warp_uniform(memory.announced_piece(count).head) < 0) break;
        if (leader && count > 0) {
            tma_store_wait_read<0>();  // the piece before: its stage may be written again
            take(count - 1 + kStages);
        }
        __syncwarp();
        transpose_squares<kPieceSide, 1, Shape::kTransposers, Shape::kExchanges>(memory.piece(at.stage), warp, lane);
        fence_async_shared();
        named_barrier_sync(kPieceBarrier, kThreads);
        if (leader) {
            const Fp8Piece& piece = memory.announced_piece(count);
            tma_store(
                turned, memory.piece(at.stage), piece.block * kPieceSide,
                piece.head * Shape::kHeadDim + piece.columns * kPieceSide);
            tma_store_commit();
            bulk_wait_done<1>();
            if (count > 0) publish(count - 1);
        }
        __syncwarp();
    }
    if (leader) {
        bulk_wait_done<0>();
        if (count > 0) publish(count - 1);
        wait_for_count(p.pieces.done, p.pieces.count);
        mbarrier_arrive(memory.all_turned());
    }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash_fp8(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ TensorMap raw,
    const __grid_constant__ TensorMap turned, const __grid_constant__ Fp8FlashProblem p) {
    const Fp8FlashMemory<Shape> memory = {swizzled_shared(), shared_address(swizzled_shared())};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kConsumerWarps = Shape::kConsumerThreads / 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kQueryStages; ++stage) {
            mbarrier_init(memory.query_full(stage), 1);
            mbarrier_init(memory.query_empty(stage), kConsumerWarps);
        }
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(memory.keys_full(stage), 1);
            mbarrier_init(memory.keys_empty(stage), kConsumerWarps);
        }
        for (int stage = 0; stage < Shape::kRawBarriers; ++stage) mbarrier_init(memory.raw_full(stage), 1);
        for (int stage = 0; stage < Shape::kValueStages; ++stage) {
            memory.ends(stage) = 0;
            mbarrier_init(memory.values_full(stage), Shape::kShared ? 1 : Shape::kTransposers);
            mbarrier_init(memory.values_empty(stage), kConsumerWarps);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(keys);
        tma_prefetch_map(values);
    }
    __syncthreads();
    grid_dependency_wait();
    grid_dependency_release();

    if (warp < kConsumerWarps) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        consume_fp8_flash<Shape>(memory, p, warp / 4, warp % 4, lane);
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp > kConsumerWarps) {
            const int transposer = warp - kConsumerWarps - 1;
            if constexpr (Shape::kShared) {
                transpose_fp8_pieces<Shape>(memory, raw, turned, p, transposer, lane);
            } else {
                transpose_fp8_flash<Shape>(memory, transposer, lane);
            }
        } else if (lane == 0) {
            produce_fp8_flash<Shape>(memory, queries, keys, values, p);
        }
        __syncwarp();  // the warp ends as a whole
    }
}

// Host side of attention forward from e4m3 on wgmma (attention/fp8_forward.h): tensor maps, scales, order of tiles, grid.

#ifndef EARLY_START
#error "EARLY_START is a tunable of the kernel file: 0 starts after the launch before, 1 beside its end"
#endif

/// How blocks come by their tiles.
enum class Fp8TileOrder {
    kPersistent,  // as many blocks as multiprocessors, equal shares: causal tiles in pairs of a long and a short one
    kCount,  // as many blocks, whoever is free takes the longest tile left: four more bytes of workspace, else kPersistent
    kOwnBlocks,  // a block per tile, the longest first: the hardware balances, but tiles no longer overlap
};

/// One call of kernel.h.
struct Fp8FlashArguments {
    const void *q, *k, *v;
    const float *q_scale, *k_scale, *v_scale;
    void* o;
    float* lse;
    int batch, seqlen_q, seqlen_k, heads_q, heads_k, scales;
    bool causal;
    float scale;      // softmax_scale * log2(e)
    void* workspace;  // for transposed values
    size_t workspace_bytes;

    static constexpr int kPerTensor = 0, kPerHead = 1, kPerBlock = 2;

    /// The scales of an operand of so many tokens and heads.
    ScaleGrid grid(int tokens, int heads) const {
        if (scales == kPerTensor) return {0, 0, 0};
        if (scales == kPerHead) return {heads, 0, 1};
        return {ceil_div(tokens, kScaleBlock) * heads, heads, 1};
    }
};

/// Launch one instance. Returns 0 or the runtime's or the driver's error.
template <class Shape>
int launch_fp8_flash(const Fp8FlashArguments& a, Fp8TileOrder order, int multiprocessors, void* queue) {
    // Bytes travel in pairs.
    const HeadTensor queries = {a.q, a.batch, a.seqlen_q, a.heads_q, Shape::kHeadDim / 2};
    const HeadTensor keys = {a.k, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim / 2};
    const HeadTensor values = {a.v, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim / 2};
    TensorMap query_map, key_map, value_map, raw_map, turned_map;
    Fp8Pieces pieces{};
    int error = encode_head_tensor_map(&query_map, queries, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&key_map, keys, Shape::kKeys);
    unsigned* count = nullptr;
    if (error == 0 && Shape::kShared) {
        const TransposedValues t = {a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim};
        const Matrix rows = {a.workspace, t.rows(), t.row(), 1};
        error = encode_tensor_map(&value_map, rows, Shape::kHeadDim, Shape::kValueRow);
        if (error == 0) error = encode_head_tensor_map(&raw_map, values, kPieceSide, 1);
        if (error == 0) error = encode_tensor_map(&turned_map, rows, kPieceSide, kPieceSide);
        unsigned* const numbers = reinterpret_cast<unsigned*>(static_cast<uint8_t*>(a.workspace) + t.bytes());
        if (order == Fp8TileOrder::kCount) count = numbers;
        pieces.taken = numbers + 1;
        pieces.done = reinterpret_cast<int*>(numbers + 2);
        pieces.ready = reinterpret_cast<int*>(numbers + 3);
        pieces.heads = a.batch * a.heads_k;
        pieces.blocks = t.blocks();
        pieces.count = pieces.heads * pieces.blocks * (Shape::kHeadDim / kPieceSide);
        if (error == 0) {
            error = launch_cluster(
                clear_numbers, ceil_div(t.numbers(), kClearThreads), kClearThreads, 1, 0, false, queue, numbers,
                t.numbers());
        }
    } else if (error == 0) {
        error = encode_head_tensor_map(&value_map, values, Shape::kValueRow, 0, Shape::kValueRow / 2);
        raw_map = turned_map = value_map;  // not used
        if (error == 0 && order == Fp8TileOrder::kCount && a.workspace_bytes >= sizeof(unsigned)) {
            count = static_cast<unsigned*>(a.workspace);
            error = launch_cluster(clear_numbers, 1, 32, 1, 0, false, queue, count, 1);
        }
    }
    if (error != 0) return error;
    if (order == Fp8TileOrder::kCount && count == nullptr) order = Fp8TileOrder::kPersistent;

    Fp8FlashProblem p{};
    p.o = static_cast<uint8_t*>(a.o);
    p.lse = a.lse;
    p.query_scales = a.q_scale;
    p.key_scales = a.k_scale;
    p.value_scales = a.v_scale;
    p.query_grid = a.grid(a.seqlen_q, a.heads_q);
    p.key_grid = a.grid(a.seqlen_k, a.heads_k);
    p.batch = a.batch;
    p.queries = a.seqlen_q;
    p.keys = a.seqlen_k;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.key_heads = a.heads_k;
    p.causal = a.causal;
    p.scale = a.scale;
    p.tiles = ceil_div(a.seqlen_q, Shape::kQueries);
    p.half = ceil_div(p.tiles, 2);
    const long long heads = static_cast<long long>(a.batch) * a.heads_q;
    p.pairs = a.causal && order == Fp8TileOrder::kPersistent;
    const long long units = heads * (p.pairs ? p.half : p.tiles);
    p.section = 1;
    if (a.causal && !p.pairs) {
        // So many heads that their keys and values stay in L2, so that all their long tiles come before their short ones.
        constexpr long long kRoom = 32 << 20;
        const long long bytes = 2LL * a.seqlen_k * Shape::kHeadDim;
        p.section = static_cast<int>(std::min(heads, std::max(1LL, kRoom / bytes) * p.heads_per_key_head));
    }
    if (units > 0x7fffffffLL || static_cast<long long>(p.section) * p.tiles > 0x7fffffffLL) return kUnsupportedShape;
    p.in_section = p.section * p.tiles;
    p.units = static_cast<int>(units);
    const int blocks = order == Fp8TileOrder::kOwnBlocks ? p.units : std::min(p.units, multiprocessors);
    p.taken = count;
    pieces.chunk = std::max(1, std::min(p.section, blocks) / p.heads_per_key_head);
    p.pieces = pieces;
    return launch_cluster(
        wgmma_flash_fp8<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, queue, query_map,
        key_map, value_map, raw_map, turned_map, p);
}

}  // namespace attention
