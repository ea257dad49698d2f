// SPDX-License-Identifier: MIT
// Absorbed MLA decode over a paged cache on bf16 MFMA, for caches of any format: a TileLoader puts tokens into LDS as bf16.
// mla_decode/mfma.hip says how the parts work together.
//
//   class TileLoader {
//       static constexpr int kTokenBytes;                                                  // in the cache
//       static int length(const MlaDecode& problem, int request);                          // its tokens
//       TileLoader(const MlaDecode& problem, int request, int length, int first_tile);
//       void load(int tile);            // request its tokens; those beyond `length` become zeros
//       void store(uint8_t* kv) const;  // wait for them and put them into LDS
//   };
#pragma once

#include "ceil_div.h"
#include "launch.h"

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/combine_splits.h"
#include "tile/grid.h"
#include "tile/half.h"
#include "tile/half_panel.h"
#include "tile/page_list.h"
#include "tile/scores.h"
#include "tile/transpose.h"

constexpr int kKeyColumns = 576, kValueColumns = 512;
constexpr int kRowBytes = kKeyColumns * 2;  // of q, and of a token in LDS
constexpr int kPageTokens = 64;
constexpr int kTokens = 32;  // of a tile: half a page
using Rows = KeyPanel<kKeyColumns>;

struct MlaDecode {
    const uint16_t* q;
    const void* kv_cache;
    const int* block_table;  // null: a request's pages follow one another, max_blocks_per_seq of them ...
    const int* seqlens;      // null: ... and all requests have `length` tokens ...
    const uint16_t* rotary;  // ... whose last 64 key columns are [batch, rotary_tokens, 64] here, not in the cache
    int length, rotary_tokens;
    uint16_t* o;
    float* lse;
    SplitWorkspace parts;
    int batch, seqlen_q, heads_q, max_blocks_per_seq;
    int causal;
    float scale;  // softmax_scale * log2(e)
    int splits, tiles_per_split;
};

constexpr int kWaves = 8, kThreads = kWaves * kWaveSize;
constexpr int kWaveColumns = kValueColumns / kWaves;  // of o
constexpr int kTiles = kWaveColumns / 16;             // MFMA tiles across them, and adjacent columns per lane
static_assert(kTiles == 4, "four halves are one 8-byte read");

template <int RowTiles>
struct alignas(16) Lds {
    uint8_t kv[kTokens * kRowBytes];
    u32x4 probability[RowTiles][kWaveSize];  // as the lanes of the scoring wave hold them, which is how all need them
    float factor[RowTiles * 16];             // for the sums so far; at the end, 1 / sum of probabilities
};

/// Sixteen rows of q and their softmax: what a scoring wave keeps.
class ScoringRows {
    static constexpr int kSteps = kKeyColumns / 32;
    u32x4 q_[kSteps];  // second operand of two MFMA steps each
    SoftmaxRow row_;

public:
    /// Rows beyond the end are zeros.
    __device__ __forceinline__ ScoringRows(BufferResource queries, int first) {
        const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
            q_[step] = buffer_load_16(queries, (first + r) * kRowBytes + (step * 4 + g) * 16);
    }

    /// Score one tile, of which this lane's row sees `visible` tokens (counts where `masked`). Returns the rescaling factor.
    __device__ __forceinline__ float take_tile(
        const uint8_t* kv, float scale, bool masked, int visible, u32x4& probability) {
        const int base = Rows::offset(paired_row(0, lane_id() % 16), lane_id() / 16);
        f32x4 score[2] = {};
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            const u32x4 k0 = read_chunk(kv, Rows::at(base, 0, step * 4));
            const u32x4 k1 = read_chunk(kv, Rows::at(base, paired_row(1, 0), step * 4));
            score[0] = Bf16::multiply(first_step(k0), first_step(q_[step]), score[0]);
            score[1] = Bf16::multiply(first_step(k1), first_step(q_[step]), score[1]);
            score[0] = Bf16::multiply(second_step(k0), second_step(q_[step]), score[0]);
            score[1] = Bf16::multiply(second_step(k1), second_step(q_[step]), score[1]);
        }
        if (masked) mask_scores(score, visible);
        u32x2 packed[2];
        const float correction = take_scores<Bf16>(score, row_, scale, packed);
        probability = u32x4{packed[0][0], packed[0][1], packed[1][0], packed[1][1]};
        return correction;
    }

    /// The row's whole softmax state.
    __device__ __forceinline__ SoftmaxRow total() const {
        SoftmaxRow row = row_;
        row.sum = query_sum(row.sum);
        return row;
    }
};

/// One wave's columns of o, for all rows: o[n][j][i] is column first + kTiles * (4 g + i) + j of row r of tile n.
template <int RowTiles>
struct WaveColumns {
    f32x4 o[RowTiles][kTiles];

    __device__ __forceinline__ WaveColumns() : o{} {}

    /// Columns of `kTiles` adjacent values per lane, for eight tokens: first operands of two MFMA steps each.
    static __device__ __forceinline__ void read_values(const uint8_t* kv, u32x4 (&value)[kTiles]) {
        const int r = lane_id() % 16, g = lane_id() / 16;
        const int byte = (wave_id() * kWaveColumns + r * kTiles) * 2;
        const int base = Rows::offset(g * 8, byte / kChunk) + byte % kChunk;
        u32x2 row[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) row[i] = *reinterpret_cast<const u32x2*>(kv + Rows::at(base, i, 0));
        transpose_halves(row, value);
    }

    __device__ __forceinline__ void add_tile(const Lds<RowTiles>& lds) {
        u32x4 value[kTiles];
        read_values(lds.kv, value);
        set_wave_priority<1>();
#pragma unroll
        for (int n = 0; n < RowTiles; ++n) {
            const u32x4 probability = lds.probability[n][lane_id()];
            rescale(o[n], lds.factor[n * 16 + lane_id() % 16]);
#pragma unroll
            for (int j = 0; j < kTiles; ++j)
                o[n][j] = Bf16::multiply(first_step(value[j]), first_step(probability), o[n][j]);
#pragma unroll
            for (int j = 0; j < kTiles; ++j)
                o[n][j] = Bf16::multiply(second_step(value[j]), second_step(probability), o[n][j]);
        }
        set_wave_priority<0>();
    }

    /// Value x (0 .. 4 * kTiles - 1) of this lane's adjacent columns in row tile n.
    __device__ __forceinline__ float column(int n, int x) const { return o[n][x % kTiles][x / kTiles]; }

    /// First of this lane's columns.
    static __device__ __forceinline__ int first_column() {
        return wave_id() * kWaveColumns + lane_id() / 16 * 4 * kTiles;
    }

    /// Normalised rows to a buffer of fp32 or bf16 rows; those beyond it are dropped.
    __device__ __forceinline__ void store_fp32(BufferResource to, const float* inverse) const {
#pragma unroll
        for (int n = 0; n < RowTiles; ++n) {
            const int row = n * 16 + lane_id() % 16;
            const int offset = (row * kValueColumns + first_column()) * 4;
#pragma unroll
            for (int x = 0; x < 4 * kTiles; x += 4) {
                const f32x4 piece = f32x4{column(n, x), column(n, x + 1), column(n, x + 2), column(n, x + 3)};
                buffer_store_16(to, offset + x * 4, __builtin_bit_cast(u32x4, piece * inverse[row]));
            }
        }
    }

    __device__ __forceinline__ void store_bf16(BufferResource to, const float* inverse) const {
#pragma unroll
        for (int n = 0; n < RowTiles; ++n) {
            const int row = n * 16 + lane_id() % 16;
            const int offset = (row * kValueColumns + first_column()) * 2;
            const float factor = inverse[row];
#pragma unroll
            for (int x = 0; x < 4 * kTiles; x += 8) {
                u32x4 packed;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    packed[i] = pack_bf16(column(n, x + 2 * i) * factor, column(n, x + 2 * i + 1) * factor);
                buffer_store_16(to, offset + x * 2, packed);
            }
        }
    }
};

template <class TileLoader, int RowTiles>
__global__ void __launch_bounds__(kThreads, 2) decode(MlaDecode problem) {
    constexpr int kRows = RowTiles * 16;
    __shared__ Lds<RowTiles> lds;

    // Row blocks of one range of tokens are neighbours on one die, whose L2 then serves all but the first.
    const int rows_per_request = problem.seqlen_q * problem.heads_q;
    const int row_blocks = (rows_per_request + kRows - 1) / kRows;
    const int index = die_contiguous(static_cast<int>(gridDim.x));
    const int range_index = uniform(index / row_blocks);
    const int first_row = (index - range_index * row_blocks) * kRows;
    const int request = uniform(range_index / problem.splits);
    const int split = range_index - request * problem.splits;

    const int length = TileLoader::length(problem, request);
    const KvRange range = kv_range((length + kTokens - 1) / kTokens, problem.tiles_per_split, split);
    const size_t row_origin =
        static_cast<size_t>(request) * static_cast<size_t>(rows_per_request) + static_cast<size_t>(first_row);
    const int rows = rows_per_request - first_row < kRows ? rows_per_request - first_row : kRows;

    const int wave = wave_id();

    // The row this lane scores, and how many tokens it and the first query see.
    const int row = first_row + wave * 16 + lane_id() % 16;
    const int hidden = problem.causal ? problem.seqlen_q - 1 - row / problem.heads_q : 0;
    const int fewest = length - (problem.causal ? problem.seqlen_q - 1 : 0);

    TileLoader loader(problem, request, length, range.begin);
    if (range.begin < range.end) loader.load(range.begin);
    const bool scores = wave < RowTiles;
    ScoringRows scoring(
        make_buffer(problem.q + row_origin * kKeyColumns, rows * kRowBytes), scores ? wave * 16 : kRows);
    WaveColumns<RowTiles> columns;
    wait_for_loads();
    for (int tile = range.begin; tile < range.end; ++tile) {
        loader.store(lds.kv);
        __syncthreads();
        if (tile + 1 < range.end) loader.load(tile + 1);
        if (scores) {
            const int token = tile * kTokens;
            u32x4 probability;
            const float factor = scoring.take_tile(
                lds.kv, problem.scale, token + kTokens > fewest, length - hidden - token, probability);
            lds.probability[wave][lane_id()] = probability;
            if (lane_id() < 16) lds.factor[wave * 16 + lane_id()] = factor;
        }
        __syncthreads();
        columns.add_tile(lds);
        __syncthreads();
    }

    if (scores) {
        const SoftmaxRow total = scoring.total();
        if (lane_id() < 16) {
            lds.factor[wave * 16 + lane_id()] = total.inverse();
            if (row < rows_per_request) {
                const float lse = total.lse(problem.scale);
                const size_t head = static_cast<size_t>(row % problem.heads_q);
                const size_t query = static_cast<size_t>(row / problem.heads_q);
                const size_t of_request = static_cast<size_t>(request) * static_cast<size_t>(rows_per_request);
                const size_t all_rows = static_cast<size_t>(problem.batch) * static_cast<size_t>(rows_per_request);
                if (problem.splits == 1)
                    problem.lse[of_request + head * static_cast<size_t>(problem.seqlen_q) + query] = lse;
                else
                    problem.parts.lse[static_cast<size_t>(split) * all_rows + of_request + static_cast<size_t>(row)] =
                        lse;
            }
        }
    }
    __syncthreads();
    if (problem.splits == 1) {
        columns.store_bf16(make_buffer(problem.o + row_origin * kValueColumns, rows * kValueColumns * 2), lds.factor);
    } else if (range.begin < range.end) {
        const size_t all_rows = static_cast<size_t>(problem.batch) * static_cast<size_t>(rows_per_request);
        float* part = problem.parts.o + (static_cast<size_t>(split) * all_rows + row_origin) * kValueColumns;
        columns.store_fp32(make_buffer(part, rows * kValueColumns * 4), lds.factor);
    }
}

/// Parts to cut the longest possible request into. The unit of the costs is what a tile takes a compute unit at its share of
/// the memory's rate: 2.6 us for tokens of 1152 bytes.
inline int choose_parts(
    const MlaDecode& problem, int row_blocks, int tiles, int token_bytes, size_t workspace_bytes, int wanted) {
    const double tile_us = 2.6 * token_bytes / 1152;
    const long long rows = static_cast<long long>(problem.batch) * problem.seqlen_q * problem.heads_q;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, kValueColumns);
    if (wanted > 0) return static_cast<int>(wanted < most ? wanted : most > 1 ? most : 1);
    const double part = 2.0 * static_cast<double>(SplitWorkspace::bytes(1, rows, kValueColumns)) / (4.3e6 * tile_us);
    return choose_splits(
        static_cast<long long>(problem.batch) * row_blocks, tiles, kComputeUnits, most,
        {5.2 / tile_us, 7.8 / tile_us, part});
}

/// Decode requests of at most `tokens` tokens in `wanted_parts` (0: as many as the model of choose_parts says), as far as the
/// workspace reaches.
template <class TileLoader, int RowTiles>
int launch_decode(
    MlaDecode problem, int tokens, int wanted_parts, void* workspace, size_t workspace_bytes, void* queue) {
    const int rows_per_request = problem.seqlen_q * problem.heads_q;
    const long long rows = static_cast<long long>(problem.batch) * rows_per_request;
    const int row_blocks = ceil_div(rows_per_request, RowTiles * 16);
    const int tiles = ceil_div(tokens, kTokens);
    const int wanted = choose_parts(
        problem, row_blocks, tiles, TileLoader::kTokenBytes, workspace ? workspace_bytes : 0, wanted_parts);
    problem.tiles_per_split = tiles > 0 ? ceil_div(tiles, wanted) : 1;
    problem.splits = tiles > 0 ? ceil_div(tiles, problem.tiles_per_split) : 1;
    problem.parts = SplitWorkspace::at(workspace, problem.splits, rows, kValueColumns);
    const long long blocks = static_cast<long long>(problem.batch) * row_blocks * problem.splits;
    if (blocks * kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    LAUNCH((decode<TileLoader, RowTiles>), dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, queue)(problem);
    if (problem.splits > 1) {
        const unsigned merges = static_cast<unsigned>(ceil_div<long long>(rows, kCombineRows));
        LAUNCH(combine_splits<kValueColumns>, dim3(merges), dim3(kCombineThreads), 0, queue)(
            problem.parts, problem.o, problem.lse, problem.splits, rows, problem.seqlen_q, problem.heads_q);
    }
    return LAUNCH_STATUS();
}

/// The call of problems over a paged cache: their entry points differ in its format alone. At most `MaxRowTiles` tiles of
/// 16 rows share a workgroup.
template <class TileLoader, int MaxRowTiles>
int run_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int max_blocks_per_seq, int causal, float softmax_scale, int wanted_parts,
    void* workspace, size_t workspace_bytes, void* queue) {
    constexpr int kMaxPages = 1 << 24;  // tokens of a request, and more, are counted with 31 bits
    if (batch < 1 || seqlen_q < 1 || heads_q < 16 || heads_q % 16 != 0 || max_blocks_per_seq < 0 ||
        max_blocks_per_seq > kMaxPages || !(softmax_scale > 0.0f) ||
        static_cast<long long>(seqlen_q) * heads_q > 0xffffff)
        return kUnsupportedShape;
    const MlaDecode problem = {
        static_cast<const uint16_t*>(q),
        kv_cache,
        block_table,
        seqlens,
        nullptr,
        0,
        0,
        static_cast<uint16_t*>(o),
        lse,
        {},
        batch,
        seqlen_q,
        heads_q,
        max_blocks_per_seq,
        causal,
        softmax_scale * kLog2E,
        1,
        1};
    const int rows = seqlen_q * heads_q, tokens = max_blocks_per_seq * kPageTokens;
    const int row_tiles = rows <= 16 ? 1 : rows <= 32 ? 2 : 4;
    switch (row_tiles < MaxRowTiles ? row_tiles : MaxRowTiles) {
        case 1: return launch_decode<TileLoader, 1>(problem, tokens, wanted_parts, workspace, workspace_bytes, queue);
        case 2: return launch_decode<TileLoader, 2>(problem, tokens, wanted_parts, workspace, workspace_bytes, queue);
        default: return launch_decode<TileLoader, 4>(problem, tokens, wanted_parts, workspace, workspace_bytes, queue);
    }
}
