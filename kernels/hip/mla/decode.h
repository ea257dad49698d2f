// SPDX-License-Identifier: MIT
// Absorbed MLA decode over a paged cache on bf16 MFMA, for caches of any format: a TileLoader puts tokens into LDS as bf16.
// mla_decode/mfma.hip says how the parts work together. Half of the threads, kLoaderThreads, load a tile.
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
constexpr int kTokens = 16;  // of a tile: a quarter of a page

/// For rows that are read both ways: chunk key_chunk of 16 rows, and a range of chunks of every fourth row.
struct KeyOfFourRows {
    static constexpr int kMask = 3;
    static __device__ __forceinline__ int of(int row) { return row & 3; }
};
using Rows = Swizzle<kRowBytes, KeyOfFourRows>;

/// Which chunk of a row of keys or queries a lane multiplies in a step (of two MFMA). Lanes 16 apart are at chunks five apart,
/// so that those LDS serves together hit all banks.
__device__ __forceinline__ int key_chunk(int step) {
    const int g = lane_id() / 16;
    return (step & ~1) * 4 + ((step ^ g) & 1) * 4 + g;
}

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

/// Tokens of a tile of a request of `length` tokens: none where it lies beyond them.
__device__ __forceinline__ int tokens_of(int tile, int length) {
    const int left = length - tile * kTokens;
    return left < 0 ? 0 : left < kTokens ? left : kTokens;
}

constexpr int kWaves = 8, kThreads = kWaves * kWaveSize;
constexpr int kValueWaves = 4, kLoaderThreads = kValueWaves * kWaveSize;
__device__ __forceinline__ int loader_thread() { return static_cast<int>(threadIdx.x) % kLoaderThreads; }
__device__ __forceinline__ int loader_wave() { return wave_id() % kValueWaves; }

constexpr int kWaveColumns = kValueColumns / kValueWaves;  // of o
constexpr int kTiles = kWaveColumns / 16;                  // MFMA tiles across them, and adjacent columns per lane
static_assert(kTiles == kHalvesPerChunk, "a lane's columns of a token are one chunk");

/// Tiles of tokens by turns: one is scored, the next one is there for the first reads of it, and the third is written.
constexpr int kSlots = 3;

template <int RowTiles>
struct alignas(16) Lds {
    uint8_t kv[kSlots][kTokens * kRowBytes];
    // Of two tiles by turns: probabilities as the lanes of the scoring wave hold them, which is how all need them, and factors
    // for the sums before them; after the last tile, 1 / sum of probabilities.
    u32x2 probability[2][RowTiles][kWaveSize];
    float factor[2][RowTiles * 16];
};

/// Sixteen rows of q and their softmax: what a scoring wave keeps.
class ScoringRows {
    static constexpr int kSteps = kKeyColumns / 32;
    static constexpr int kAhead = 6;
    static_assert(kSteps % kAhead == 0, "a chunk has the same place in every tile");
    u32x4 q_[kSteps];    // second operand of two MFMA steps each
    u32x4 key_[kAhead];  // first ones, on their way
    SoftmaxRow row_;

    static __device__ __forceinline__ u32x4 read_keys(const uint8_t* kv, int step) {
        return read_chunk(kv, Rows::offset(lane_id() % 16, key_chunk(step % 2)) + step / 2 * 2 * 4 * kChunk);
    }

public:
    /// Rows beyond the end are zeros.
    __device__ __forceinline__ ScoringRows(BufferResource queries, int first) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
            q_[step] = buffer_load_16(queries, (first + lane_id() % 16) * kRowBytes + key_chunk(step) * kChunk);
    }

    /// Request the first keys of the first tile.
    __device__ __forceinline__ void begin(const uint8_t* kv) {
#pragma unroll
        for (int step = 0; step < kAhead; ++step) key_[step] = read_keys(kv, step);
    }

    /// Score one tile, of which this lane's row sees `visible` tokens (counts where `masked`), and request the first keys of
    /// the next one. Returns the rescaling factor.
    __device__ __forceinline__ float take_tile(
        const uint8_t* kv, const uint8_t* next, float scale, bool masked, int visible, u32x2& probability) {
        f32x4 score[1] = {};
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            schedule_barrier();
            const u32x4 key = key_[step % kAhead];
            score[0] = Bf16::multiply(first_step(key), first_step(q_[step]), score[0]);
            score[0] = Bf16::multiply(second_step(key), second_step(q_[step]), score[0]);
            key_[step % kAhead] = read_keys(step + kAhead < kSteps ? kv : next, (step + kAhead) % kSteps);
        }
        if (masked)
#pragma unroll
            for (int i = 0; i < 4; ++i) score[0][i] = lane_id() / 16 * 4 + i < visible ? score[0][i] : -INFINITY;
        u32x2 packed[1];
        const float correction = take_scores<Bf16>(score, row_, scale, packed);
        probability = packed[0];
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
    u32x4 token[4];       // this lane's columns of four tokens of the next tile to add,
    u32x2 value[kTiles];  // and of the one to add now: first operands, a column each
    u32x2 probability[RowTiles];
    float factor[RowTiles];

    __device__ __forceinline__ WaveColumns() : o{} {}

    __device__ __forceinline__ void read_values(const uint8_t* kv) {
        const int r = lane_id() % 16, g = lane_id() / 16;
        const int base = Rows::offset(g * 4, wave_id() * (kWaveColumns / kHalvesPerChunk) + r);
#pragma unroll
        for (int i = 0; i < 4; ++i) token[i] = read_chunk(kv, Rows::at(base, i, 0));
    }

    __device__ __forceinline__ void hold_values() { transpose_halves(token, value); }

    /// The probabilities of a tile, and the factors before it.
    __device__ __forceinline__ void read_weights(const Lds<RowTiles>& lds, int tile) {
#pragma unroll
        for (int n = 0; n < RowTiles; ++n) {
            probability[n] = lds.probability[tile & 1][n][lane_id()];
            factor[n] = lds.factor[tile & 1][n * 16 + lane_id() % 16];
        }
    }

    /// Add the values held, with the weights read.
    __device__ __forceinline__ void add_values() {
        bool changes = false;
#pragma unroll
        for (int n = 0; n < RowTiles; ++n) changes |= factor[n] != 1.0f;
        if (any_lane(changes))
#pragma unroll
            for (int n = 0; n < RowTiles; ++n) rescale(o[n], factor[n]);
#pragma unroll
        for (int n = 0; n < RowTiles; ++n)
#pragma unroll
            for (int j = 0; j < kTiles; ++j) o[n][j] = Bf16::multiply(value[j], probability[n], o[n][j]);
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

    // Those that add load every other tile, and those that score the ones between. Tiles beyond the range are zeros.
    const int turn = wave_id() < kValueWaves ? 0 : 1;
    TileLoader loader(problem, request, length < range.end * kTokens ? length : range.end * kTokens, range.begin);
    const auto slot = [&](int tile) { return lds.kv[static_cast<unsigned>(tile) % kSlots]; };
    const auto put = [&](int tile) {
        if (((tile - range.begin) & 1) != turn) return;
        loader.store(slot(tile));
        loader.load(tile + 2);
    };
    loader.load(range.begin + turn);

    if (wave_id() < kValueWaves) {
        WaveColumns<RowTiles> columns;
        put(range.begin);
        __syncthreads();
        columns.read_values(slot(range.begin));
        put(range.begin + 2);
        __syncthreads();
        for (int tile = range.begin; tile < range.end; ++tile) {
            set_wave_priority<2>();  // else the reads of those that score, which ask all the time, leave no room
            columns.read_weights(lds, tile);
            columns.hold_values();
            columns.read_values(slot(tile + 1));
            put(tile + 3);
            set_wave_priority<0>();
            schedule_barrier();
            columns.add_values();
            schedule_barrier();
            __syncthreads();
        }
        const float* const inverse = lds.factor[range.end & 1];
        if (problem.splits == 1) {
            columns.store_bf16(make_buffer(problem.o + row_origin * kValueColumns, rows * kValueColumns * 2), inverse);
        } else if (range.begin < range.end) {
            const size_t all_rows = static_cast<size_t>(problem.batch) * static_cast<size_t>(rows_per_request);
            float* part = problem.parts.o + (static_cast<size_t>(split) * all_rows + row_origin) * kValueColumns;
            columns.store_fp32(make_buffer(part, rows * kValueColumns * 4), inverse);
        }
        return;
    }

    // The row this lane scores, and how many tokens it and the first query see.
    const int row_tile = wave_id() - kValueWaves;
    const bool scores = row_tile < RowTiles;
    const int row = first_row + row_tile * 16 + lane_id() % 16;
    const int hidden = problem.causal ? problem.seqlen_q - 1 - row / problem.heads_q : 0;
    const int fewest = length - (problem.causal ? problem.seqlen_q - 1 : 0);
    ScoringRows scoring(
        make_buffer(problem.q + row_origin * kKeyColumns, rows * kRowBytes), scores ? row_tile * 16 : kRows);
    wait_for_loads();
    put(range.begin + 1);
    __syncthreads();
    set_wave_priority<1>();
    if (scores && range.begin < range.end) scoring.begin(slot(range.begin));
    for (int tile = range.begin; tile < range.end; ++tile) {
        if (scores) {
            const int token = tile * kTokens;
            u32x2 probability;
            const float factor = scoring.take_tile(
                slot(tile), slot(tile + 1), problem.scale, token + kTokens > fewest, length - hidden - token,
                probability);
            lds.probability[tile & 1][row_tile][lane_id()] = probability;
            if (lane_id() < 16) lds.factor[tile & 1][row_tile * 16 + lane_id()] = factor;
        }
        put(tile + 2);
        __syncthreads();
    }
    if (scores) {
        const SoftmaxRow total = scoring.total();
        if (lane_id() < 16) {
            lds.factor[range.end & 1][row_tile * 16 + lane_id()] = total.inverse();
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
}

/// Parts to cut the longest possible request into. The unit of the costs is what a tile takes a compute unit at its share of
/// the memory's rate: 1.3 us for tokens of 1152 bytes.
inline int choose_parts(
    const MlaDecode& problem, int row_blocks, int tiles, int token_bytes, size_t workspace_bytes, int wanted) {
    const double tile_us = 1.3 * token_bytes / 1152;
    const long long rows = static_cast<long long>(problem.batch) * problem.seqlen_q * problem.heads_q;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, kValueColumns);
    if (wanted > 0) return static_cast<int>(wanted < most ? wanted : most > 1 ? most : 1);
    const double part = 2.0 * static_cast<double>(SplitWorkspace::bytes(1, rows, kValueColumns)) / (4.3e6 * tile_us);
    return choose_splits(
        static_cast<long long>(problem.batch) * row_blocks, tiles, kComputeUnits, most,
        {7.0 / tile_us, 7.8 / tile_us, part});
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
