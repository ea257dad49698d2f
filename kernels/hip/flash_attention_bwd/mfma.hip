// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention backward on MFMA 16x16x16: one pass over queries for dK and dV, one over keys for dQ, no atomics
//!KERNEL arch gfx942
//
// FlashAttention (backward) for MI300 (CDNA3): dQ, dK and dV, causal (bottom-right) or full, grouped heads.
//
// Algorithm. Three kernels.
//   1. row_terms writes two numbers per query row to the workspace: lse in base 2, and delta = sum(dout * o).
//   2. key_gradients: a workgroup owns some keys of one key head, each wave a part of them with their K and V in registers.
//      It walks the queries of all heads that share the key head, in tiles, and computes s = q k^T, p, dp = dout v^T, ds; then
//      dv^T += dout^T p and dk^T += q^T ds.
//   3. query_gradients: a workgroup owns 128 queries of one head, with q and dout in registers, and walks the keys:
//      s^T = k q^T, p, dp^T = v dout^T, ds; then dq^T += k^T ds^T.
// So s and dp are computed twice, seven products in place of five. In return each sum has one owner: there are no atomics,
// and results repeat to the bit. p and ds are rounded to 16 bits for their products, all sums are fp32.
//
// Both walks have the same shape. What the wave holds is the second operand, so the rows of the results are those of the
// tile in LDS, and four of them lie in one lane: packed, they are the second operand of the product that follows. A tile lies
// in LDS as it is, for s and dp, and transposed (4 x 8 values in registers, v_perm_b32), for the sums; both XOR-swizzled. The
// next tile is requested into registers before the sums and stored behind the barrier that follows them.
//
//   head_dim  threads  keys (2)  queries (3)  rows of a tile  LDS bytes (2, 3)  workgroups per compute unit
//   64        256      128       128          64              32 768, 24 576    2
//   128       256      64        128          32              32 768, 24 576    2
//   256       512      128       128          32              65 536, 49 152    1
//
// Shapes. head_dim 64, 128, 256; any sequence lengths; heads_k divides heads_q; rows that see no key (lse = -inf) give 0 and add
// nothing. softmax_scale must be positive. All pointers 16-byte aligned. Workspace: 8 bytes per query row, rows of a head
// rounded up to 128.
//
// Every score is masked: clang 22 leaves too few wait states between products and what reads them behind a branch around the
// mask (the emulator found it).
//
// Limits. Few keys and heads leave compute units idle in the second kernel: neither queries nor the heads of a group are
// split. With head_dim 128 and 256 each wave holds 16 keys in that kernel, since 32 spill: each read of LDS then serves two
// products in place of four. Clang 20 spills four registers of the second kernel with
// head_dim 256; older ones split the vector registers into two fixed halves and spill more.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "attention/backward_rows.h"
#include "attention/backward_tiles.h"
#include "isa/schedule.h"
#include "tile/grid.h"
#include "tile/half_products.h"
#include "tile/query_rows.h"
#include "tile/scores.h"

namespace {

/// Four weights and their gradients, from scores and dp of one lane.
template <class Half>
__device__ __forceinline__ void weigh(
    f32x4 score, f32x4 dp, float scale, f32x4 lse, f32x4 delta, u32x2& weight, u32x2& gradient) {
    f32x4 p, ds;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        p[i] = exp2_approx(score[i] * scale - lse[i]);
        ds[i] = p[i] * (dp[i] - delta[i]);
    }
    weight = u32x2{Half::pack_probabilities(p[0], p[1]), Half::pack_probabilities(p[2], p[3])};
    gradient = u32x2{Half::pack_probabilities(ds[0], ds[1]), Half::pack_probabilities(ds[2], ds[3])};
}

/// Four terms of query rows from `first` on, in a lane.
__device__ __forceinline__ f32x4 load_terms(const float* terms, int first) {
    return *reinterpret_cast<const f32x4*>(terms + first);
}

/// 2. dK and dV.
template <class Half, int D>
__global__ void __launch_bounds__(BackwardShape<D>::kThreads, 2) key_gradients(Gradients problem) {
    using S = BackwardShape<D>;
    __shared__ BackwardTiles<S, 2> tiles;

    // With a mask, most queries see the first keys: those blocks come first.
    const auto [any_head, block] = head_block(problem.blocks, problem.causal);
    const int first_key = (problem.blocks - 1 - block) * S::kKeys;
    const int batch = uniform(any_head / problem.heads_k);
    const int head_k = any_head - batch * problem.heads_k;
    const int group = uniform(problem.heads_q / problem.heads_k);

    const int rows = problem.seqlen_k - first_key < S::kKeys ? problem.seqlen_k - first_key : S::kKeys;
    const int key_pitch = problem.heads_k * D * 2, query_pitch = problem.heads_q * D * 2;
    const size_t origin = row_of<D>(batch, problem.seqlen_k, first_key, problem.heads_k, head_k);
    const int bytes = extent(rows, key_pitch, D * 2);
    const int wave_row = wave_id() * S::kKeyTiles * 16;
    u32x4 k[S::kKeyTiles][S::kSteps], v[S::kKeyTiles][S::kSteps];
    load_rows(make_buffer(problem.k + origin, bytes), wave_row, key_pitch, k);
    load_rows(make_buffer(problem.v + origin, bytes), wave_row, key_pitch, v);
    f32x4 dk[S::kKeyTiles][S::kColumnTiles] = {}, dv[S::kKeyTiles][S::kColumnTiles] = {};

    // The first query that sees a key, and the tiles from the block's first one on, head by head.
    const int wave_first = first_key + wave_row - problem.shift();
    const int first_seen = first_key - problem.shift();
    const int begin = first_seen > 0 ? first_seen / S::kRows * S::kRows : 0;
    const int tiles_per_head = (problem.seqlen_q - begin + S::kRows - 1) / S::kRows;
    const size_t first_row = row_of<D>(batch, problem.seqlen_q, 0, problem.heads_q, head_k * group);
    const size_t first_term =
        (static_cast<size_t>(batch) * static_cast<size_t>(problem.heads_q) + static_cast<size_t>(head_k * group)) *
        static_cast<size_t>(problem.term_rows);

    BackwardTileLoader<S, 2> loader;
    int query = begin, head = 0;
    loader.load(problem.q + first_row, problem.dout + first_row, begin, problem.seqlen_q, query_pitch);
    wait_for_loads();
    for (int tile = group * tiles_per_head; tile > 0; --tile) {
        loader.store(tiles);
        __syncthreads();
        const int of_rows = computed_here(rows_base<D>()), of_columns = computed_here(columns_base<S::kRows>());
        const bool seen = query + S::kRows > wave_first;
        u32x2 weight[S::kKeyTiles][S::kRowTiles], gradient[S::kKeyTiles][S::kRowTiles];
        if (seen) {
            const size_t term = first_term + static_cast<size_t>(head) * static_cast<size_t>(problem.term_rows) +
                                static_cast<size_t>(query);
            set_wave_priority<1>();
#pragma unroll
            for (int t = 0; t < S::kRowTiles; ++t) {
                const f32x4 lse = load_terms(problem.row_lse + term, scored_key(t, 0));
                const f32x4 delta = load_terms(problem.row_delta + term, scored_key(t, 0));
                f32x4 score[S::kKeyTiles], dp[S::kKeyTiles];
                for_each_chunk<2 * S::kSteps, D == 256 ? 2 : 4>([&](int i) {
                    return read_row<D>(tiles.rows[i / S::kSteps], of_rows, t, i % S::kSteps);
                }, [&](int i, u32x4 row) {
                    if (i < S::kSteps) multiply_row<Half>(row, k, i, score);
                    else multiply_row<Half>(row, v, i - S::kSteps, dp);
                });
#pragma unroll
                for (int n = 0; n < S::kKeyTiles; ++n) {
                    const int hidden = wave_first + n * 16 + lane_id() % 16 - query;  // rows before this one
#pragma unroll
                    for (int i = 0; i < 4; ++i) score[n][i] = scored_key(t, i) < hidden ? -INFINITY : score[n][i];
                    weigh<Half>(score[n], dp[n], problem.scale(), lse, delta, weight[n][t], gradient[n][t]);
                }
            }
        }
        int next_query = query + S::kRows, next_head = head;
        if (next_query >= problem.seqlen_q) next_query = begin, ++next_head;
        if (tile > 1) {
            const size_t next = first_row + static_cast<size_t>(next_head) * D;
            loader.load(problem.q + next, problem.dout + next, next_query, problem.seqlen_q, query_pitch);
        }
        if (seen) {
            multiply_columns<Half, S::kRows>(tiles.columns[1], of_columns, weight, dv);
            multiply_columns<Half, S::kRows>(tiles.columns[0], of_columns, gradient, dk);
            set_wave_priority<0>();
        }
        query = next_query, head = next_head;
        __syncthreads();
    }

    const BufferResource out_k = make_buffer(problem.dk + origin, bytes);
    const BufferResource out_v = make_buffer(problem.dv + origin, bytes);
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n) {
        store_query_row<Half>(out_k, dk[n], wave_row + n * 16, key_pitch, problem.softmax_scale);
        store_query_row<Half>(out_v, dv[n], wave_row + n * 16, key_pitch, 1.0f);
    }
}

/// 3. dQ.
template <class Half, int D>
__global__ void __launch_bounds__(BackwardShape<D>::kThreads, 2) query_gradients(Gradients problem) {
    using S = BackwardShape<D>;
    __shared__ BackwardTiles<S, 1> tiles;

    // With a mask, blocks with most keys come first.
    const auto [any_head, block] = head_block(problem.blocks, problem.causal);
    const int first_query = block * S::kQueries;
    const int batch = uniform(any_head / problem.heads_q);
    const int head = any_head - batch * problem.heads_q;
    const int head_k = uniform(head / (problem.heads_q / problem.heads_k));

    const int rows = problem.seqlen_q - first_query < S::kQueries ? problem.seqlen_q - first_query : S::kQueries;
    const int key_pitch = problem.heads_k * D * 2, query_pitch = problem.heads_q * D * 2;
    const size_t origin = row_of<D>(batch, problem.seqlen_q, first_query, problem.heads_q, head);
    const size_t first_key = row_of<D>(batch, problem.seqlen_k, 0, problem.heads_k, head_k);
    const int bytes = extent(rows, query_pitch, D * 2);
    const int wave_row = wave_id() * S::kQueryTiles * 16;
    u32x4 q[S::kQueryTiles][S::kSteps], dout[S::kQueryTiles][S::kSteps];
    load_rows(make_buffer(problem.q + origin, bytes), wave_row, query_pitch, q);
    load_rows(make_buffer(problem.dout + origin, bytes), wave_row, query_pitch, dout);
    f32x4 dq[S::kQueryTiles][S::kColumnTiles] = {};

    const int wave_query = first_query + wave_row;
    const int wave_most = problem.visible(wave_query + S::kQueryTiles * 16 - 1);
    const size_t term = static_cast<size_t>(any_head) * static_cast<size_t>(problem.term_rows) +
                        static_cast<size_t>(wave_query + lane_id() % 16);
    int visible[S::kQueryTiles];
    f32x4 lse[S::kQueryTiles], delta[S::kQueryTiles];
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n) {
        visible[n] = problem.visible(wave_query + n * 16 + lane_id() % 16);
        const float one_lse = problem.row_lse[term + n * 16], one_delta = problem.row_delta[term + n * 16];
        lse[n] = f32x4{one_lse, one_lse, one_lse, one_lse};
        delta[n] = f32x4{one_delta, one_delta, one_delta, one_delta};
    }

    const int end = problem.visible(first_query + rows - 1);
    BackwardTileLoader<S, 1> loader;
    if (end > 0) loader.load(problem.k + first_key, problem.v + first_key, 0, problem.seqlen_k, key_pitch);
    wait_for_loads();
    for (int key = 0; key < end; key += S::kRows) {
        loader.store(tiles);
        __syncthreads();
        const int of_rows = computed_here(rows_base<D>()), of_columns = computed_here(columns_base<S::kRows>());
        const bool seen = key < wave_most;
        u32x2 weight, gradient[S::kQueryTiles][S::kRowTiles];
        if (seen) {
            set_wave_priority<1>();
#pragma unroll
            for (int t = 0; t < S::kRowTiles; ++t) {
                f32x4 score[S::kQueryTiles], dp[S::kQueryTiles];
                for_each_chunk<2 * S::kSteps>([&](int i) {
                    return read_row<D>(tiles.rows[i / S::kSteps], of_rows, t, i % S::kSteps);
                }, [&](int i, u32x4 row) {
                    if (i < S::kSteps) multiply_row<Half>(row, q, i, score);
                    else multiply_row<Half>(row, dout, i - S::kSteps, dp);
                });
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        score[n][i] = scored_key(t, i) < visible[n] - key ? score[n][i] : -INFINITY;
                    weigh<Half>(score[n], dp[n], problem.scale(), lse[n], delta[n], weight, gradient[n][t]);
                }
            }
        }
        if (key + S::kRows < end)
            loader.load(problem.k + first_key, problem.v + first_key, key + S::kRows, problem.seqlen_k, key_pitch);
        if (seen) {
            multiply_columns<Half, S::kRows>(tiles.columns[0], of_columns, gradient, dq);
            set_wave_priority<0>();
        }
        __syncthreads();
    }

    const BufferResource out = make_buffer(problem.dq + origin, bytes);
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n)
        store_query_row<Half>(out, dq[n], wave_row + n * 16, query_pitch, problem.softmax_scale);
}

template <class Half, int D>
int launch(Gradients problem, void* queue) {
    using S = BackwardShape<D>;
    constexpr long long kRowsAtOnce = S::kThreads / (D / kHalvesPerChunk);
    const int key_blocks = ceil_div(problem.seqlen_k, S::kKeys), query_blocks = ceil_div(problem.seqlen_q, S::kQueries);
    const long long heads_q = static_cast<long long>(problem.batch) * problem.heads_q;
    const long long heads_k = static_cast<long long>(problem.batch) * problem.heads_k;
    const long long term_blocks = ceil_div(heads_q * problem.term_rows, kRowsAtOnce);
    constexpr long long kMaxBlocks = 0xffffffffLL / S::kThreads;  // a grid has 32 bits of threads
    if (term_blocks > kMaxBlocks || query_blocks * heads_q > kMaxBlocks || key_blocks * heads_k > kMaxBlocks)
        return kUnsupportedShape;
    LAUNCH((row_terms<Half, D>), dim3(static_cast<unsigned>(term_blocks)), dim3(S::kThreads), 0, queue)(problem);
    problem.blocks = key_blocks;
    const dim3 of_keys(static_cast<unsigned>(key_blocks * heads_k));
    LAUNCH((key_gradients<Half, D>), of_keys, dim3(S::kThreads), 0, queue)(problem);
    problem.blocks = query_blocks;
    const dim3 of_queries(static_cast<unsigned>(query_blocks * heads_q));
    LAUNCH((query_gradients<Half, D>), of_queries, dim3(S::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

}  // namespace

extern "C" int flash_attention_bwd(
    const void* q, const void* k, const void* v, const void* o, const void* dout, const float* lse, void* dq, void* dk,
    void* dv, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int half, int causal,
    float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    if (head_dim != 64 && head_dim != 128 && head_dim != 256) return kUnsupportedShape;
    Gradients problem;
    const int status = arrange(
        &problem, q, k, v, o, dout, lse, dq, dk, dv, batch, seqlen_q, seqlen_k, heads_q, heads_k, causal, softmax_scale,
        workspace, workspace_bytes, 2);
    if (status != kOk) return status;
    if (head_dim == 64) return half ? launch<Fp16, 64>(problem, queue) : launch<Bf16, 64>(problem, queue);
    if (head_dim == 128) return half ? launch<Fp16, 128>(problem, queue) : launch<Bf16, 128>(problem, queue);
    return half ? launch<Fp16, 256>(problem, queue) : launch<Bf16, 256>(problem, queue);
}
