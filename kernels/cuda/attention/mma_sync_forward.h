// SPDX-License-Identifier: MIT
// FlashAttention-2 forward on mma.sync: where a block works, and its producer, main loop and epilogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/attention_mma.h"
#include "common/wide_rows.h"
#include "online_softmax.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"
#include "split_kv.h"

namespace attention {

// Where a block of the mma.sync attention forward works: arguments, rows of a tile, steps of keys.

struct ForwardArguments {
    const uint8_t* q;  // [batch, seqlen_q, heads_q, head_dim]
    const uint8_t* k;  // [batch, seqlen_k, heads_k, head_dim]
    const uint8_t* v;
    uint8_t* o;
    float* lse;            // [batch, heads_q, seqlen_q]
    SplitWorkspace parts;  // used where splits > 1
    int batch, seqlen_q, seqlen_k, heads_q, heads_k;
    int query_tiles, splits;
    int pack;  // log2 of the heads that share a tile (tiles with kPacked)
    bool causal;
    float scale;  // softmax_scale * log2(e)
};

/// Where one block works. A sequence's rows are its queries; with kPacked its pairs of query and head.
struct ForwardPlace {
    int head;                       // query head, with kPacked the first of those that share the tile
    int first_row, rows;            // of the tile: where it begins in the sequence, and how many are valid
    int queries, keys;              // of the sequence
    size_t query_start, key_start;  // the sequence's first row in q and o, and in k and v
    size_t lse_start;               // of the sequence's first query and `head` in lse
    int lse_pitch;                  // between heads in lse

    /// Query of a row of the tile.
    template <class Tile>
    __device__ __forceinline__ int query(const ForwardArguments& a, int row) const {
        return Tile::kPacked ? (first_row + row) >> a.pack : first_row + row;
    }
    /// How far a row's head is behind `head`.
    template <class Tile>
    __device__ __forceinline__ int head_of(const ForwardArguments& a, int row) const {
        return Tile::kPacked ? (first_row + row) & ((1 << a.pack) - 1) : 0;
    }
    /// A row of the tile as a row of [.., heads_q] in q and o.
    template <class Tile>
    __device__ __forceinline__ size_t position(const ForwardArguments& a, int row) const {
        return (query_start + query<Tile>(a, row)) * a.heads_q + head + head_of<Tile>(a, row);
    }
    template <class Tile>
    __device__ __forceinline__ size_t lse_position(const ForwardArguments& a, int row) const {
        return lse_start + static_cast<size_t>(head_of<Tile>(a, row)) * lse_pitch + query<Tile>(a, row);
    }
    /// Causal: how many keys a row sees, which may be none, negative, or more than there are.
    template <class Tile>
    __device__ __forceinline__ int seen(const ForwardArguments& a, int row) const {
        return query<Tile>(a, row) + 1 + keys - queries;
    }
};

template <typename Tile>
__device__ __forceinline__ ForwardPlace forward_place(const ForwardArguments& a) {
    // Hidden from the compiler: it would keep what the prologue computed alive, in spilled registers, for the epilogue
    // instead of computing it again.
    int block = static_cast<int>(blockIdx.x);
    asm volatile("" : "+r"(block));
    const int in_head = block % a.query_tiles, head = block / a.query_tiles;
    const int pack = Tile::kPacked ? a.pack : 0, heads = a.heads_q >> pack;
    const int batch = head / heads;
    ForwardPlace w;
    w.head = head % heads << pack;
    // Causal tiles near the end see most keys: start them first, so that short ones fill the last round.
    w.first_row = (a.causal ? a.query_tiles - 1 - in_head : in_head) * Tile::kQueries;
    w.rows = min(Tile::kQueries, (a.seqlen_q << pack) - w.first_row);
    w.queries = a.seqlen_q;
    w.keys = a.seqlen_k;
    w.query_start = static_cast<size_t>(batch) * a.seqlen_q;
    w.key_start = static_cast<size_t>(batch) * a.seqlen_k;
    w.lse_start = (static_cast<size_t>(batch) * a.heads_q + w.head) * a.seqlen_q;
    w.lse_pitch = a.seqlen_q;
    return w;
}

/// Which key tiles one block takes: its part of those that the last of its rows sees.
template <typename Tile>
__device__ __forceinline__ KvRange forward_steps(const ForwardArguments& a, const ForwardPlace& place) {
    // Causal: query i sees keys j <= i + keys - queries.
    const int seen = place.seen<Tile>(a, place.rows - 1);
    const int steps = ceil_div(a.causal ? max(0, min(place.keys, seen)) : place.keys, Tile::kKeys);
    return kv_range(steps, ceil_div(steps, a.splits), static_cast<int>(blockIdx.y));
}

// The device code of FlashAttention-2 forward on mma.sync: one block computes one tile of query rows of one head.
//
// See flash_attention/mma_sync.cu for the algorithm, the configurations and the launch.

/// Tile shape: kWarps x (16 * kRowTiles) query rows by kKeys keys. With kQueryInRegisters the A fragments of Q stay in
/// registers; else they are read from shared memory for every key tile. kBlocks blocks share a multiprocessor. kStages 2:
/// room for the keys and values of two steps; 1: of one, where a step's values are copied under Q K^T and the next
/// step's keys under P V, at the price of a second barrier per step.
template <
    typename Element_, int kHeadDim_, int kWarps_, int kRowTiles_, int kKeys_, bool kQueryInRegisters_, int kBlocks_,
    int kStages_ = 2>
struct ForwardTile {
    using Element = Element_;
    using Rows = WideRows<kHeadDim_>;
    static constexpr int kHeadDim = kHeadDim_, kWarps = kWarps_, kRowTiles = kRowTiles_, kKeys = kKeys_;
    static constexpr bool kQueryInRegisters = kQueryInRegisters_;
    static constexpr int kBlocks = kBlocks_;
    static constexpr int kThreads = 32 * kWarps;
    static constexpr int kWarpQueries = 16 * kRowTiles;
    static constexpr int kQueries = kWarps * kWarpQueries;
    static constexpr int kColumnSteps = kHeadDim / 16, kKeyTiles = kKeys / 8, kOutTiles = kHeadDim / 8;
    static constexpr int kStages = kStages_;
    static constexpr bool kPacked = false;
    using Arguments = ForwardArguments;
    static constexpr int kQueryBytes = Rows::bytes(kQueries), kKeyBytes = Rows::bytes(kKeys);
    static constexpr int kSharedBytes = kQueryBytes + kStages * 2 * kKeyBytes;
    static_assert(kKeys % 16 == 0, "P V advances 16 keys at a time");
};

/// The same tile for rows that are pairs of a query and one of 2^pack heads which read the same keys, the heads of a query
/// one after the other: few queries of grouped heads then fill it.
template <class Tile>
struct PackedTile : Tile {
    static constexpr bool kPacked = true;
};

/// Mask scores from key `limits[row]` of the tile on.
template <int kRowTiles, int kKeyTiles>
__device__ __forceinline__ void mask_tile(
    float (&scores)[kRowTiles][kKeyTiles][4], const int (&limits)[kRowTiles][2], int lane) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if (8 * j + lane % 4 * 2 + e % 2 >= limits[r][e / 2]) scores[r][j][e] = -INFINITY;
            }
        }
    }
}

/// One warp's online softmax over a tile: turns scores into probabilities in place and rescales the output accumulators.
template <int kRowTiles, int kKeyTiles, int kOutTiles>
__device__ __forceinline__ void softmax_tile(
    float (&scores)[kRowTiles][kKeyTiles][4], float (&out)[kRowTiles][kOutTiles][4], SoftmaxRow (&rows)[kRowTiles][2],
    float scale) {
    float corrections[kRowTiles][2];
    bool raised = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = -INFINITY;
#pragma unroll
            for (int j = 0; j < kKeyTiles; ++j) {
                largest = fmaxf(largest, fmaxf(scores[r][j][2 * half], scores[r][j][2 * half + 1]));
            }
            corrections[r][half] = rows[r][half].raise(quad_maximum(largest), scale, Exp2());
            raised = raised || corrections[r][half] != 1.0f;
        }
    }
    // The longer the sequence, the rarer a new maximum in any of the warp's rows.
    if (__any_sync(0xffffffffu, raised)) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
            for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) out[r][j][e] *= corrections[r][e / 2];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            SoftmaxRow& row = rows[r][half];
            const float shift = row.shift(scale);
#pragma unroll
            for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& score = scores[r][j][2 * half + e];
                    score = Exp2()(score * scale - shift);
                    row.sum += score;  // this lane's share: the quad adds up at the end
                }
            }
        }
    }
}

/// Normalise and write: bf16/fp16 rows and LSE, or the fp32 part of a split.
template <typename Tile>
__device__ __forceinline__ void store_output(
    const typename Tile::Arguments& a, uint8_t* query_tile, float (&out)[Tile::kRowTiles][Tile::kOutTiles][4],
    SoftmaxRow (&rows)[Tile::kRowTiles][2]) {
    using Rows = typename Tile::Rows;
    const ForwardPlace place = forward_place<Tile>(a);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int warp_row = warp * Tile::kWarpQueries;
    const size_t part_row = static_cast<size_t>(blockIdx.y) * a.batch * a.seqlen_q * a.heads_q;
    __syncwarp();  // the other lanes' reads of the query rows that are written below
#pragma unroll
    for (int r = 0; r < Tile::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            SoftmaxRow& state = rows[r][half];
            state.sum = quad_sum(state.sum);
            const float inverse = state.inverse();
            const int row = warp_row + 16 * r + 8 * half + lane / 4;
            const bool valid = row < place.rows;
            const size_t output_row = place.position<Tile>(a, row);
            if (valid && lane % 4 == 0) {
                float& lse =
                    a.splits > 1 ? a.parts.lse[part_row + output_row] : a.lse[place.lse_position<Tile>(a, row)];
                lse = state.lse(a.scale);
            }
            if (a.splits > 1) {
                float* part = a.parts.o + (part_row + output_row) * Tile::kHeadDim + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < Tile::kOutTiles; ++j) {
                    const float2 pair = {out[r][j][2 * half] * inverse, out[r][j][2 * half + 1] * inverse};
                    if (valid) *reinterpret_cast<float2*>(part + 8 * j) = pair;
                }
            } else {
                // Through this warp's own rows of the query tile, so that whole rows leave in 16-byte pieces.
#pragma unroll
                for (int j = 0; j < Tile::kOutTiles; ++j) {
                    *reinterpret_cast<uint32_t*>(query_tile + Rows::offset(row, 16 * j) + lane % 4 * 4) =
                        Tile::Element::pack(out[r][j][2 * half] * inverse, out[r][j][2 * half + 1] * inverse);
                }
            }
        }
    }
    if (a.splits > 1) return;
    __syncwarp();
    constexpr int kChunks = Rows::kPitch / 16;
    uint8_t* const output = a.o + place.position<Tile>(a, 0) * Rows::kPitch;
#pragma unroll
    for (int i = 0; i < Tile::kWarpQueries * kChunks / 32; ++i) {
        const int row = warp_row + (i * 32 + lane) / kChunks, chunk = (i * 32 + lane) % kChunks * 16;
        const uint4 piece = *reinterpret_cast<const uint4*>(query_tile + Rows::offset(row, chunk));
        if (row < place.rows) {
            const size_t at = Tile::kPacked ? place.position<Tile>(a, row) - place.position<Tile>(a, 0)
                                            : static_cast<size_t>(row) * a.heads_q;
            *reinterpret_cast<uint4*>(output + at * Rows::kPitch + chunk) = piece;
        }
    }
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    flash_forward(const __grid_constant__ typename Tile::Arguments a) {
    using Element = typename Tile::Element;
    using Rows = typename Tile::Rows;
    constexpr int kRowTiles = Tile::kRowTiles, kColumnSteps = Tile::kColumnSteps;
    constexpr int kRowBytes = Rows::kPitch;

    const ForwardPlace place = forward_place<Tile>(a);
    if (place.rows <= 0) return;  // a block without a tile
    const KvRange steps = forward_steps<Tile>(a, place);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint32_t key_pitch = static_cast<uint32_t>(a.heads_k) * kRowBytes;
    const int key_head = place.head / (a.heads_q / a.heads_k);

    uint8_t* const shared = dynamic_shared();
    const uint32_t query_tile = shared_address(shared);
    const uint32_t key_tiles = query_tile + Tile::kQueryBytes;  // stage s: keys, then values

    // Byte offset in k and v of the key tile to copy next: kept as a running sum, since every register counts.
    size_t next = (place.key_start + static_cast<size_t>(steps.begin) * Tile::kKeys) * key_pitch + key_head * kRowBytes;
    constexpr bool kTwoStages = Tile::kStages == 2;
    const auto stage = [&](int step) { return key_tiles + (kTwoStages ? (step & 1) * 2 * Tile::kKeyBytes : 0); };
    const auto copy_keys = [&](int step) {
        Rows::template copy_async<Tile::kKeys, Tile::kThreads>(
            stage(step), a.k + next, key_pitch, place.keys - step * Tile::kKeys);
    };
    const auto copy_values = [&](int step) {
        Rows::template copy_async<Tile::kKeys, Tile::kThreads>(
            stage(step) + Tile::kKeyBytes, a.v + next, key_pitch, place.keys - step * Tile::kKeys);
        next += static_cast<size_t>(Tile::kKeys) * key_pitch;
    };
    const auto copy_next = [&](int step) {  // with one stage the keys alone
        copy_keys(step);
        if constexpr (kTwoStages) copy_values(step);
        cp_async_commit();
    };

    float out[kRowTiles][Tile::kOutTiles][4] = {};
    SoftmaxRow rows[kRowTiles][2];
    // nvcc 13.0 and 13.5 give only rows[0] what SoftmaxRow's members begin with, and zeros to the rest.
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) rows[r][half] = SoftmaxRow();
    }
    // This lane's ldmatrix addresses of Q.
    const auto query_lane = [&]() {
        const int thread = recomputed_thread();
        const int row = thread / 32 * Tile::kWarpQueries;
        return LaneRows(query_tile + row * kRowBytes + Rows::lane_offset_by_rows(thread % 32));
    };
    const auto load_query = [](uint32_t (&fragments)[kRowTiles][4], const LaneRows& from, int column_step) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) ldmatrix_x4(fragments[r], from.at(column_step * 32) + r * 16 * kRowBytes);
    };
    uint32_t query[Tile::kQueryInRegisters ? kColumnSteps : 1][kRowTiles][4];

    if (steps.begin < steps.end) {
        if constexpr (Tile::kPacked) {
            Rows::template gather_async<Tile::kQueries, Tile::kThreads>(
                query_tile, [&](int row) { return a.q + place.position<Tile>(a, row) * kRowBytes; }, place.rows);
        } else {
            Rows::template copy_async<Tile::kQueries, Tile::kThreads>(
                query_tile, a.q + place.position<Tile>(a, 0) * kRowBytes, static_cast<uint32_t>(a.heads_q) * kRowBytes,
                place.rows);
        }
        cp_async_commit();
        copy_next(steps.begin);
        if constexpr (Tile::kQueryInRegisters) {
            cp_async_wait<1>();
            __syncthreads();
            const LaneRows from = query_lane();
#pragma unroll
            for (int c = 0; c < kColumnSteps; ++c) load_query(query[c], from, c);
        }
    }

    // How many keys this warp's first row sees (each further query sees one more), up to the end of the sequence. A warp
    // behind the last row sees none: it copies and leaves the tensor cores to the others.
    const int first_row = warp * Tile::kWarpQueries;
    const int seen = first_row >= place.rows ? -Tile::kWarpQueries
                     : a.causal              ? place.seen<Tile>(a, first_row)
                                             : place.keys;
    for (int step = steps.begin; step < steps.end; ++step) {
        cp_async_wait<0>();
        __syncthreads();  // the step's tiles are there, and every warp is done with the other stage
        if constexpr (kTwoStages) {
            if (step + 1 < steps.end) copy_next(step + 1);
        } else {
            copy_values(step);
            cp_async_commit();
        }
        const int first_key = step * Tile::kKeys;
        const bool unseen =
            first_key >= seen + Tile::kWarpQueries - 1;  // beyond the causal limit of this warp's last row
        if (kTwoStages && unseen) continue;
        const int lane = recomputed_thread() % 32;
        const uint32_t tile = stage(step);
        const LaneRows keys(tile + Rows::lane_offset_by_columns(lane));
        const LaneRows values(tile + Tile::kKeyBytes + Rows::lane_offset_by_rows(lane));

        float scores[kRowTiles][Tile::kKeyTiles][4] = {};
        const LaneRows from = query_lane();
        if (kTwoStages || !unseen) {
#pragma unroll
            for (int c = 0; c < kColumnSteps; ++c) {
                const int held = Tile::kQueryInRegisters ? c : 0;
                if constexpr (!Tile::kQueryInRegisters) load_query(query[0], from, c);
                multiply_keys<Element, Rows>(scores, query[held], keys, c * 32);
            }
        }
        if constexpr (!kTwoStages) {
            cp_async_wait<0>();
            __syncthreads();  // the values are there, and every warp is done with the keys
            if (step + 1 < steps.end) copy_next(step + 1);
            if (unseen) continue;
        }

        if (first_key + Tile::kKeys > min(place.keys, seen)) {
            int limits[kRowTiles][2];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = lane / 4 + 16 * r + 8 * half;
                    const int limit = !Tile::kPacked ? seen + row
                                      : a.causal     ? place.seen<Tile>(a, first_row + row)
                                                     : place.keys;
                    limits[r][half] = min(place.keys, limit) - first_key;
                }
            }
            mask_tile(scores, limits, lane);
        }
        softmax_tile(scores, out, rows, a.scale);
#pragma unroll
        for (int keys16 = 0; keys16 < Tile::kKeys / 16; ++keys16) {
            uint32_t p[kRowTiles][4];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r) {
                pack_probabilities<Element>(p[r], scores[r][2 * keys16], scores[r][2 * keys16 + 1]);
            }
            multiply_values<Element, Rows>(out, p, values, keys16 * 16);
        }
    }

    store_output<Tile>(a, shared, out, rows);
}

}  // namespace attention
