// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention backward on MFMA 16x16x16 in one pass over queries: dQ is summed by fp32 atomics
//!KERNEL arch gfx942
//
// FlashAttention (backward) for MI300 (CDNA3): dQ, dK and dV, causal (bottom-right) or full, grouped heads.
//
// Algorithm. Three kernels.
//   1. row_terms writes two numbers per query row to the workspace (lse in base 2, delta = sum(dout * o)), and zeros for dq.
//   2. gradients: a workgroup of four waves owns 128 keys of one key head, each wave 32 of them with their K and V in registers.
//      It walks the queries of all heads that share the key head, in tiles of 4096 / head_dim, and computes s = q k^T, p,
//      dp = dout v^T, ds; then dv^T += dout^T p and dk^T += q^T ds. The waves exchange ds through LDS, and each multiplies it
//      with its 32 columns of all 128 keys, which lie in registers, too: dq = ds k. It is added to fp32 sums in memory.
//   3. write_dq: dq in 16 bits.
// Five products, where mfma.hip has seven. In return, workgroups of a head add to dq by atomics, in no order: dq differs from
// run to run in its last bits. dk and dv do not. mfma.hip is for those who need all bits again.
//
// A wave has a SIMD and its 512 registers to itself, so what is to be done beside products must stand between them. The loop
// has two halves with a barrier behind each. In the first, dv, dk and dq of the tile before are multiplied, and p and ds of this
// tile computed from s and dp; in the second, s and dp of the next tile. What is read in one half is stored in the other, so
// each tile lies in LDS once (and transposed), ds twice by turns. Weights are cut to 16 bits, not rounded, and are larger
// before by what a cut takes away on average (tile/half.h).
//
//   head_dim  threads  keys  rows of a tile  LDS bytes  workgroups per compute unit
//   64        256      128   64              65 536     1
//   128       256      128   32              49 152     1
//
// Sums of dq lie as the lanes hold them, so that an instruction adds to 256 bytes in a row.
//
// Shapes. head_dim 64, 128; any sequence lengths; heads_k divides heads_q; rows that see no key (lse = -inf) give 0 and add
// nothing. softmax_scale must be positive. All pointers 16-byte aligned. Workspace: 8 + 4 * head_dim bytes per query row, rows
// of a head rounded up to 128.
//
// Limits. Short sequences with a mask are slower than in mfma.hip. head_dim 256 does not fit the registers of two waves on a
// SIMD. Few keys and heads leave compute units idle.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "attention/backward_rows.h"
#include "attention/backward_tiles.h"
#include "isa/atomic.h"
#include "isa/schedule.h"
#include "tile/grid.h"
#include "tile/half_products.h"
#include "tile/query_rows.h"
#include "tile/scores.h"

namespace {

template <int D>
struct OnePassShape : BackwardShape<D> {
    using Base = BackwardShape<D>;
    static constexpr int kWaves = Base::kThreads / kWaveSize;
    static constexpr int kKeyTiles = 2;
    static constexpr int kWaveKeys = kKeyTiles * 16, kKeys = kWaves * kWaveKeys;
    // A wave computes dq of 32 columns and 32 rows of a tile, from all keys of the workgroup.
    static constexpr int kSumTiles = 2, kSumSteps = kKeys / 32, kSumGroups = D / 32;
    static constexpr int kSums = kSumTiles * kSumTiles * 4;  // of a lane
    static_assert(kSums == Base::kRowTiles * 2 * Base::kSteps, "one of them beside each chunk of rows");
    static_assert(kWaves * kWaveSize * kSums == Base::kRows * D, "the waves share a tile's dq");
    using Panel = KeyPanel<kKeys>;
};

template <class S>
struct OnePassTiles {
    BackwardTiles<S, 2> moving;
    alignas(16) uint8_t ds[2][S::kRows * S::kKeys * 2];  // a row per query; of two tiles, by turns
};

/// Which 32 columns and 32 rows of a tile's dq this wave computes.
template <class S>
__device__ __forceinline__ int sum_columns() {
    return wave_id() % S::kSumGroups * 32;
}
template <class S>
__device__ __forceinline__ int sum_rows() {
    return wave_id() / S::kSumGroups * 32;
}

/// Where this lane's sums of a tile lie, kWaveSize apart: [t][column % 2][i] is row scored_key(t, i).
template <class S>
__device__ __forceinline__ size_t sums_of(long long any_head, int term_rows, int query) {
    return static_cast<size_t>(any_head * term_rows + query) * S::kD +
           static_cast<size_t>(wave_id() * kWaveSize * S::kSums + lane_id());
}

/// The keys' columns that this wave multiplies with ds: second operands; column tile T is columns 2 r + T.
template <class S>
__device__ __forceinline__ void load_columns(
    BufferResource keys, int pitch, u32x4 (&column)[S::kSumTiles][S::kSumSteps]) {
    typedef uint32_t Pair __attribute__((vector_size(4)));
    const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
    for (int step = 0; step < S::kSumSteps; ++step) {
        Pair row[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int offset = (step * 32 + g * 8 + i) * pitch + (sum_columns<S>() + 2 * r) * 2;
            row[i] = Pair{__builtin_bit_cast(uint32_t, buffer_load_float(keys, offset))};
        }
        u32x4 both[2];
        transpose_halves(row, both);
        column[0][step] = both[0];
        column[1][step] = both[1];
    }
}

/// A tile of queries: `query` is its first row.
struct Place {
    int head, query;
};

template <class Half, int D>
__global__ void __launch_bounds__(OnePassShape<D>::kThreads, 1) gradients(Gradients problem) {
    using S = OnePassShape<D>;
    __shared__ OnePassTiles<S> tiles;

    // Heads one after the other, with a mask, too: an L2 does not hold the sums of dq of all heads.
    const auto [any_head, block] = head_block(problem.blocks, false);
    const int first_key = (problem.blocks - 1 - block) * S::kKeys;
    const int batch = uniform(any_head / problem.heads_k);
    const int head_k = any_head - batch * problem.heads_k;
    const int group = uniform(problem.heads_q / problem.heads_k);

    const int rows = problem.seqlen_k - first_key < S::kKeys ? problem.seqlen_k - first_key : S::kKeys;
    const int key_pitch = problem.heads_k * D * 2, query_pitch = problem.heads_q * D * 2;
    const size_t origin = row_of<D>(batch, problem.seqlen_k, first_key, problem.heads_k, head_k);
    const int bytes = extent(rows, key_pitch, D * 2);
    const int wave_row = wave_id() * S::kWaveKeys;
    const BufferResource keys = make_buffer(problem.k + origin, bytes);
    u32x4 k[S::kKeyTiles][S::kSteps], v[S::kKeyTiles][S::kSteps], column_of_k[S::kSumTiles][S::kSumSteps];
    load_rows(keys, wave_row, key_pitch, k);
    load_rows(make_buffer(problem.v + origin, bytes), wave_row, key_pitch, v);
    load_columns<S>(keys, key_pitch, column_of_k);
    f32x4 dk[S::kKeyTiles][S::kColumnTiles] = {}, dv[S::kKeyTiles][S::kColumnTiles] = {};

    const int first_seen = first_key - problem.shift();
    const int begin = first_seen > 0 ? first_seen / S::kRows * S::kRows : 0;
    const int count = begin < problem.seqlen_q ? group * ceil_div(problem.seqlen_q - begin, S::kRows) : 0;
    const size_t first_row = row_of<D>(batch, problem.seqlen_q, 0, problem.heads_q, head_k * group);
    const long long first_head = static_cast<long long>(batch) * problem.heads_q + head_k * group;
    int hidden[S::kKeyTiles];  // queries before this one do not see the key
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n) {
        const int key = wave_row + n * 16 + lane_id() % 16;
        hidden[n] = key < rows ? first_seen + key : problem.seqlen_q + S::kRows;
    }

    const auto after = [&](Place place) {
        const bool last = place.query + S::kRows >= problem.seqlen_q;
        return Place{place.head + last, last ? begin : place.query + S::kRows};
    };
    BackwardTileLoader<S, 2> loader;
    typename BackwardTileLoader<S, 2>::Columns column;
    const auto load = [&](Place place) {
        const size_t first = first_row + static_cast<size_t>(place.head) * D;
        const int length = place.head < group ? problem.seqlen_q : 0;  // beyond the last tile: zeros
        loader.load(problem.q + first, problem.dout + first, place.query, length, query_pitch);
    };
    f32x4 lse[S::kRowTiles], delta[S::kRowTiles];
    const auto load_terms = [&](Place place) {
        const long long head = first_head + (place.head < group ? place.head : group - 1);
        const size_t term = static_cast<size_t>(head * problem.term_rows + place.query);
#pragma unroll
        for (int t = 0; t < S::kRowTiles; ++t) {
            lse[t] = *reinterpret_cast<const f32x4*>(problem.row_lse + term + scored_key(t, 0));
            delta[t] = *reinterpret_cast<const f32x4*>(problem.row_delta + term + scored_key(t, 0));
        }
    };

    f32x4 score[S::kRowTiles][S::kKeyTiles], dp[S::kRowTiles][S::kKeyTiles];
    u32x2 weight[S::kKeyTiles][S::kRowTiles] = {}, gradient[S::kKeyTiles][S::kRowTiles] = {};
    constexpr int kOfRows = S::kRowTiles * 2 * S::kSteps, kOfColumns = S::kRows / 32 * S::kColumnTiles;
    constexpr int kOfSums = S::kSumTiles * S::kSumSteps;
    const auto read_rows = [&](int i) {
        const int t = i / (2 * S::kSteps), step = i % (2 * S::kSteps);
        return read_row<D>(tiles.moving.rows[step / S::kSteps], rows_base<D>(), t, step % S::kSteps);
    };
    const auto use_rows = [&](int i, u32x4 row) {
        const int t = i / (2 * S::kSteps), step = i % (2 * S::kSteps);
        if (step < S::kSteps) multiply_row<Half>(row, k, step, score[t]);
        else multiply_row<Half>(row, v, step - S::kSteps, dp[t]);
    };
    const auto read_columns = [&](int i) {
        return read_column<S::kRows, S::kColumnTiles>(
            tiles.moving.columns[i < kOfColumns], columns_base<S::kRows>(), i % kOfColumns);
    };
    const auto use_columns = [&](int i, u32x4 chunk) {
        if (i < kOfColumns) multiply_column<Half>(chunk, i, weight, dv);
        else multiply_column<Half>(chunk, i - kOfColumns, gradient, dk);
    };

    // Products of a tile once p and ds are known: dv, dk, and dq into `dq`.
    f32x4 dq[S::kSumTiles][S::kSumTiles];
    constexpr int kOfGradients = 2 * kOfColumns + kOfSums;
    const auto read_gradients = [&](int i, const uint8_t* ds) {
        if (i < 2 * kOfColumns) return read_columns(i);
        i -= 2 * kOfColumns;
        return read_row<S::kKeys>(
            ds + sum_rows<S>() * S::kKeys * 2, rows_base<S::kKeys>(), i / S::kSumSteps, i % S::kSumSteps);
    };
    const auto use_gradients = [&](int i, u32x4 chunk) {
        if (i < 2 * kOfColumns) return use_columns(i, chunk);
        i -= 2 * kOfColumns;
        multiply_row<Half>(chunk, column_of_k, i % S::kSumSteps, dq[i / S::kSumSteps]);
    };
    const auto add_sum = [&](Place of, int e) {
        float* const sum = problem.sums + sums_of<S>(first_head + of.head, problem.term_rows, of.query);
        add_to_memory(sum + e * kWaveSize, dq[e / 8][e / 4 % 2][e % 4]);
    };

    Place place = {0, begin}, before = place, next = after(place);
    if (count > 0) {
        load(place);
        load_terms(place);
        wait_for_loads();
        loader.store_rows(tiles.moving);
        loader.transpose(column);
        loader.store_columns(tiles.moving, column);
        load(next);
        for (int i = static_cast<int>(threadIdx.x) * kChunk; i < S::kRows * S::kKeys * 2; i += S::kThreads * kChunk)
            write_chunk(tiles.ds[1], i, u32x4{});
        __syncthreads();
        for_each_chunk<kOfRows>(read_rows, use_rows);
        __syncthreads();
    }
    for (int tile = 0; tile < count; ++tile) {
        // Products of the tile before; beside them p and ds of this tile, and the next one's rows to LDS.
        uint8_t* const ds_here = tiles.ds[tile % 2];
        const uint8_t* const ds_before = tiles.ds[1 - tile % 2];
        u32x2 next_weight[S::kKeyTiles][S::kRowTiles], next_gradient[S::kKeyTiles][S::kRowTiles];
        const int to_ds = computed_here(
            S::Panel::offset(lane_id() / 16 * 8, (wave_row + lane_id() % 16) / kHalvesPerChunk) + lane_id() % 8 * 2);
        constexpr int kPairs = S::kKeyTiles * S::kRowTiles * 2, kApart = kOfGradients / kPairs;
        float p[kPairs][2];
        for_each_chunk<kOfGradients>([&](int i) { return read_gradients(i, ds_before); }, [&](int i, u32x4 chunk) {
            use_gradients(i, chunk);
            if (i > 0 && (i - 1) % kApart == 0 && (i - 1) / kApart < kPairs) {
                const int pair = (i - 1) / kApart, t = pair / 2 / S::kKeyTiles, n = pair / 2 % S::kKeyTiles,
                          j = pair % 2;
                float ds[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) ds[e] = p[pair][e] * (dp[t][n][2 * j + e] - delta[t][2 * j + e]);
                next_weight[n][t][j] = Half::cut(p[pair][0], p[pair][1]);
                const uint32_t both = next_gradient[n][t][j] = Half::cut(ds[0], ds[1]);
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    *reinterpret_cast<uint16_t*>(
                        ds_here + S::Panel::at(to_ds, (t >> 1) * 32 + (t & 1) * 4 + 2 * j + e, n * 2)) =
                        static_cast<uint16_t>(both >> 16 * e);
            }
            if (i % kApart == 0 && i / kApart < kPairs) {
                const int pair = i / kApart, t = pair / 2 / S::kKeyTiles, n = pair / 2 % S::kKeyTiles, j = pair % 2;
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const bool seen = scored_key(t, 2 * j + e) >= hidden[n] - place.query;
                    const float s = score[t][n][2 * j + e] * problem.scale() - lse[t][2 * j + e];
                    p[pair][e] = exp2_approx(seen ? s : -INFINITY);
                }
            }
            if (i == kOfGradients - 3) loader.store_rows(tiles.moving);
        });
#pragma unroll
        for (int n = 0; n < S::kKeyTiles; ++n)
#pragma unroll
            for (int t = 0; t < S::kRowTiles; ++t)
                weight[n][t] = next_weight[n][t], gradient[n][t] = next_gradient[n][t];
        __syncthreads();

        // s and dp of the next tile; beside them this tile's columns to LDS, dq of the one before to memory, and the one after
        // next is requested.
        const Place later = after(next);
        for_each_chunk<kOfRows>(read_rows, [&](int i, u32x4 chunk) {
            use_rows(i, chunk);
            if (i == 0) load_terms(next);
            if (i == 1) loader.store_columns(tiles.moving, column);
            add_sum(before, i);
            if (i == 2) loader.transpose(column);
            if (i == 3) load(later);
        });
        before = place, place = next, next = later;
        __syncthreads();
    }
    if (count > 0) {
        for_each_chunk<kOfGradients>([&](int i) { return read_gradients(i, tiles.ds[1 - count % 2]); }, use_gradients);
#pragma unroll
        for (int e = 0; e < S::kSums; ++e) add_sum(before, e);
    }

    const BufferResource out_k = make_buffer(problem.dk + origin, bytes);
    const BufferResource out_v = make_buffer(problem.dv + origin, bytes);
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n) {
        store_query_row<Half>(out_k, dk[n], wave_row + n * 16, key_pitch, problem.softmax_scale);
        store_query_row<Half>(out_v, dv[n], wave_row + n * 16, key_pitch, 1.0f);
    }
}

/// dq from its sums: a workgroup per tile.
template <class Half, int D>
__global__ void __launch_bounds__(OnePassShape<D>::kThreads) write_dq(Gradients problem) {
    using S = OnePassShape<D>;
    const int any_head = uniform(static_cast<int>(blockIdx.x) / problem.blocks);
    const int query = (static_cast<int>(blockIdx.x) - any_head * problem.blocks) * S::kRows;
    const int batch = uniform(any_head / problem.heads_q), head = any_head - batch * problem.heads_q;
    const int pitch = problem.heads_q * D * 2;
    const float* const sum = problem.sums + sums_of<S>(any_head, problem.term_rows, query);
    const BufferResource out = make_buffer(
        problem.dq + row_of<D>(batch, problem.seqlen_q, query, problem.heads_q, head),
        extent(problem.seqlen_q - query < S::kRows ? problem.seqlen_q - query : S::kRows, pitch, D * 2));
    const int at = sum_rows<S>() * pitch + (sum_columns<S>() + lane_id() % 16 * 2) * 2;
#pragma unroll
    for (int t = 0; t < S::kSumTiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float x = sum[(t * 8 + i) * kWaveSize], y = sum[(t * 8 + 4 + i) * kWaveSize];
            buffer_store_4(
                out, at + scored_key(t, i) * pitch, Half::pack(x * problem.softmax_scale, y * problem.softmax_scale));
        }
}

template <class Half, int D>
int launch(Gradients problem, void* queue) {
    using S = OnePassShape<D>;
    problem.lse_less = Half::kCutLog2;
    constexpr long long kRowsAtOnce = S::kThreads / (D / kHalvesPerChunk);
    const int key_blocks = ceil_div(problem.seqlen_k, S::kKeys), query_tiles = ceil_div(problem.seqlen_q, S::kRows);
    const long long heads_q = static_cast<long long>(problem.batch) * problem.heads_q;
    const long long heads_k = static_cast<long long>(problem.batch) * problem.heads_k;
    const long long term_blocks = ceil_div(heads_q * problem.term_rows, kRowsAtOnce);
    constexpr long long kMaxBlocks = 0x7fffffffLL / S::kThreads;
    if (term_blocks > kMaxBlocks || query_tiles * heads_q > kMaxBlocks || key_blocks * heads_k > kMaxBlocks)
        return kUnsupportedShape;
    LAUNCH((row_terms<Half, D>), dim3(static_cast<unsigned>(term_blocks)), dim3(S::kThreads), 0, queue)(problem);
    problem.blocks = key_blocks;
    const dim3 of_keys(static_cast<unsigned>(key_blocks * heads_k));
    LAUNCH((gradients<Half, D>), of_keys, dim3(S::kThreads), 0, queue)(problem);
    problem.blocks = query_tiles;
    const dim3 of_queries(static_cast<unsigned>(query_tiles * heads_q));
    LAUNCH((write_dq<Half, D>), of_queries, dim3(S::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

}  // namespace

extern "C" int flash_attention_bwd(
    const void* q, const void* k, const void* v, const void* o, const void* dout, const float* lse, void* dq, void* dk,
    void* dv, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int half, int causal,
    float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    if (head_dim != 64 && head_dim != 128) return kUnsupportedShape;
    Gradients problem;
    const int status = arrange(
        &problem, q, k, v, o, dout, lse, dq, dk, dv, batch, seqlen_q, seqlen_k, heads_q, heads_k, causal, softmax_scale,
        workspace, workspace_bytes, head_dim + 2);
    if (status != kOk) return status;
    if (head_dim == 64) return half ? launch<Fp16, 64>(problem, queue) : launch<Bf16, 64>(problem, queue);
    return half ? launch<Fp16, 128>(problem, queue) : launch<Bf16, 128>(problem, queue);
}
