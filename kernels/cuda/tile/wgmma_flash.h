// SPDX-License-Identifier: MIT
// The device code of attention forward on wgmma: TMA fills a ring of key and value tiles, consumer warpgroups multiply.
//
// Roles in a block: kGroups warpgroups with 64 query rows each, then one thread that drives TMA. They meet at mbarriers: full
// (the tile's bytes have landed) and empty (every consumer warp has read it), for the queries and for each stage of the keys
// and of the values. See flash_attention/wgmma_tma.cu for the algorithm, the instances and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/grid_dependency.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
#include "ptx/tma_5d.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "ptx/wgmma_16bit.h"
#include "tile/attention_mma.h"
#include "tile/swizzle.h"
#include "tile/wgmma_flash_shape.h"
#include "tile/wgmma_shape.h"

constexpr int kFlashTurnBarrier = 1;   // and those after it, one per consumer warpgroup

/// Fill the ring for all tiles of this block. One thread. Keys run one step ahead of values, as the consumers do.
template <class Shape>
__device__ __forceinline__ void produce_flash(
    const FlashMemory<Shape>& memory, const TensorMap& queries, const TensorMap& keys, const TensorMap& values,
    const FlashProblem& p) {
    RingPosition<Shape::kStages> key_at, value_at;
    uint32_t query_parity = 0;
    for (FlashWalk<Shape> walk; walk.more(p); walk.next(p)) {
        const FlashTile tile = walk.tile(p);
        if (tile.steps == 0) continue;
        const int key_head = tile.head / p.heads_per_key_head;
        const auto load_keys = [&](int step) {
            mbarrier_wait(memory.keys_empty(key_at.stage), key_at.parity ^ 1);
            const uint32_t full = memory.keys_full(key_at.stage);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            tma_load_5d(memory.keys(key_at.stage), keys, full, 0, step * Shape::kKeys, 0, key_head, tile.batch);
            key_at.advance();
        };
        mbarrier_wait(memory.query_empty(), query_parity ^ 1);
        mbarrier_arrive_expect(memory.query_full(), Shape::kQueryBytes);
        tma_load_5d(memory.query(), queries, memory.query_full(), 0, tile.first_query, 0, tile.head, tile.batch);
        query_parity ^= 1;
        load_keys(tile.steps - 1);
        for (int step = tile.steps - 1; step >= 0; --step) {
            if (step > 0) load_keys(step - 1);
            mbarrier_wait(memory.values_empty(value_at.stage), value_at.parity ^ 1);
            const uint32_t full = memory.values_full(value_at.stage);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            tma_load_5d(memory.values(value_at.stage), values, full, 0, step * Shape::kKeys, 0, key_head, tile.batch);
            value_at.advance();
        }
    }
}

/// The 64 query rows of a warpgroup as the A operand: where they lie in shared memory, or this thread's fragments of them.
template <class Shape, bool kHeld = Shape::kHeldQuery>
struct FlashQuery {
    uint64_t operand;

    __device__ __forceinline__ void load(uint32_t rows, int, int) { operand = wgmma_operand(rows); }
    __device__ __forceinline__ void multiply(float (&scores)[Shape::kKeys / 2], int c, uint64_t keys) const {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(
            scores, operand + c / 4 * (Shape::kQueryPitch >> 4) + c % 4 * 2, keys, c > 0);
    }
};
template <class Shape>
struct FlashQuery<Shape, true> {
    uint32_t fragments[Shape::kHeadDim / 16][4];

    __device__ __forceinline__ void load(uint32_t rows, int warp, int lane) {
#pragma unroll
        for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
            ldmatrix_x4(fragments[c], rows + c / 4 * Shape::kQueryPitch +
                                          Swizzle<8>::offset(warp * 16 + lane % 16, c % 4 * 2 + lane / 16));
        }
    }
    __device__ __forceinline__ void multiply(float (&scores)[Shape::kKeys / 2], int c, uint64_t keys) const {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(scores, fragments[c], keys, c > 0);
    }
};

/// Issue scores = Q K^T.
template <class Shape>
__device__ __forceinline__ void issue_scores(
    float (&scores)[Shape::kKeys / 2], const FlashQuery<Shape>& query, uint32_t keys) {
    const uint64_t b = wgmma_operand(keys);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
        query.multiply(scores, c, b + c / 4 * (Shape::kKeyPitch >> 4) + c % 4 * 2);
    }
}

/// Issue out += P V.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], const uint32_t (&probabilities)[Shape::kKeys / 16][4], uint32_t values) {
    const uint64_t b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(out, probabilities[i], b + i * 128, true);
    }
}

/// Mask scores from key `limits[row]` of the tile on.
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&scores)[kCount], const int (&limits)[2], int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= limits[i % 4 / 2]) scores[i] = -INFINITY;
    }
}

/// SoftmaxRow::raise, but the maximum stays as it is while no score exceeds it by more than kSlack in the exponent: sums
/// and probabilities then grow up to 2^kSlack, which costs no precision, and most steps need no correction.
template <int kSlack>
__device__ __forceinline__ float raise_lazily(SoftmaxRow& row, float tile_maximum, float scale) {
    const float excess = (tile_maximum - row.maximum) * scale;   // infinite at the first key, NaN before it
    if (excess <= static_cast<float>(kSlack)) return 1.0f;
    return row.raise(tile_maximum, scale, Exp2());
}

/// The online softmax of a thread's two rows: scores become probabilities, `corrections` what everything before is to be
/// multiplied with.
template <int kSlack, int kCount>
__device__ __forceinline__ void softmax_scores(
    float (&scores)[kCount], SoftmaxRow (&rows)[2], float (&corrections)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float largest = scores[2 * half];
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
            largest = fmaxf(largest, fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
        }
        largest = quad_maximum(largest);
        corrections[half] = kSlack > 0 ? raise_lazily<kSlack>(rows[half], largest, scale)
                                       : rows[half].raise(largest, scale, Exp2());
    }
    const float shifts[2] = {rows[0].shift(scale), rows[1].shift(scale)};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        scores[i] = Exp2()(scores[i] * scale - shifts[i % 4 / 2]);
        rows[i % 4 / 2].sum += scores[i];   // this lane's share: the quad adds up at the end
    }
}

/// Multiply accumulators with what softmax_scores left; with slack that is 1 for most warps in most steps.
template <int kSlack, int kCount>
__device__ __forceinline__ void correct_rows(float (&out)[kCount], const float (&corrections)[2]) {
    if (kSlack > 0 && !__any_sync(0xffffffffu, corrections[0] != 1.0f || corrections[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] *= corrections[i % 4 / 2];
}

/// Exchange between the four lanes of a quad: lane t gets as d[i] what lane i had as d[t].
__device__ __forceinline__ void transpose_quad(uint32_t (&d)[4], int lane) {
    const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? d[i] : d[i + 1], 1);
        if (odd) d[i] = got;
        else d[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? d[i] : d[i + 2], 2);
        if (upper) d[i] = got;
        else d[i + 2] = got;
    }
}

/// Normalise and write the two rows of which this thread holds every fourth pair of columns; the first is `query`.
template <class Shape>
__device__ __forceinline__ void store_rows(
    const FlashProblem& p, const FlashTile& tile, int query, float (&out)[Shape::kHeadDim / 2], SoftmaxRow (&rows)[2],
    int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        SoftmaxRow& state = rows[half];
        state.sum = quad_sum(state.sum);
        const float inverse = state.inverse();
        const int row = query + 8 * half;
        const bool valid = row < p.queries;
        if (valid && lane % 4 == 0) {
            p.lse[(static_cast<size_t>(tile.batch) * p.heads + tile.head) * p.queries + row] = state.lse(p.scale);
        }
        uint8_t* const to =
            p.o + ((static_cast<size_t>(tile.batch) * p.queries + row) * p.heads + tile.head) * (Shape::kHeadDim * 2) +
            lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 32; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* const pair = out + 16 * i + 4 * j + 2 * half;
                packed[j] = Shape::Element::pack(pair[0] * inverse, pair[1] * inverse);
            }
            transpose_quad(packed, lane);   // so that a lane writes 16 bytes in one piece
            if (valid) *reinterpret_cast<uint4*>(to + 64 * i) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}

/// All tiles of one consumer warpgroup. The scores of the next step are on their way while the values of the last one are
/// multiplied.
template <class Shape>
__device__ __forceinline__ void consume_flash(
    const FlashMemory<Shape>& memory, const FlashProblem& p, int group, int warp, int lane) {
    RingPosition<Shape::kStages> key_at, value_at;
    uint32_t query_parity = 0;
    FlashQuery<Shape> query;
    const int own_turn = kFlashTurnBarrier + group;
    const int next_turn = kFlashTurnBarrier + (group + 1) % Shape::kGroups;
    if (Shape::kTurns && group == Shape::kGroups - 1) named_barrier_arrive(next_turn, 256);   // the first turn is 0's
    const auto release = [&](uint32_t barrier) {
        if (lane == 0) mbarrier_arrive(barrier);
    };

    for (FlashWalk<Shape> walk; walk.more(p); walk.next(p)) {
        const FlashTile tile = walk.tile(p);
        const int first_row = tile.first_query + group * 64;   // of the warpgroup
        const int row = first_row + warp * 16 + lane / 4;      // of this thread, and eight further on its other one
        float out[Shape::kHeadDim / 2];
        SoftmaxRow rows[2];
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;

        if (tile.steps > 0) {
            // How many keys the warpgroup's first row sees; each further one sees one more, up to the end.
            const int seen = p.causal ? min(p.keys, first_row + 1 + p.keys - p.queries) : p.keys;
            const auto softmax = [&](float (&scores)[Shape::kKeys / 2], float (&corrections)[2], int step) {
                const int first_key = step * Shape::kKeys;
                if (first_key + Shape::kKeys > seen) {
                    int limits[2];
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int last = p.causal ? row + 8 * half + 1 + p.keys - p.queries : p.keys;
                        limits[half] = min(p.keys, last) - first_key;
                    }
                    mask_scores(scores, limits, lane);
                }
                softmax_scores<Shape::kSlack>(scores, rows, corrections, p.scale);
            };
            uint32_t probabilities[Shape::kKeys / 16][4];
            const auto pack = [&](const float (&scores)[Shape::kKeys / 2]) {
#pragma unroll
                for (int i = 0; i < Shape::kKeys / 4; ++i) {
                    probabilities[i / 4][i % 4] = Shape::Element::pack(scores[2 * i], scores[2 * i + 1]);
                }
            };
            // What a step leaves for the next one: probabilities to be packed, and what out is yet to be multiplied with.
            float scores[Shape::kKeys / 2], corrections[2];
            const auto finish_output = [&](bool issued) {
                wgmma_wait<0>();
                wgmma_results(out);
                if (issued) {
                    release(memory.values_empty(value_at.stage));
                    value_at.advance();
                }
                wgmma_results(scores);   // packed only now: until here the product read the last probabilities
                pack(scores);
                if (!Shape::kRescaleEarly && issued) correct_rows<Shape::kSlack>(out, corrections);
            };

            mbarrier_wait(memory.query_full(), query_parity);
            query_parity ^= 1;
            query.load(memory.query() + group * (64 * 128), warp, lane);
            if constexpr (Shape::kHeldQuery) {
                __syncwarp();
                release(memory.query_empty());
            }
            mbarrier_wait(memory.keys_full(key_at.stage), key_at.parity);
            wgmma_fence();
            issue_scores<Shape>(scores, query, memory.keys(key_at.stage));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_results(scores);
            release(memory.keys_empty(key_at.stage));
            key_at.advance();
            softmax(scores, corrections, tile.steps - 1);
            for (int step = tile.steps - 2; step >= 0; --step) {
                // Waiting for keys first also keeps the compiler from waiting for out before the exponentials.
                mbarrier_wait(memory.keys_full(key_at.stage), key_at.parity);
                finish_output(step < tile.steps - 2);
                if constexpr (Shape::kTurns) named_barrier_sync(own_turn, 256);
                wgmma_fence();
                issue_scores<Shape>(scores, query, memory.keys(key_at.stage));
                wgmma_commit();
                if constexpr (Shape::kRescaleEarly) correct_rows<Shape::kSlack>(out, corrections);
                mbarrier_wait(memory.values_full(value_at.stage), value_at.parity);
                wgmma_fence();
                issue_output<Shape>(out, probabilities, memory.values(value_at.stage));
                wgmma_commit();
                if constexpr (Shape::kTurns) named_barrier_arrive(next_turn, 256);
                wgmma_wait<1>();
                wgmma_results(scores);
                release(memory.keys_empty(key_at.stage));
                key_at.advance();
                softmax(scores, corrections, step);
            }
            if constexpr (!Shape::kHeldQuery) release(memory.query_empty());
            mbarrier_wait(memory.values_full((value_at.stage + (tile.steps > 1)) % Shape::kStages),
                          value_at.parity ^ (tile.steps > 1 && value_at.stage == Shape::kStages - 1));
            finish_output(tile.steps > 1);
            if constexpr (Shape::kRescaleEarly) correct_rows<Shape::kSlack>(out, corrections);
            wgmma_fence();
            issue_output<Shape>(out, probabilities, memory.values(value_at.stage));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_results(out);
            release(memory.values_empty(value_at.stage));
            value_at.advance();
        }
        store_rows<Shape>(p, tile, row, out, rows, lane);
    }
    if (Shape::kTurns && group == 0) named_barrier_sync(own_turn, 256);   // takes the turn that nobody needs
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ FlashProblem p) {
    const FlashMemory<Shape> memory = {shared_address(swizzled_shared())};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;

    if (threadIdx.x == 0) {
        constexpr int kConsumerWarps = Shape::kConsumerThreads / 32;
        mbarrier_init(memory.query_full(), 1);
        mbarrier_init(memory.query_empty(), kConsumerWarps);
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(memory.keys_full(stage), 1);
            mbarrier_init(memory.keys_empty(stage), kConsumerWarps);
            mbarrier_init(memory.values_full(stage), 1);
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

    if (warp < Shape::kConsumerThreads / 32) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        consume_flash<Shape>(memory, p, warp / 4, warp % 4, lane);
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp == Shape::kConsumerThreads / 32 && lane == 0) produce_flash<Shape>(memory, queries, keys, values, p);
        __syncwarp();   // the warp ends as a whole
    }
}
