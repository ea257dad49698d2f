// SPDX-License-Identifier: MIT
// FlashAttention forward on MFMA 16x16x16 for a workgroup of four waves: 128 queries (64 for head_dim 256) of one head of one
// sequence. The kernels that include this say which; how the parts work together is described in flash_attention/mfma.hip.
//
//   head_dim  threads  queries  keys per tile  LDS bytes  workgroups per compute unit
//   64        256      128      128            32 768     2
//   128       256      128      64             32 768     2
//   256       256      64       32             32 768     2
#pragma once

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

template <int D_>
struct ForwardShape {
    static constexpr int kD = D_;
    static constexpr int kThreads = 256;
    static constexpr int kKeys = 8192 / kD;  // 16 KB of K and 16 KB of V
    static constexpr int kKeyTiles = kKeys / 16;
    static constexpr int kQueryTiles =
        kD == 256 ? 1 : QUERY_TILES;  // of 16 queries, per wave: as many as registers hold
    static constexpr int kQueries = kThreads / kWaveSize * kQueryTiles * 16;
    static constexpr int kChunks = kD / kHalvesPerChunk;  // 16-byte chunks of a row
    static constexpr int kValueTiles = kD / 16;
    using Keys = KeyPanel<kD>;
    using Values = ValuePanel<kKeys>;
};

template <class S>
struct alignas(16) KeyValueTiles {
    uint8_t k[S::kKeys * S::kD * 2];
    uint8_t v[S::kD * S::kKeys * 2];  // transposed
};

/// This thread's share of a K and a V tile on its way to LDS: eight 16-byte loads, of V in the first two waves and of K in
/// the others.
template <class S>
class TileLoader {
    static constexpr int kLoads = 8;
    static constexpr int kTasks = S::kThreads / 2;
    static constexpr int kKeyStep = kTasks / S::kChunks;
    static_assert(kTasks * kLoads == S::kKeys * S::kChunks, "one task per thread");

    const uint16_t* matrix_;  // first key of this head
    int pitch_, left_;
    int row_, step_, chunk_;  // load i is chunk_ of key row_ + i * step_
    bool on_v_;
    u32x4 held_[kLoads];

public:
    __device__ __forceinline__ explicit TileLoader(const HeadRows& rows) {
        on_v_ = wave_id() < kTasks / kWaveSize;
        const int task = static_cast<int>(threadIdx.x) % kTasks;
        chunk_ = task % S::kChunks;
        row_ = on_v_ ? task / S::kChunks * kLoads : task / S::kChunks;
        step_ = on_v_ ? 1 : kKeyStep;
        pitch_ = rows.key_pitch;
        left_ = rows.keys;
        matrix_ = on_v_ ? rows.v : rows.k;
    }

    /// Request keys [first, first + kKeys); those beyond the sequence read as zero.
    __device__ __forceinline__ void load(int first) {
        const uint16_t* base = matrix_ + static_cast<size_t>(first) * static_cast<size_t>(pitch_ / 2);
        const int rows = left_ - first < S::kKeys ? left_ - first : S::kKeys;
        const BufferResource buffer = make_buffer(base, extent(rows, pitch_, S::kD * 2));
#pragma unroll
        for (int i = 0; i < kLoads; ++i) held_[i] = buffer_load_16(buffer, (row_ + i * step_) * pitch_ + chunk_ * 16);
    }

    /// Wait for what was requested and put it into LDS.
    __device__ __forceinline__ void store(KeyValueTiles<S>& tiles) const {
        if (on_v_) {
            u32x4 column[kLoads];
            transpose_halves(held_, column);
            const int base = S::Values::offset(chunk_ * kHalvesPerChunk, row_ / kLoads);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) write_chunk(tiles.v, S::Values::at(base, i, 0), column[i]);
        } else {
            const int base = S::Keys::offset(row_, chunk_);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) write_chunk(tiles.k, S::Keys::at(base, i * kKeyStep, 0), held_[i]);
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

    /// One tile of keys. `visible[n]`: how many of its keys the query of tile n sees; used where `masked`.
    __device__ __forceinline__ void add_tile(
        const KeyValueTiles<S>& tiles, float scale, bool masked, const int (&visible)[S::kQueryTiles]) {
        f32x4 score[S::kQueryTiles][S::kKeyTiles];
        u32x2 probability[S::kQueryTiles][S::kKeyTiles];
        set_wave_priority<1>();
#pragma unroll
        for (int t = 0; t < S::kKeyTiles; ++t) {
            f32x4 product[S::kQueryTiles];
            multiply_rows<Half, S::kD>(tiles.k, rows_base<S::kD>(), t, q, product);
#pragma unroll
            for (int n = 0; n < S::kQueryTiles; ++n) score[n][t] = product[n];
        }
        set_wave_priority<0>();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) {
            if (masked) mask_scores(score[n], visible[n]);
            const float correction = take_scores<Half>(score[n], row[n], scale, probability[n]);
            rescale(o[n], correction);
        }
        set_wave_priority<1>();
        multiply_columns<Half, S::kKeys>(tiles.v, columns_base<S::kKeys>(), probability, o);
        set_wave_priority<0>();
    }
};

/// Attention of the queries from `first_query` on, as many as the workgroup takes. The whole workgroup calls it.
template <class Half, int D>
__device__ __forceinline__ void attend_queries(
    KeyValueTiles<ForwardShape<D>>& tiles, const HeadRows& head, int first_query) {
    using S = ForwardShape<D>;
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

    const int end = head.visible(first_query + rows - 1);
    TileLoader<S> loader(head);
    if (end > 0) loader.load(0);
    wait_for_loads();
    for (int key = 0; key < end; key += S::kKeys) {
        loader.store(tiles);
        __syncthreads();
        if (key + S::kKeys < end) loader.load(key + S::kKeys);
        if (key < wave_most) wave.add_tile(tiles, head.scale, key + S::kKeys > wave_fewest, visible);
        __syncthreads();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) visible[n] -= S::kKeys;
    }

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
