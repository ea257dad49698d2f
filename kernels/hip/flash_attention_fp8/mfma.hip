// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention forward from scaled e4m3fnuz on MFMA 16x16x32: weights rounded to fp8, values transposed in registers
//!KERNEL arch gfx942
//!KERNEL tune QUERY_TILES=2,1
//
// FlashAttention (forward) from scaled fp8 for MI300 (CDNA3): O in bf16 and the natural-log LSE, causal (bottom-right) or
// full, grouped heads. fp8 is e4m3fnuz, the flavour of the matrix instructions: codes go to them as they come.
//
// Algorithm. That of flash_attention/mfma.hip: four waves own 128 queries of one head, 32 each in registers (16 for head_dim
// 256), and walk the keys in tiles; scores are transposed, keys the rows and queries the columns of the MFMA results. Four
// score tiles interleave in 64 keys, so that a lane's 16 weights are, as four packed dwords, the second operands of two steps
// of o^T = v^T p^T. Scores, sums and outputs are fp32.
//
// Scales. Those of q and k multiply the scores of a tile, which are of one block of 128 tokens each. Weights are 2^7 times
// exp(score - maximum) when they are rounded: the largest code is 240, and small weights stay normal down to 2^-14 of the
// largest. Sums of o are in units of v's current scale; where that changes, they are rescaled with the softmax's factor.
//
// K tiles go to LDS as they are, V tiles transposed (blocks of 4 or 8 keys x 16 columns in registers, v_perm_b32), both
// XOR-swizzled. Two waves fetch K and two fetch V, one tile ahead, into registers. Two barriers per tile.
//
//   head_dim  threads  queries  keys per tile  LDS bytes  workgroups per compute unit
//   64        256      128      128            16 384     2
//   128       256      128      128            32 768     2
//   256       256      64       64             32 768     2
//
// Shapes. head_dim 64, 128, 256; any sequence lengths; heads_k divides heads_q; rows that see no key give 0 and -inf.
// softmax_scale must be positive. All pointers 16-byte aligned. Workspace is not used.
//
// Limits. Short queries on long keys leave compute units idle: keys are not split. Clang before 20 splits the vector
// registers into two fixed halves and spills with two query tiles: use QUERY_TILES=1 there.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "attention/fp8_tiles.h"
#include "isa/fp8.h"
#include "isa/mfma.h"
#include "isa/schedule.h"
#include "tile/grid.h"
#include "tile/half.h"
#include "tile/scores.h"

namespace {

constexpr int kScaleTokens = 128;     // that share a scale, where blocks do
constexpr float kWeightShift = 7.0f;  // weights are rounded as 2^7 times themselves

/// The scales of an operand: one for all, one for each head, or one for each block of tokens and head.
struct Scales {
    const float* first;
    int per_batch, per_block, per_head;  // elements from one to the next

    static Scales of(const float* first, int granularity, int tokens, int heads) {
        const int blocks = granularity == 2 ? ceil_div(tokens, kScaleTokens) : 1;
        const bool by_head = granularity != 0;
        return {first, by_head ? blocks * heads : 0, granularity == 2 ? heads : 0, by_head ? 1 : 0};
    }

    __device__ __forceinline__ const float* head(int batch, int head) const {
        return first + static_cast<size_t>(batch) * static_cast<size_t>(per_batch) + head * per_head;
    }
};

struct Attention {
    const uint8_t* q;
    const uint8_t* k;
    const uint8_t* v;
    Scales q_scale, k_scale, v_scale;
    uint16_t* o;
    float* lse;
    int seqlen_q, seqlen_k, heads_q, heads_k;
    int causal;
    float scale;       // softmax_scale * log2(e)
    int query_blocks;  // workgroups per head
};

/// Key, counted from the tile's first one, of score[t][i] in this lane (the results of interleaved_row).
__device__ __forceinline__ int interleaved_key(int t, int i) {
    return (t >> 2) * 64 + lane_id() / 16 * 16 + (t & 3) * 4 + i;
}

/// Take the scores, of which `scale` makes exponents of two, into `row` (whose maximum is such an exponent, and whose sum
/// stays this lane's share, 2^7 times) and turn them into weights 2^7 times as large, packed as operands. Returns the factor
/// for what was accumulated before.
template <int Tiles>
__device__ __forceinline__ float take_scaled_scores(
    const f32x4 (&score)[Tiles], SoftmaxRow& row, float scale, uint32_t (&weight)[Tiles]) {
    float maximum = score[0][0];
#pragma unroll
    for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) maximum = fmaxf(maximum, score[t][i]);
    const float correction = row.raise(query_maximum(maximum) * scale, 1.0f, Exp2{});
    const float shift = row.shift(1.0f) - kWeightShift;
    float sum = 0.0f;
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
        float p[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            p[i] = exp2_approx(score[t][i] * scale - shift);
            sum += p[i];
        }
        weight[t] = pack_fp8(p[0], p[1], p[2], p[3]);
    }
    row.sum += sum;
    return correction;
}

/// The queries of one wave, and what they have accumulated.
template <class S>
struct WaveQueries {
    u32x4 q[S::kQueryTiles][S::kSteps];       // second operand of two MFMA steps each
    f32x4 o[S::kQueryTiles][S::kValueTiles];  // o[.][4 * a + b][i]: column 64 a + 16 g + 4 b + i of query r
    SoftmaxRow row[S::kQueryTiles];

    /// Queries beyond the buffer are zeros.
    __device__ __forceinline__ WaveQueries(BufferResource queries, int first, int pitch) : o{} {
        const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n)
#pragma unroll
            for (int step = 0; step < S::kSteps; ++step)
                q[n][step] = buffer_load_16(queries, (first + n * 16 + r) * pitch + (step * 4 + g) * 16);
    }

    /// s^T = k q^T for one tile of keys.
    __device__ __forceinline__ void multiply_keys(
        const uint8_t* keys, f32x4 (&score)[S::kQueryTiles][S::kKeyTiles]) const {
        const int base = S::Keys::offset(interleaved_row(0, lane_id() % 16), lane_id() / 16);
#pragma unroll
        for (int t = 0; t < S::kKeyTiles; ++t) {
#pragma unroll
            for (int n = 0; n < S::kQueryTiles; ++n) score[n][t] = f32x4{};
#pragma unroll
            for (int step = 0; step < S::kSteps; ++step) {
                const u32x4 k = read_chunk(keys, S::Keys::at(base, t / 4 * 64 + interleaved_row(t % 4, 0), step * 4));
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    score[n][t] = mfma_16x16x32_fp8(first_step(k), first_step(q[n][step]), score[n][t]);
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    score[n][t] = mfma_16x16x32_fp8(second_step(k), second_step(q[n][step]), score[n][t]);
            }
        }
    }

    /// o^T += v^T p^T for one tile of keys.
    __device__ __forceinline__ void multiply_values(
        const uint8_t* values, const uint32_t (&weight)[S::kQueryTiles][S::kKeyTiles]) {
        const int base = S::Values::offset(interleaved_row(0, lane_id() % 16), lane_id() / 16);
#pragma unroll
        for (int four = 0; four < S::kKeyTiles; four += 4)
#pragma unroll
            for (int t = 0; t < S::kValueTiles; ++t) {
                const u32x4 v = read_chunk(values, S::Values::at(base, t / 4 * 64 + interleaved_row(t % 4, 0), four));
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    o[n][t] = mfma_16x16x32_fp8(first_step(v), u32x2{weight[n][four], weight[n][four + 1]}, o[n][t]);
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    o[n][t] =
                        mfma_16x16x32_fp8(second_step(v), u32x2{weight[n][four + 2], weight[n][four + 3]}, o[n][t]);
            }
    }

    /// One tile of keys. `visible[n]`: how many of its keys the query of tile n sees; used where `masked`. `unit`: by how
    /// much the sums of o shrink because v's scale grew.
    __device__ __forceinline__ void add_tile(
        const Fp8Tiles<S>& tiles, float scale, float unit, bool masked, const int (&visible)[S::kQueryTiles]) {
        f32x4 score[S::kQueryTiles][S::kKeyTiles];
        uint32_t weight[S::kQueryTiles][S::kKeyTiles];
        set_wave_priority<1>();
        multiply_keys(tiles.k, score);
        set_wave_priority<0>();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) {
            if (masked) {
#pragma unroll
                for (int t = 0; t < S::kKeyTiles; ++t)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        score[n][t][i] = interleaved_key(t, i) < visible[n] ? score[n][t][i] : -INFINITY;
            }
            rescale(o[n], take_scaled_scores(score[n], row[n], scale, weight[n]) * unit);
        }
        set_wave_priority<1>();
        multiply_values(tiles.v, weight);
        set_wave_priority<0>();
    }
};

/// Keys that query `query` sees.
__device__ __forceinline__ int visible_keys(const Attention& problem, int query) {
    if (!problem.causal) return problem.seqlen_k;
    const int limit = query + 1 + problem.seqlen_k - problem.seqlen_q;
    return limit < problem.seqlen_k ? limit : problem.seqlen_k;
}

template <int D>
__global__ void __launch_bounds__(Fp8Shape<D>::kThreads, 2) attend(Attention problem) {
    using S = Fp8Shape<D>;
    static_assert(kScaleTokens % S::kKeys == 0 && kScaleTokens % S::kQueries == 0, "one scale for a tile");
    __shared__ Fp8Tiles<S> tiles;

    // With a mask, blocks with most keys come first.
    const auto [any_head, block] = head_block(problem.query_blocks, problem.causal);
    const int batch = uniform(any_head / problem.heads_q);
    const int head = any_head - batch * problem.heads_q;
    const int head_k = uniform(head / (problem.heads_q / problem.heads_k));
    const int first_query = block * S::kQueries;

    const int rows = problem.seqlen_q - first_query < S::kQueries ? problem.seqlen_q - first_query : S::kQueries;
    const int pitch = problem.heads_q * D;
    const size_t origin =
        ((static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_q) + static_cast<size_t>(first_query)) *
             static_cast<size_t>(problem.heads_q) +
         static_cast<size_t>(head)) *
        D;
    const float* k_scale = problem.k_scale.head(batch, head_k);
    const float* v_scale = problem.v_scale.head(batch, head_k);
    const float q_scale =
        problem.q_scale.head(batch, head)[first_query / kScaleTokens * problem.q_scale.per_block] * problem.scale;

    const int wave_query = wave_id() * S::kQueryTiles * 16;  // within the workgroup's
    WaveQueries<S> wave(make_buffer(problem.q + origin, extent(rows, pitch, D)), wave_query, pitch);
    const int wave_fewest = visible_keys(problem, first_query + wave_query);
    const int wave_most = visible_keys(problem, first_query + wave_query + S::kQueryTiles * 16 - 1);
    int visible[S::kQueryTiles];
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n)
        visible[n] = visible_keys(problem, first_query + wave_query + n * 16 + lane_id() % 16);

    const int end = visible_keys(problem, first_query + rows - 1);
    const size_t keys =
        (static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_k) * static_cast<size_t>(problem.heads_k) +
         static_cast<size_t>(head_k)) *
        D;
    Fp8TileLoader<S> loader(problem.k + keys, problem.v + keys, problem.seqlen_k, problem.heads_k * D);
    if (end > 0) loader.load(0);
    float unit = v_scale[0];  // of the sums of o
    wait_for_loads();
    for (int key = 0; key < end; key += S::kKeys) {
        const int scale_block = key / kScaleTokens;
        const float of_keys = k_scale[scale_block * problem.k_scale.per_block];
        const float of_values = v_scale[scale_block * problem.v_scale.per_block];
        loader.store(tiles);
        __syncthreads();
        if (key + S::kKeys < end) loader.load(key + S::kKeys);
        if (key < wave_most) {
            const float shrink = of_values == unit ? 1.0f : unit / of_values;
            wave.add_tile(tiles, q_scale * of_keys, shrink, key + S::kKeys > wave_fewest, visible);
            unit = of_values;
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) visible[n] -= S::kKeys;
    }

    const BufferResource out = make_buffer(problem.o + origin, extent(rows, pitch * 2, D * 2));
    float* lse = problem.lse + static_cast<size_t>(any_head) * static_cast<size_t>(problem.seqlen_q);
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n) {
        SoftmaxRow row = wave.row[n];
        row.sum = query_sum(row.sum);
        store_query_row<Bf16>(out, wave.o[n], wave_query + n * 16, pitch * 2, row.inverse() * unit);
        const int query = first_query + wave_query + n * 16 + lane_id();
        if (lane_id() < 16 && query < problem.seqlen_q) lse[query] = row.lse(1.0f) - kWeightShift * kLn2;
    }
}

template <int D>
int launch(Attention problem, int batch, void* queue) {
    using S = Fp8Shape<D>;
    problem.query_blocks = ceil_div(problem.seqlen_q, S::kQueries);
    const long long blocks = static_cast<long long>(problem.query_blocks) * problem.heads_q * batch;
    if (blocks * S::kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    LAUNCH(attend<D>, dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

}  // namespace

extern "C" int flash_attention_fp8(
    const void* q, const void* k, const void* v, const float* q_scale, const float* k_scale, const float* v_scale,
    void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int scales,
    int causal, float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    (void)workspace, (void)workspace_bytes;
    constexpr int kMaxHeads = 1 << 14;  // 128 rows of all heads are addressed with 31 bits
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0 ||
        heads_q > kMaxHeads || scales < 0 || scales > 2 || !(softmax_scale > 0.0f))
        return kUnsupportedShape;
    const Attention problem = {
        static_cast<const uint8_t*>(q),
        static_cast<const uint8_t*>(k),
        static_cast<const uint8_t*>(v),
        Scales::of(q_scale, scales, seqlen_q, heads_q),
        Scales::of(k_scale, scales, seqlen_k, heads_k),
        Scales::of(v_scale, scales, seqlen_k, heads_k),
        static_cast<uint16_t*>(o),
        lse,
        seqlen_q,
        seqlen_k,
        heads_q,
        heads_k,
        causal,
        softmax_scale * kLog2E,
        0};
    switch (head_dim) {
        case 64: return launch<64>(problem, batch, queue);
        case 128: return launch<128>(problem, batch, queue);
        case 256: return launch<256>(problem, batch, queue);
        default: return kUnsupportedShape;
    }
}
