// SPDX-License-Identifier: MIT
// Absorbed MLA decode over a paged cache on bf16 MFMA, for caches of any format: a TileLoader puts tokens into LDS as bf16.
// mla_decode/mfma.hip says how the parts work together. The first kLoaderThreads of a workgroup load tiles.
//
//   class TileLoader {
//       static constexpr int kTokenBytes;                                                  // in the cache
//       static int length(const MlaDecode& problem, int request);                          // its tokens
//       TileLoader(const MlaDecode& problem, int request, int length, int first_tile);
//       struct Share;                                                  // a tile's tokens on their way: this thread's
//       void load(int tile, Share& share);                             // request them; those beyond `length` become zeros
//       static void store(uint8_t* kv, const Share& share);            // wait for them and put them into LDS
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
constexpr int kValueWaves = 4, kLoaderThreads = kValueWaves * kWaveSize;  // which also load

constexpr int kWaveColumns = kValueColumns / kValueWaves;  // of o
constexpr int kTiles = kWaveColumns / 16;                  // MFMA tiles across them, and adjacent columns per lane
static_assert(kTiles == kHalvesPerChunk, "a lane's columns of a token are one chunk");

/// Tiles of tokens by turns: one is begun, one is scored to the end, and the third is written.
constexpr int kSlots = 3, kTileBytes = kTokens * kRowBytes;

template <int RowTiles>
struct alignas(16) Lds {
    uint8_t kv[kSlots * kTileBytes];
    // Of two tiles by turns: probabilities as the lanes of the scoring wave hold them, which is how all need them, and factors
    // for the sums before them; after the last tile, 1 / sum of probabilities.
    u32x2 probability[2][RowTiles][kWaveSize];
    float factor[2][RowTiles * 16];
    u32x2 row[RowTiles][kWaveSize];  // SoftmaxRow of the tiles scored so far; each lane has its share of the sum
};

constexpr int kSteps = kKeyColumns / 32;  // of two MFMA each, for the scores of a tile

/// The `Tiles` * 16 rows of q that a scoring wave keeps, and their scores of a tile.
template <int Tiles>
class ScoringRows {
    static constexpr int kAhead = 4;
    u32x4 q_[Tiles][kSteps];  // second operand of two MFMA steps each
    u32x4 key_[kAhead];       // first ones, on their way
    f32x4 score_[Tiles];

    static __device__ __forceinline__ u32x4 read_keys(const uint8_t* kv, int step) {
        return read_chunk(kv, Rows::offset(lane_id() % 16, key_chunk(step % 2)) + step / 2 * 2 * 4 * kChunk);
    }

public:
    /// Rows beyond the end are zeros.
    __device__ __forceinline__ ScoringRows(BufferResource queries, int first) {
#pragma unroll
        for (int n = 0; n < Tiles; ++n)
#pragma unroll
            for (int step = 0; step < kSteps; ++step)
                q_[n][step] =
                    buffer_load_16(queries, (first + n * 16 + lane_id() % 16) * kRowBytes + key_chunk(step) * kChunk);
    }

    /// Request the first keys of a tile.
    __device__ __forceinline__ void begin(const uint8_t* kv) {
#pragma unroll
        for (int n = 0; n < Tiles; ++n) score_[n] = {};
#pragma unroll
        for (int step = 0; step < kAhead; ++step) key_[step] = read_keys(kv, step);
    }

    /// Multiply steps From to To - 1 of the tile.
    template <int From, int To>
    __device__ __forceinline__ void multiply(const uint8_t* kv) {
#pragma unroll
        for (int step = From; step < To; ++step) {
            schedule_barrier();
            const u32x4 key = key_[step % kAhead];
#pragma unroll
            for (int n = 0; n < Tiles; ++n)
                score_[n] = Bf16::multiply(first_step(key), first_step(q_[n][step]), score_[n]);
#pragma unroll
            for (int n = 0; n < Tiles; ++n)
                score_[n] = Bf16::multiply(second_step(key), second_step(q_[n][step]), score_[n]);
            if (step + kAhead < kSteps) key_[step % kAhead] = read_keys(kv, step + kAhead);
        }
    }

    /// Of row tile n, this lane's row sees `visible` tokens of the tile.
    __device__ __forceinline__ void mask(int n, int visible) {
#pragma unroll
        for (int i = 0; i < 4; ++i) score_[n][i] = lane_id() / 16 * 4 + i < visible ? score_[n][i] : -INFINITY;
    }

    /// Take the scores into `row`: probabilities, and factors for what was accumulated before.
    __device__ __forceinline__ void take(
        SoftmaxRow (&row)[Tiles], float scale, u32x2 (&probability)[Tiles], float (&factor)[Tiles]) const {
        float maximum[Tiles];
        bool behind = false;
#pragma unroll
        for (int n = 0; n < Tiles; ++n) {
            factor[n] = 1.0f;
            maximum[n] = largest_score<1>({score_[n]});
            behind |= lags(row[n], maximum[n], scale);
        }
        if (__builtin_expect(any_lane(behind), false))
#pragma unroll
            for (int n = 0; n < Tiles; ++n) factor[n] = row[n].raise(query_maximum(maximum[n]), scale, Exp2{});
#pragma unroll
        for (int n = 0; n < Tiles; ++n) {
            u32x2 packed[1];
            add_scores<Bf16, 1>({score_[n]}, row[n], scale, packed);
            probability[n] = packed[0];
        }
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

    __device__ __forceinline__ WaveColumns() : o{}, value{}, probability{} {
        for (float& each : factor) each = 1.0f;
    }

    __device__ __forceinline__ void read_values(const uint8_t* kv) {
        const int r = lane_id() % 16, g = lane_id() / 16;
        const int base = Rows::offset(g * 4, wave_id() * (kWaveColumns / kHalvesPerChunk) + r);
#pragma unroll
        for (int i = 0; i < 4; ++i) token[i] = read_chunk(kv, Rows::at(base, i, 0));
    }

    __device__ __forceinline__ void hold_values() { transpose_halves(token, value); }

    /// The probabilities of a tile for row tiles From to To - 1, and the factors before it.
    template <int From, int To>
    __device__ __forceinline__ void read_weights(const Lds<RowTiles>& lds, int tile) {
#pragma unroll
        for (int n = From; n < To; ++n) {
            probability[n] = lds.probability[tile & 1][n][lane_id()];
            factor[n] = lds.factor[tile & 1][n * 16 + lane_id() % 16];
        }
    }

    /// Add the values held, with the weights read, to row tiles From to To - 1.
    template <int From, int To>
    __device__ __forceinline__ void add_values() {
        bool changes = false;
#pragma unroll
        for (int n = From; n < To; ++n) changes |= factor[n] != 1.0f;
        if (__builtin_expect(any_lane(changes), false))
#pragma unroll
            for (int n = From; n < To; ++n) rescale(o[n], factor[n]);
#pragma unroll
        for (int n = From; n < To; ++n)
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

    // A barrier ends each step. In step s, scoring waves of one turn begin tile s, and those of the other end tile s - 1, whose
    // values are read meanwhile; tile s - 2 is added, and tile s + 1 is stored. Tiles beyond the range are zeros, and add none.
    const int end = length < range.end * kTokens ? length : range.end * kTokens;  // of the tokens
    const int last = range.begin + (range.end - range.begin + 1) / 2 * 2;
    const auto after = [](int slot, int tiles) {
        slot += tiles * kTileBytes;
        return slot < kSlots * kTileBytes ? slot : slot - kSlots * kTileBytes;
    };

    if (wave_id() < kValueWaves) {
        TileLoader loader(problem, request, end, range.begin);
        typename TileLoader::Share share[2];
        const auto put = [&](int tile, int slot, int which) {
            TileLoader::store(lds.kv + slot, share[which]);
            loader.load(tile + 2, share[which]);
        };
        loader.load(range.begin, share[1]);
        loader.load(range.begin + 1, share[0]);
        put(range.begin, 0, 1);
        constexpr int kEarly =
            RowTiles < 4 ? RowTiles : 3;  // row tiles added in their step, the others early in the next
        WaveColumns<RowTiles> columns;
        __syncthreads();
        put(range.begin + 1, kTileBytes, 0);
        __syncthreads();
        columns.read_values(lds.kv);
        put(range.begin + 2, 2 * kTileBytes, 1);
        __syncthreads();
        int slot = 0;
        for (int first = range.begin; first < last; first += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int next = after(slot, 1);
                set_wave_priority<2>();  // while those that score wait for their first keys
                columns.template read_weights<0, kEarly>(lds, half);
                columns.template add_values<kEarly, RowTiles>();
                set_wave_priority<0>();
                schedule_barrier();
                columns.template read_weights<kEarly, RowTiles>(lds, half);
                columns.hold_values();
                put(first + half + 3, slot, half);
                schedule_barrier();
                columns.template add_values<0, 1>();
                columns.read_values(lds.kv + next);
                columns.template add_values<1, kEarly>();
                schedule_barrier();
                slot = next;
                __syncthreads();
            }
        }
        columns.template add_values<kEarly, RowTiles>();
        const float* const inverse = lds.factor[0];
        if (problem.splits == 1) {
            columns.store_bf16(make_buffer(problem.o + row_origin * kValueColumns, rows * kValueColumns * 2), inverse);
        } else if (range.begin < range.end) {
            const size_t all_rows = static_cast<size_t>(problem.batch) * static_cast<size_t>(rows_per_request);
            float* part = problem.parts.o + (static_cast<size_t>(split) * all_rows + row_origin) * kValueColumns;
            columns.store_fp32(make_buffer(part, rows * kValueColumns * 4), inverse);
        }
        return;
    }

    // Two waves share their rows, take tiles by turns, and hand the softmax to each other.
    constexpr int kPair = RowTiles < 2 ? RowTiles : 2;  // row tiles of a wave
    const int scorer = wave_id() - kValueWaves, turn = scorer & 1;
    const int row_tile = scorer / 2 * kPair;
    const bool scores = RowTiles == 4 || row_tile < RowTiles;
    const auto query_of = [&](int n) { return uniform((first_row + (row_tile + n) * 16) / problem.heads_q); };
    const int fewest = length - (problem.causal ? problem.seqlen_q - 1 : 0), seen_by_all = fewest < end ? fewest : end;
    ScoringRows<kPair> scoring(
        make_buffer(problem.q + row_origin * kKeyColumns, rows * kRowBytes), scores ? row_tile * 16 : kRows);
    SoftmaxRow state[kPair];
    if (scores && turn == 1)
        for (int n = 0; n < kPair; ++n) lds.row[row_tile + n][lane_id()] = __builtin_bit_cast(u32x2, state[n]);
    wait_for_loads();
    __syncthreads();

    set_wave_priority<1>();
    if (turn == 1) __syncthreads();
    constexpr int kFirst = 10;  // steps of a tile before its first barrier
    int slot = turn * kTileBytes;
    for (int tile = range.begin + turn; tile < last; tile += 2, slot = after(slot, 2)) {
        const uint8_t* const kv = lds.kv + slot;
        if (scores) {
            scoring.begin(kv);
            scoring.template multiply<0, kFirst>(kv);
        }
        __syncthreads();
        if (scores) {
#pragma unroll
            for (int n = 0; n < kPair; ++n) state[n] = __builtin_bit_cast(SoftmaxRow, lds.row[row_tile + n][lane_id()]);
            scoring.template multiply<kFirst, kSteps>(kv);
            schedule_barrier();
            set_wave_priority<0>();  // products of those that add come first now
            if (__builtin_expect((tile + 1) * kTokens > seen_by_all, false))
#pragma unroll
                for (int n = 0; n < kPair; ++n) {
                    const int visible = length - (problem.causal ? problem.seqlen_q - 1 - query_of(n) : 0);
                    scoring.mask(n, computed_here((visible < end ? visible : end) - tile * kTokens));
                }
            u32x2 probability[kPair];
            float factor[kPair];
            scoring.take(state, problem.scale, probability, factor);
#pragma unroll
            for (int n = 0; n < kPair; ++n) {
                lds.row[row_tile + n][lane_id()] = __builtin_bit_cast(u32x2, state[n]);
                lds.probability[turn][row_tile + n][lane_id()] = probability[n];
                lds.factor[turn][(row_tile + n) * 16 + lane_id() % 16] = factor[n];
            }
            set_wave_priority<1>();
        }
        __syncthreads();
    }
    if (turn == 0) __syncthreads();
    if (scores && turn == 1) {
#pragma unroll
        for (int n = 0; n < kPair; ++n) {
            SoftmaxRow total = state[n];
            total.sum = query_sum(total.sum);
            const int row = first_row + (row_tile + n) * 16 + lane_id() % 16;
            if (lane_id() < 16) {
                lds.factor[0][(row_tile + n) * 16 + lane_id()] = total.inverse();
                if (row < rows_per_request) {
                    const float lse = total.lse(problem.scale);
                    const size_t head = static_cast<size_t>(row % problem.heads_q);
                    const size_t query = static_cast<size_t>(row / problem.heads_q);
                    const size_t of_request = static_cast<size_t>(request) * static_cast<size_t>(rows_per_request);
                    const size_t all_rows = static_cast<size_t>(problem.batch) * static_cast<size_t>(rows_per_request);
                    if (problem.splits == 1)
                        problem.lse[of_request + head * static_cast<size_t>(problem.seqlen_q) + query] = lse;
                    else
                        problem.parts
                            .lse[static_cast<size_t>(split) * all_rows + of_request + static_cast<size_t>(row)] = lse;
                }
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
    problem.tiles_per_split = tiles > 0 ? ceil_div(ceil_div(tiles, wanted), 2) * 2 : 2;  // two waves take turns
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
