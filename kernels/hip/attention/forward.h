// SPDX-License-Identifier: MIT
// FlashAttention forward on MFMA 16x16x16 for a workgroup of eight waves: 256 queries (128 for head_dim 256) of one head of one
// sequence. The kernels that include this say which; how the parts work together is described in flash_attention/mfma.hip.
//
//   head_dim  threads  queries  keys per tile  LDS bytes  workgroups per compute unit
//   64        512      256      128            65 536     1
//   128       512      256      64             65 536     1
//   256       512      128      32             65 536     1
#pragma once

#include "ceil_div.h"
#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/half.h"
#include "tile/half_products.h"
#include "tile/query_rows.h"
#include "tile/scores.h"
#include "tile/transpose.h"

#ifndef QUERY_TILES
#define QUERY_TILES 2
#endif

/// One head of one sequence. Pointers are to its first row; the pitches are bytes from a row to the next.
struct HeadRows {
    const uint16_t* q;
    const uint16_t* k;
    const uint16_t* v;
    uint16_t* o;
    float* lse;
    int queries, keys;
    int query_pitch, key_pitch;
    int causal;
    float scale;  // softmax_scale * log2(e)

    /// Keys that query `query` sees; not positive if none.
    __device__ __forceinline__ int visible(int query) const {
        if (!causal) return keys;
        const int limit = query + 1 + keys - queries;
        return limit < keys ? limit : keys;
    }
};

/// `QueryTiles_` of 16 queries each, per wave: as many as registers hold, or fewer.
template <int D_, int QueryTiles_ = D_ == 256 ? 1 : QUERY_TILES>
struct ForwardShape {
    static constexpr int kD = D_;
    static constexpr int kThreads = 512;
    static constexpr int kKeys = 8192 / kD;  // 16 KB of K and 16 KB of V
    static constexpr int kKeyTiles = kKeys / 16;
    static constexpr int kQueryTiles = QueryTiles_;
    static constexpr int kQueries = kThreads / kWaveSize * kQueryTiles * 16;
    static constexpr int kChunks = kD / kHalvesPerChunk;  // 16-byte chunks of a row
    static constexpr int kValueTiles = kD / 16;
    using Keys = KeyPanel<kD>;
    using Values = ValuePanel<kKeys>;
};

/// Two tiles of each, by turns.
template <class S>
struct alignas(16) KeyValueTiles {
    uint8_t k[2][S::kKeys * S::kD * 2];
    uint8_t v[2][S::kD * S::kKeys * 2];  // transposed
};

/// Four of the eight waves, one on each SIMD, are ahead of the others.
__device__ __forceinline__ bool is_ahead() { return wave_id() < 4; }

/// This thread's share of the tiles on their way to LDS: four 16-byte loads, of K in the waves ahead and of V in the others.
template <class S>
class TileLoader {
    static constexpr int kLoads = 4;
    static constexpr int kTasks = S::kThreads / 2;
    static constexpr int kKeyStep = kTasks / S::kChunks;
    static_assert(kTasks * kLoads == S::kKeys * S::kChunks, "one task per thread");

    const uint16_t* matrix_;  // first key of this head
    int pitch_, left_;
    int row_, step_, chunk_;  // load i is chunk_ of key row_ + i * step_
    u32x4 held_[kLoads];

public:
    __device__ __forceinline__ explicit TileLoader(const HeadRows& rows) {
        const int task = static_cast<int>(threadIdx.x) % kTasks;
        // Of V, 16 lanes hold 8 keys by 64 columns: transposed, they write to all banks.
        const int rest = task / 16;
        chunk_ = is_ahead() ? task % S::kChunks : task / 2 % 8 + rest % (S::kChunks / 8) * 8;
        row_ = is_ahead() ? task / S::kChunks : rest / (S::kChunks / 8) * 8 + task % 2 * kLoads;
        step_ = is_ahead() ? kKeyStep : 1;
        pitch_ = rows.key_pitch;
        left_ = rows.keys;
        matrix_ = is_ahead() ? rows.k : rows.v;
    }

    /// Request tile `tile`; keys beyond the sequence read as zero.
    __device__ __forceinline__ void load(int tile) {
        const int first = tile * S::kKeys;
        const uint16_t* base = matrix_ + static_cast<size_t>(first) * static_cast<size_t>(pitch_ / 2);
        const int rows = left_ - first < S::kKeys ? left_ - first : S::kKeys;
        const BufferResource buffer = make_buffer(base, extent(rows, pitch_, S::kD * 2));
#pragma unroll
        for (int i = 0; i < kLoads; ++i) held_[i] = buffer_load_16(buffer, (row_ + i * step_) * pitch_ + chunk_ * 16);
    }

    /// Wait for tile `tile`, which was requested, and put it into LDS.
    __device__ __forceinline__ void store(KeyValueTiles<S>& tiles, int tile) const {
        if (is_ahead()) {
            const int base = S::Keys::offset(row_, chunk_);
#pragma unroll
            for (int i = 0; i < kLoads; ++i)
                write_chunk(tiles.k[tile % 2], S::Keys::at(base, i * kKeyStep, 0), held_[i]);
        } else {
            u32x2 column[kHalvesPerChunk];
            transpose_halves(held_, column);
            const int base = S::Values::offset(chunk_ * kHalvesPerChunk, row_ / 8) + row_ % 8 * 2;
#pragma unroll
            for (int i = 0; i < kHalvesPerChunk; ++i)
                *reinterpret_cast<u32x2*>(tiles.v[tile % 2] + S::Values::at(base, i, 0)) = column[i];
        }
    }
};

/// The queries of one wave, and what they have accumulated.
template <class Half, class S>
struct WaveQueries {
    u32x4 q[S::kQueryTiles][S::kD / 32];      // second operand of two MFMA steps each
    f32x4 o[S::kQueryTiles][S::kValueTiles];  // o[.][4 * a + b][i]: column 64 a + 16 g + 4 b + i of query r
    SoftmaxRow row[S::kQueryTiles];

    /// Queries beyond the buffer are zeros.
    __device__ __forceinline__ WaveQueries(BufferResource queries, int first, int pitch) : o{} {
        load_rows(queries, first, pitch, q);
    }

    using Scores = f32x4[S::kQueryTiles][S::kKeyTiles];
    using Probabilities = u32x2[S::kQueryTiles][S::kKeyTiles];

    /// Add a tile's values (`AddValues`), then score the keys of a tile (`ScoreKeys`).
    template <bool AddValues, bool ScoreKeys>
    __device__ __forceinline__ void multiply(
        const uint8_t* v, const Probabilities& probability, const uint8_t* k, Scores& score) {
        constexpr int kSteps = S::kD / 32;
        constexpr int kOfValues = AddValues ? S::kKeys / 32 * S::kValueTiles : 0;
        constexpr int kOfKeys = ScoreKeys ? S::kKeyTiles * kSteps : 0;
        f32x4 product[S::kQueryTiles];
        set_wave_priority<1>();
        for_each_chunk<kOfValues + kOfKeys>([&](int i) {
            if (i < kOfValues) return read_column<S::kKeys, S::kValueTiles>(v, columns_base<S::kKeys>(), i);
            i -= kOfValues;
            return read_row<S::kD>(k, rows_base<S::kD>(), i / kSteps, i % kSteps);
        }, [&](int i, u32x4 chunk) {
            if (i < kOfValues) return multiply_column<Half>(chunk, i, probability, o);
            i -= kOfValues;
            multiply_row<Half>(chunk, q, i % kSteps, product);
            if (i % kSteps < kSteps - 1) return;
#pragma unroll
            for (int n = 0; n < S::kQueryTiles; ++n) score[n][i / kSteps] = product[n];
        });
        set_wave_priority<0>();
    }

    /// Probabilities from scores. `visible[n]`: how many of the tile's keys the query of tile n sees; used where `masked`.
    __device__ __forceinline__ void weigh(
        Scores& score, float scale, bool masked, const int (&visible)[S::kQueryTiles], Probabilities& probability) {
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) {
            if (masked) mask_scores(score[n], visible[n]);
            const float correction = take_scores<Half>(score[n], row[n], scale, probability[n]);
            rescale(o[n], correction);
        }
    }
};

/// Tiles that `keys` keys (any sign) lie in.
template <class S>
__device__ __forceinline__ int tiles_of(int keys) {
    return keys > 0 ? ceil_div(keys, S::kKeys) : 0;
}

/// Attention of the queries from `first_query` on, as many as the workgroup takes. The whole workgroup calls it.
template <class Half, class S>
__device__ __forceinline__ void attend_queries(KeyValueTiles<S>& tiles, const HeadRows& head, int first_query) {
    constexpr int D = S::kD;
    const int left = head.queries - first_query;
    const int rows = left < S::kQueries ? left : S::kQueries;
    const int bytes = extent(rows, head.query_pitch, D * 2);
    const size_t origin = static_cast<size_t>(first_query) * static_cast<size_t>(head.query_pitch / 2);

    const int wave_query = wave_id() * S::kQueryTiles * 16;  // within the workgroup's
    WaveQueries<Half, S> wave(make_buffer(head.q + origin, bytes), wave_query, head.query_pitch);
    const int wave_fewest = head.visible(first_query + wave_query);
    const int wave_most = head.visible(first_query + wave_query + S::kQueryTiles * 16 - 1);
    int visible[S::kQueryTiles];
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n)
        visible[n] = head.visible(first_query + wave_query + n * 16 + lane_id() % 16);

    const int tiles_of_all = tiles_of<S>(head.visible(first_query + rows - 1));
    const int tiles_of_wave = tiles_of<S>(wave_most);
    TileLoader<S> loader(head);
    loader.load(0);
    wait_for_loads();
    loader.store(tiles, 0);
    loader.load(1);
    __syncthreads();

    // A wave multiplies the values of a tile and then the keys of the next one. Those ahead take the scores between before the
    // barrier, the others after it, so that one of the two on a SIMD multiplies while the other does not.
    typename WaveQueries<Half, S>::Scores score;
    typename WaveQueries<Half, S>::Probabilities probability;
    int tile = 0;
    const auto pass = [&](bool seen) {
        if (!is_ahead()) __syncthreads();
        if (seen) {
            wave.weigh(score, head.scale, (tile + 1) * S::kKeys > wave_fewest, visible, probability);
#pragma unroll
            for (int n = 0; n < S::kQueryTiles; ++n) visible[n] -= S::kKeys;
        }
        loader.store(tiles, tile + 1);
        loader.load(tile + 2);
        if (is_ahead()) __syncthreads();
        ++tile;
    };
    if (tiles_of_wave > 0) {
        wave.template multiply<false, true>(nullptr, probability, tiles.k[0], score);
        while (tile + 1 < tiles_of_wave) {
            pass(true);
            wave.template multiply<true, true>(tiles.v[(tile - 1) % 2], probability, tiles.k[tile % 2], score);
        }
        pass(true);
        wave.template multiply<true, false>(tiles.v[(tile - 1) % 2], probability, nullptr, score);
    }
    while (tile < tiles_of_all) pass(false);

    const BufferResource out = make_buffer(head.o + origin, bytes);
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n) {
        SoftmaxRow row = wave.row[n];
        row.sum = query_sum(row.sum);
        store_query_row<Half>(out, wave.o[n], wave_query + n * 16, head.query_pitch, row.inverse());
        const int query = first_query + wave_query + n * 16 + lane_id();
        if (lane_id() < 16 && query < head.queries) head.lse[query] = row.lse(head.scale);
    }
}
