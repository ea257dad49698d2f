// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention forward on MFMA 16x16x16, bf16 and fp16: transposed scores, values transposed in registers
//!KERNEL arch gfx942
//!KERNEL tune QUERY_TILES=2,1
//
// FlashAttention (forward) for MI300 (CDNA3): O and the natural-log LSE, causal (bottom-right) or full, grouped heads.
//
// Algorithm. A workgroup of four waves owns 128 queries of one head; each wave keeps its 32 in registers (QUERY_TILES times
// 16; 16 for head_dim 256) and walks the keys in tiles. Everything is transposed: s^T = k q^T makes keys the rows and
// queries the columns of the MFMA results, so a lane's scores belong to one query, the softmax needs two lane exchanges per
// tile, and the probabilities already lie as the second operand of o^T = v^T p^T. Scores and sums are fp32, probabilities
// 16-bit.
//
// K tiles go to LDS as they are, V tiles transposed (8 x 8 values in registers, v_perm_b32), both XOR-swizzled. Two waves
// fetch K and two fetch V, one tile ahead, into registers. Two barriers per tile. Tiles beyond a wave's causal limit are
// skipped, only the tiles that cross a limit are masked; workgroups with most keys start first.
//
//   head_dim  threads  queries  keys per tile  LDS bytes  workgroups per compute unit
//   64        256      128      128            32 768     2
//   128       256      128      64             32 768     2
//   256       256      64       32             32 768     2
//
// Shapes. head_dim 64, 128, 256; any sequence lengths; heads_k divides heads_q; rows that see no key give 0 and -inf.
// softmax_scale must be positive. All pointers 16-byte aligned. Workspace is not used.
//
// Limits. Short queries on long keys leave compute units idle: keys are not split. Clang 20 and
// older split the vector registers into two fixed halves and spill with two query tiles: use QUERY_TILES=1 there.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/grid.h"
#include "tile/half.h"
#include "tile/half_panel.h"
#include "tile/scores.h"
#include "tile/transpose.h"

#ifndef QUERY_TILES
#define QUERY_TILES 2
#endif

namespace {

struct Attention {
    const uint16_t* q;
    const uint16_t* k;
    const uint16_t* v;
    uint16_t* o;
    float* lse;
    int seqlen_q, seqlen_k, heads_q, heads_k;
    int causal;
    float scale;       // softmax_scale * log2(e)
    int query_blocks;  // workgroups per head
};

template <int D_>
struct Shape {
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
struct alignas(16) Tiles {
    uint8_t k[S::kKeys * S::kD * 2];
    uint8_t v[S::kD * S::kKeys * 2];  // transposed
};

/// Bytes of `rows` (any sign) rows of `width` bytes that begin `pitch` bytes apart.
__device__ __forceinline__ int extent(int rows, int pitch, int width) {
    return rows > 0 ? (rows - 1) * pitch + width : 0;
}

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
    __device__ __forceinline__ TileLoader(const Attention& problem, int batch, int head_k) {
        on_v_ = wave_id() < kTasks / kWaveSize;
        const int task = static_cast<int>(threadIdx.x) % kTasks;
        chunk_ = task % S::kChunks;
        row_ = on_v_ ? task / S::kChunks * kLoads : task / S::kChunks;
        step_ = on_v_ ? 1 : kKeyStep;
        pitch_ = problem.heads_k * S::kD * 2;
        left_ = problem.seqlen_k;
        const size_t first =
            (static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_k) * static_cast<size_t>(problem.heads_k) +
             static_cast<size_t>(head_k)) *
            S::kD;
        matrix_ = (on_v_ ? problem.v : problem.k) + first;
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
    __device__ __forceinline__ void store(Tiles<S>& tiles) const {
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

    /// Queries beyond the sequence are zeros.
    __device__ __forceinline__ WaveQueries(BufferResource queries, int first, int pitch) : o{} {
        const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n)
#pragma unroll
            for (int step = 0; step < S::kD / 32; ++step)
                q[n][step] = buffer_load_16(queries, (first + n * 16 + r) * pitch + (step * 4 + g) * 16);
    }

    /// s^T = k q^T for one tile of keys.
    __device__ __forceinline__ void multiply_keys(
        const uint8_t* keys, f32x4 (&score)[S::kQueryTiles][S::kKeyTiles]) const {
        const int base = S::Keys::offset(paired_row(0, lane_id() % 16), lane_id() / 16);
#pragma unroll
        for (int t = 0; t < S::kKeyTiles; ++t) {
#pragma unroll
            for (int n = 0; n < S::kQueryTiles; ++n) score[n][t] = f32x4{};
#pragma unroll
            for (int step = 0; step < S::kD / 32; ++step) {
                const u32x4 k = read_chunk(keys, S::Keys::at(base, paired_row(t, 0), step * 4));
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    score[n][t] = Half::multiply(first_step(k), first_step(q[n][step]), score[n][t]);
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    score[n][t] = Half::multiply(second_step(k), second_step(q[n][step]), score[n][t]);
            }
        }
    }

    /// o^T += v^T p^T for one tile of keys.
    __device__ __forceinline__ void multiply_values(
        const uint8_t* values, const u32x2 (&probability)[S::kQueryTiles][S::kKeyTiles]) {
        const int base = S::Values::offset(interleaved_row(0, lane_id() % 16), lane_id() / 16);
#pragma unroll
        for (int pair = 0; pair < S::kKeyTiles / 2; ++pair)
#pragma unroll
            for (int t = 0; t < S::kValueTiles; ++t) {
                const u32x4 v =
                    read_chunk(values, S::Values::at(base, t / 4 * 64 + interleaved_row(t % 4, 0), pair * 4));
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    o[n][t] = Half::multiply(first_step(v), probability[n][2 * pair], o[n][t]);
#pragma unroll
                for (int n = 0; n < S::kQueryTiles; ++n)
                    o[n][t] = Half::multiply(second_step(v), probability[n][2 * pair + 1], o[n][t]);
            }
    }

    /// One tile of keys. `visible[n]`: how many of its keys the query of tile n sees; used where `masked`.
    __device__ __forceinline__ void add_tile(
        const Tiles<S>& tiles, float scale, bool masked, const int (&visible)[S::kQueryTiles]) {
        f32x4 score[S::kQueryTiles][S::kKeyTiles];
        u32x2 probability[S::kQueryTiles][S::kKeyTiles];
        set_wave_priority<1>();
        multiply_keys(tiles.k, score);
        set_wave_priority<0>();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) {
            if (masked) mask_scores(score[n], visible[n]);
            const float correction = take_scores<Half>(score[n], row[n], scale, probability[n]);
            rescale(o[n], correction);
        }
        set_wave_priority<1>();
        multiply_values(tiles.v, probability);
        set_wave_priority<0>();
    }

    /// Normalise and store query tile n, whose first query is `first`, as rows of `out`.
    __device__ __forceinline__ void store(BufferResource out, int n, int first, int pitch, float inverse) const {
        const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
        for (int a = 0; a < S::kValueTiles / 4; ++a)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const f32x4 x = o[n][4 * a + 2 * half] * inverse, y = o[n][4 * a + 2 * half + 1] * inverse;
                const u32x4 packed = {
                    Half::pack(x[0], x[1]), Half::pack(x[2], x[3]), Half::pack(y[0], y[1]), Half::pack(y[2], y[3])};
                buffer_store_16(out, (first + r) * pitch + (64 * a + 16 * g + 8 * half) * 2, packed);
            }
    }
};

/// Keys that query `query` sees.
__device__ __forceinline__ int visible_keys(const Attention& problem, int query) {
    if (!problem.causal) return problem.seqlen_k;
    const int limit = query + 1 + problem.seqlen_k - problem.seqlen_q;
    return limit < problem.seqlen_k ? limit : problem.seqlen_k;
}

template <class Half, int D>
__global__ void __launch_bounds__(Shape<D>::kThreads, 2) attend(Attention problem) {
    using S = Shape<D>;
    __shared__ Tiles<S> tiles;

    // All query blocks of a head on one die, whose L2 then holds its K and V; the blocks with most keys first.
    const int index = die_contiguous(static_cast<int>(gridDim.x));
    const int any_head = uniform(index / problem.query_blocks);
    const int block = problem.query_blocks - 1 - (index - any_head * problem.query_blocks);
    const int batch = uniform(any_head / problem.heads_q);
    const int head = any_head - batch * problem.heads_q;
    const int head_k = uniform(head / (problem.heads_q / problem.heads_k));
    const int first_query = block * S::kQueries;

    const int rows = problem.seqlen_q - first_query < S::kQueries ? problem.seqlen_q - first_query : S::kQueries;
    const int pitch = problem.heads_q * D * 2;
    const size_t origin =
        ((static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_q) + static_cast<size_t>(first_query)) *
             static_cast<size_t>(problem.heads_q) +
         static_cast<size_t>(head)) *
        D;
    const int bytes = extent(rows, pitch, D * 2);

    const int wave_query = wave_id() * S::kQueryTiles * 16;  // within the workgroup's
    WaveQueries<Half, S> wave(make_buffer(problem.q + origin, bytes), wave_query, pitch);
    const int wave_fewest = visible_keys(problem, first_query + wave_query);
    const int wave_most = visible_keys(problem, first_query + wave_query + S::kQueryTiles * 16 - 1);
    int visible[S::kQueryTiles];
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n)
        visible[n] = visible_keys(problem, first_query + wave_query + n * 16 + lane_id() % 16);

    const int end = visible_keys(problem, first_query + rows - 1);
    TileLoader<S> loader(problem, batch, head_k);
    if (end > 0) loader.load(0);
    wait_for_loads();
    for (int key = 0; key < end; key += S::kKeys) {
        loader.store(tiles);
        __syncthreads();
        if (key + S::kKeys < end) loader.load(key + S::kKeys);
        if (key < wave_most) wave.add_tile(tiles, problem.scale, key + S::kKeys > wave_fewest, visible);
        __syncthreads();
#pragma unroll
        for (int n = 0; n < S::kQueryTiles; ++n) visible[n] -= S::kKeys;
    }

    const BufferResource out = make_buffer(problem.o + origin, bytes);
    float* lse =
        problem.lse + (static_cast<size_t>(batch) * static_cast<size_t>(problem.heads_q) + static_cast<size_t>(head)) *
                          static_cast<size_t>(problem.seqlen_q);
#pragma unroll
    for (int n = 0; n < S::kQueryTiles; ++n) {
        SoftmaxRow row = wave.row[n];
        row.sum = query_sum(row.sum);
        wave.store(out, n, wave_query + n * 16, pitch, row.inverse());
        const int query = first_query + wave_query + n * 16 + lane_id();
        if (lane_id() < 16 && query < problem.seqlen_q) lse[query] = row.lse(problem.scale);
    }
}

template <class Half, int D>
int launch(Attention problem, int batch, void* queue) {
    using S = Shape<D>;
    problem.query_blocks = ceil_div(problem.seqlen_q, S::kQueries);
    const long long blocks = static_cast<long long>(problem.query_blocks) * problem.heads_q * batch;
    if (blocks * S::kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    LAUNCH((attend<Half, D>), dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

template <class Half>
int launch(const Attention& problem, int batch, int head_dim, void* queue) {
    switch (head_dim) {
        case 64: return launch<Half, 64>(problem, batch, queue);
        case 128: return launch<Half, 128>(problem, batch, queue);
        case 256: return launch<Half, 256>(problem, batch, queue);
        default: return kUnsupportedShape;
    }
}

}  // namespace

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k,
    int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    (void)workspace, (void)workspace_bytes;
    constexpr int kMaxHeads = 1 << 14;  // 128 rows of all heads are addressed with 31 bits
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0 ||
        heads_q > kMaxHeads || !(softmax_scale > 0.0f))
        return kUnsupportedShape;
    const Attention problem = {
        static_cast<const uint16_t*>(q),
        static_cast<const uint16_t*>(k),
        static_cast<const uint16_t*>(v),
        static_cast<uint16_t*>(o),
        lse,
        seqlen_q,
        seqlen_k,
        heads_q,
        heads_k,
        causal,
        softmax_scale * kLog2E,
        0};
    return half ? launch<Fp16>(problem, batch, head_dim, queue) : launch<Bf16>(problem, batch, head_dim, queue);
}
