// SPDX-License-Identifier: MIT
// MLA decode on mma.sync: the kernel, and its launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/attention_mma.h"
#include "common/combine_splits.h"
#include "common/device.h"
#include "common/wide_rows.h"
#include "launch.h"
#include "mla/call.h"
#include "mla/schedule.h"
#include "online_softmax.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"
#include "split_kv.h"

namespace mla {

// The device code of MLA decode on mma.sync: one block computes some query rows of one request over a range of tokens.
//
// See mla_decode/mma_sync.cu for the algorithm, the configurations and the launch.

struct DecodeArguments {
    const uint8_t* q;        // [batch, seqlen_q, heads, 576]
    const uint8_t* cache;    // [num_blocks, 64, 576]
    const uint8_t* rotary;   // [batch, max_blocks * 64, 64]: keys' last columns, for tiles with kRotaryApart
    const int* block_table;  // [batch, max_blocks]
    uint8_t* o;              // [batch, seqlen_q, heads, 512]
    float* lse;              // [batch, heads, seqlen_q]
    DecodeSchedule schedule;
    SplitWorkspace parts;  // rows as DecodeSplits orders them
    int seqlen_q, heads, max_blocks;
    int row_tiles;  // blocks of a group
    bool causal;
    float scale;  // softmax_scale * log2(e)
};

constexpr int kLatent = 512, kWidth = 576;  // columns of a value, of a key
constexpr int kPage = 64;                   // tokens

/// Tile shape: 16 * kRowTiles query rows (seqlen_q x heads, flattened) by 32 tokens, on eight warps.
///
/// For the scores the warps divide rows into kRowParts, tokens into kTokenParts and the 576 columns into the rest (their
/// partial scores meet in shared memory); for the output they divide the 512 columns by eight. kStages token tiles lie in
/// shared memory, kBlocks blocks share a multiprocessor. With kRotaryApart the last 64 columns of keys are not those of the cache.
template <
    int kRowTiles_, int kRowParts_, int kTokenParts_, int kStages_, bool kQueryInRegisters_, int kBlocks_,
    bool kRotaryApart_ = false>
struct DecodeTile {
    static constexpr int kRowTiles = kRowTiles_, kRowParts = kRowParts_, kTokenParts = kTokenParts_;
    static constexpr int kStages = kStages_, kBlocks = kBlocks_;
    static constexpr bool kQueryInRegisters = kQueryInRegisters_, kRotaryApart = kRotaryApart_;
    static constexpr int kWarps = 8, kThreads = 32 * kWarps;
    static constexpr int kRows = 16 * kRowTiles, kTokens = DecodeSchedule::kTokens;

    static constexpr int kColumnParts = kWarps / (kRowParts * kTokenParts);
    static constexpr int kWarpRowTiles = kRowTiles / kRowParts;
    static constexpr int kWarpTokens = kTokens / kTokenParts;
    // A part of the columns is the same 128 / kColumnParts bytes of every 128-byte group of a row.
    static constexpr int kGroups = kWidth * 2 / 128, kGroupSteps = 4 / kColumnParts;
    static constexpr int kColumnSteps = kGroups * kGroupSteps;

    using Rows = WideRows<kWidth>;  // queries and tokens
    // A row of probabilities is padded, so that the eight rows of one ldmatrix start at different banks.
    static constexpr int kProbabilityPitch = kTokens * 2 + 16;
    static constexpr int kStageBytes = Rows::bytes(kTokens);
    static constexpr int kQueryBytes = kQueryInRegisters ? 0 : Rows::bytes(kRows);
    static constexpr int kScoreBytes = kColumnParts * kRows * kTokens * 4;
    // What lies where in shared memory, in this order.
    static constexpr int kStage = kQueryBytes;
    static constexpr int kScores = kStage + kStages * kStageBytes;
    static constexpr int kProbabilities = kScores + kScoreBytes;
    static constexpr int kFactors = kProbabilities + kRows * kProbabilityPitch;
    static constexpr int kSharedBytes = kFactors + kRows * 4;

    static_assert(kRowTiles % kRowParts == 0 && kWarpTokens % 16 == 0, "a warp scores whole 16 x 16 blocks");
    static_assert(kColumnParts == 1 || kColumnParts == 2 || kColumnParts == 4, "a part must be whole 16-column steps");
    static_assert(kStages >= 2, "the next tokens are copied under the current ones' products");
};

/// Where a warp works while it computes scores.
template <typename Tile>
struct ScoreRole {
    int row_part, token_part, column_part;

    __device__ __forceinline__ explicit ScoreRole(int warp)
        : row_part(warp % Tile::kRowParts), token_part(warp / Tile::kRowParts % Tile::kTokenParts),
          column_part(warp / Tile::kRowParts / Tile::kTokenParts) {}

    __device__ __forceinline__ int first_row() const { return row_part * Tile::kWarpRowTiles * 16; }
    __device__ __forceinline__ int first_token() const { return token_part * Tile::kWarpTokens; }
    /// Of the part inside a 128-byte group.
    __device__ __forceinline__ int first_byte() const { return column_part * (128 / Tile::kColumnParts); }

    /// Byte in a row of step `step`, less first_byte(); a constant where `step` is.
    static __device__ __forceinline__ constexpr int byte(int step) {
        return step / Tile::kGroupSteps * 128 + step % Tile::kGroupSteps * 32;
    }
};

/// Index of a score in its part's [rows, 32] plane: whole rows are read 16 bytes per lane, and the accumulators of four
/// rows are written without bank conflicts.
__device__ __forceinline__ int score_index(int row, int token) { return row * 32 + (token ^ (row % 4 * 8)); }

/// The A fragments of this warp's rows and column part, straight from global memory: they are used for every token.
template <typename Tile>
__device__ __forceinline__ void load_query_fragments(
    uint32_t (&query)[Tile::kColumnSteps][Tile::kWarpRowTiles][4], const uint8_t* q, const ScoreRole<Tile>& role,
    int lane) {
    const uint8_t* corner = q + (role.first_row() + lane / 4) * (kWidth * 2) + role.first_byte() + lane % 4 * 4;
#pragma unroll
    for (int c = 0; c < Tile::kColumnSteps; ++c) {
#pragma unroll
        for (int r = 0; r < Tile::kWarpRowTiles; ++r) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint8_t* at =
                    corner + (16 * r + i % 2 * 8) * (kWidth * 2) + ScoreRole<Tile>::byte(c) + i / 2 * 16;
                query[c][r][i] = *reinterpret_cast<const uint32_t*>(at);
            }
        }
    }
}

/// One thread's share of the softmax: four neighbouring tokens of rows thread / 8, thread / 8 + 32, ...; eight lanes share
/// a row. Tiles of 16 rows leave the upper half of the threads idle.
template <typename Tile>
struct DecodeSoftmax {
    static constexpr int kPasses = (Tile::kRows + 31) / 32;
    SoftmaxRow rows[kPasses];
    int limits[kPasses];  // tokens each row sees

    static __device__ __forceinline__ bool takes_part() { return static_cast<int>(threadIdx.x) / 8 < Tile::kRows; }
    static __device__ __forceinline__ int row(int pass) { return static_cast<int>(threadIdx.x) / 8 + 32 * pass; }

    __device__ __forceinline__ DecodeSoftmax(const DecodeArguments& a, int first_row, int length) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const int query = (first_row + row(pass)) / a.heads;
            limits[pass] = length - (a.causal ? a.seqlen_q - 1 - query : 0);
        }
    }

    /// Add the parts of the scores, and leave probabilities and the factors for what was accumulated so far.
    __device__ __forceinline__ void step(uint8_t* shared, int first_token, float scale) {
        const float* scores = reinterpret_cast<const float*>(shared + Tile::kScores);
        const int share = static_cast<int>(threadIdx.x) % 8 * 4;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            float s[4] = {};
#pragma unroll
            for (int part = 0; part < Tile::kColumnParts; ++part) {
                const float4 x = *reinterpret_cast<const float4*>(
                    scores + part * Tile::kRows * Tile::kTokens + score_index(row(pass), share));
                s[0] += x.x;
                s[1] += x.y;
                s[2] += x.z;
                s[3] += x.w;
            }
            float largest = -INFINITY;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (first_token + share + i >= limits[pass]) s[i] = -INFINITY;
                largest = fmaxf(largest, s[i]);
            }
            largest = quad_maximum(largest);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 4));
            const float factor = rows[pass].raise(largest, scale, Exp2());
            const float shift = rows[pass].shift(scale);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s[i] = Exp2()(s[i] * scale - shift);
                rows[pass].sum += s[i];
            }
            uint8_t* p = shared + Tile::kProbabilities + row(pass) * Tile::kProbabilityPitch + share * 2;
            *reinterpret_cast<uint2*>(p) = make_uint2(Bf16::pack(s[0], s[1]), Bf16::pack(s[2], s[3]));
            if (share == 0) reinterpret_cast<float*>(shared + Tile::kFactors)[row(pass)] = factor;
        }
    }

    /// Add up the lanes' shares, and leave the factors that normalise the output. `lse(pass, value)` takes the result.
    template <typename Store>
    __device__ __forceinline__ void finish(uint8_t* shared, float scale, Store lse) {
        const bool first = threadIdx.x % 8 == 0;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            float sum = quad_sum(rows[pass].sum);
            rows[pass].sum = sum + __shfl_xor_sync(0xffffffffu, sum, 4);
            if (!first) continue;
            reinterpret_cast<float*>(shared + Tile::kFactors)[row(pass)] = rows[pass].inverse();
            lse(row(pass), rows[pass].lse(scale));
        }
    }
};

/// Multiply accumulators by their row's factor from shared memory; nothing to do where all are 1.
template <int kRowTiles, int kOutTiles>
__device__ __forceinline__ void scale_rows(float (&out)[kRowTiles][kOutTiles][4], const float* factors, int lane) {
    float factor[kRowTiles][2];
    bool needed = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            factor[r][half] = factors[16 * r + 8 * half + lane / 4];
            needed = needed || factor[r][half] != 1.0f;
        }
    }
    if (!__any_sync(0xffffffffu, needed)) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) out[r][j][e] *= factor[r][e / 2];
        }
    }
}

/// One warp's share of a tile's scores, stored to its plane in shared memory.
template <typename Tile, typename Load>
__device__ __forceinline__ void score_tokens(
    uint8_t* shared, uint32_t tokens, const ScoreRole<Tile>& role, int lane,
    uint32_t (&query)[Tile::kQueryInRegisters ? Tile::kColumnSteps : 1][Tile::kWarpRowTiles][4], Load load_query) {
    using Rows = typename Tile::Rows;
    float scores[Tile::kWarpRowTiles][Tile::kWarpTokens / 8][4] = {};
    const LaneRows keys(
        (tokens + Rows::bytes(role.first_token()) + Rows::lane_offset_by_columns(lane)) ^ role.first_byte());
#pragma unroll
    for (int c = 0; c < Tile::kColumnSteps; ++c) {
        if constexpr (!Tile::kQueryInRegisters) load_query(query[0], c);
        multiply_keys<Bf16, Rows>(scores, query[Tile::kQueryInRegisters ? c : 0], keys, ScoreRole<Tile>::byte(c));
    }
    float* plane = reinterpret_cast<float*>(shared + Tile::kScores) + role.column_part * Tile::kRows * Tile::kTokens;
#pragma unroll
    for (int r = 0; r < Tile::kWarpRowTiles; ++r) {
#pragma unroll
        for (int j = 0; j < Tile::kWarpTokens / 8; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = role.first_row() + 16 * r + 8 * half + lane / 4;
                const int token = role.first_token() + 8 * j + lane % 4 * 2;
                *reinterpret_cast<float2*>(plane + score_index(row, token)) =
                    make_float2(scores[r][j][2 * half], scores[r][j][2 * half + 1]);
            }
        }
    }
}

/// One piece of a request for the block's rows, from the first token to the stored output or part.
template <typename Tile>
__device__ __forceinline__ void decode_piece(
    const DecodeArguments& a, const DecodePiece& piece, int group, int row_tile, uint8_t* shared) {
    using Rows = typename Tile::Rows;
    constexpr int kRowTiles = Tile::kRowTiles, kOutTiles = kLatent / Tile::kWarps / 8;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int first_row = row_tile * Tile::kRows;
    const size_t part_row = first_row_of(a, piece.part(a.schedule, group)) + first_row;
    if (!piece.whole() && piece.steps.begin >= piece.steps.end) {
        // The chunk's edge fell into the request's start: the merge must see that no token came, and reads no output.
        if (threadIdx.x < Tile::kRows) a.parts.lse[part_row + threadIdx.x] = -INFINITY;
        return;
    }

    const int length = a.schedule.tokens(piece.request);
    const size_t output_row = first_row_of(a, piece.request) + first_row;
    const int* const table = a.block_table + static_cast<size_t>(piece.request) * a.max_blocks;
    // Table entries behind the length mean nothing: they are not even read.
    const auto page_of = [&](int step) { return step < piece.steps.end ? __ldg(table + step / 2) : 0; };
    const uint32_t base = shared_address(shared);
    const auto stage = [&](int step) { return base + Tile::kStage + step % Tile::kStages * Tile::kStageBytes; };
    const auto copy_tokens = [&](int step, int page) {
        if (step < piece.steps.end) {
            const size_t token = static_cast<size_t>(page) * kPage + step % 2 * Tile::kTokens;
            const uint8_t* const cached = a.cache + token * Rows::kPitch;
            const int left = length - step * Tile::kTokens;
            if constexpr (Tile::kRotaryApart) {
                constexpr int kLatentGroups = kLatent * 2 / 128;
                const size_t row = static_cast<size_t>(piece.request) * a.max_blocks * kPage + step * Tile::kTokens;
                Rows::template copy_async<Tile::kTokens, Tile::kThreads, 0, kLatentGroups>(
                    stage(step), cached, Rows::kPitch, left);
                Rows::template copy_async<Tile::kTokens, Tile::kThreads, kLatentGroups, 1>(
                    stage(step), a.rotary + row * 128, 128, left);
            } else {
                Rows::template copy_async<Tile::kTokens, Tile::kThreads>(stage(step), cached, Rows::kPitch, left);
            }
        }
        cp_async_commit();  // also when empty: the waits count groups
    };

    const ScoreRole<Tile> role(warp);
    const uint8_t* const query_rows = a.q + output_row * Rows::kPitch;
    uint32_t query[Tile::kQueryInRegisters ? Tile::kColumnSteps : 1][Tile::kWarpRowTiles][4];
    if constexpr (!Tile::kQueryInRegisters) {  // joins the first tile's group
        Rows::template copy_async<Tile::kRows, Tile::kThreads>(base, query_rows, Rows::kPitch, Tile::kRows);
    }
#pragma unroll
    for (int ahead = 0; ahead < Tile::kStages - 1; ++ahead) {
        copy_tokens(piece.steps.begin + ahead, page_of(piece.steps.begin + ahead));
    }
    int page = page_of(piece.steps.begin + Tile::kStages - 1);
    if constexpr (Tile::kQueryInRegisters) load_query_fragments<Tile>(query, query_rows, role, lane);
    const LaneRows query_lane(
        (base + Rows::bytes(role.first_row()) + Rows::lane_offset_by_rows(lane)) ^ role.first_byte());
    const auto load_query = [&](uint32_t (&fragments)[Tile::kWarpRowTiles][4], int column_step) {
#pragma unroll
        for (int r = 0; r < Tile::kWarpRowTiles; ++r) {
            ldmatrix_x4(fragments[r], query_lane.at(ScoreRole<Tile>::byte(column_step)) + Rows::bytes(r * 16));
        }
    };

    float out[kRowTiles][kOutTiles][4] = {};
    DecodeSoftmax<Tile> softmax(a, first_row, length);
    float* const factors = reinterpret_cast<float*>(shared + Tile::kFactors);
    for (int step = piece.steps.begin; step < piece.steps.end; ++step) {
        const int thread = recomputed_thread(), lane = thread % 32, warp = thread / 32;
        const ScoreRole<Tile> role(warp);
        cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // the step's tokens are there; everyone is done with the stage that is filled next
        copy_tokens(step + Tile::kStages - 1, page);
        page = page_of(step + Tile::kStages);

        const uint32_t tokens = stage(step);
        score_tokens<Tile>(shared, tokens, role, lane, query, load_query);
        __syncthreads();  // all parts of the scores are there
        if (softmax.takes_part()) softmax.step(shared, step * Tile::kTokens, a.scale);
        __syncthreads();  // probabilities and factors are there
        scale_rows(out, factors, lane);
        // The values are the first 512 columns of the same rows; this warp's 64 are one 128-byte group.
        const LaneRows values(tokens + warp * 128 + Rows::lane_offset_by_rows(lane));
        const uint32_t probabilities =
            base + Tile::kProbabilities + lane % 16 * Tile::kProbabilityPitch + lane / 16 * 16;
#pragma unroll
        for (int key = 0; key < Tile::kTokens; key += 16) {
            uint32_t p[kRowTiles][4];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r) {
                ldmatrix_x4(p[r], probabilities + r * 16 * Tile::kProbabilityPitch + key * 2);
            }
            multiply_values<Bf16, Rows>(out, p, values, key);
        }
    }

    cp_async_wait<0>();  // Q, where there was no token to wait for
    __syncthreads();     // the last factors are read, all stages are free
    if (softmax.takes_part()) {
        softmax.finish(shared, a.scale, [&](int row, float lse) {
            const size_t index = lse_index(a, piece.request, first_row + row);
            (piece.whole() ? a.lse[index] : a.parts.lse[part_row + row]) = lse;
        });
    }
    __syncthreads();
    scale_rows(out, factors, lane);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * r + 8 * half + lane / 4;
#pragma unroll
            for (int j = 0; j < kOutTiles; ++j) {
                const int column = warp * (kLatent / Tile::kWarps) + 8 * j + lane % 4 * 2;
                const float left = out[r][j][2 * half], right = out[r][j][2 * half + 1];
                if (piece.whole()) {
                    uint8_t* at = a.o + ((output_row + row) * kLatent + column) * 2;
                    *reinterpret_cast<uint32_t*>(at) = Bf16::pack(left, right);
                } else {
                    float* at = a.parts.o + (part_row + row) * kLatent + column;
                    *reinterpret_cast<float2*>(at) = make_float2(left, right);
                }
            }
        }
    }
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    latent_decode(const __grid_constant__ DecodeArguments a) {
    uint8_t* const shared = dynamic_shared();
    const int group = static_cast<int>(blockIdx.x) / a.row_tiles, row_tile = static_cast<int>(blockIdx.x) % a.row_tiles;
    DecodeScheduler scheduler(a.schedule, group, static_cast<int>(threadIdx.x) % 32);
    DecodePiece piece;
    while (scheduler.next(a.schedule, piece)) decode_piece<Tile>(a, piece, group, row_tile, shared);
}

// Host side of MLA decode on mma.sync: tile shapes, how the batch is cut, and the launch.

// Tunables of the kernel files; the first choices stand in mla_decode/mma_sync.cu.
#ifndef ROWS16_STAGES
#error "ROWS16_STAGES is a tunable of the kernel file: stages of the tile of 16 rows on Hopper"
#endif
#ifndef ROWS16_BLOCKS
#error "ROWS16_BLOCKS is a tunable of the kernel file: blocks of 16 rows per multiprocessor on Hopper"
#endif
#ifndef ROWS32_STAGES
#error "ROWS32_STAGES is a tunable of the kernel file: stages of the tile of 32 rows on Hopper"
#endif

// The oldest architecture of this build chooses the tiles: nvcc defines the list for host and device passes alike.
constexpr int kLatentArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kLatentHopper = kLatentArchitectures[0] >= 900;

using LatentRows16 = DecodeTile<1, 1, 2, kLatentHopper ? ROWS16_STAGES : 2, true, kLatentHopper ? ROWS16_BLOCKS : 1>;
using LatentRows32 = DecodeTile<2, 1, 2, kLatentHopper ? ROWS32_STAGES : 2, true, 1>;
using LatentRows64 = DecodeTile<4, 2, 1, 3, false, 1>;  // Hopper only

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut.
/// Returns 0 or what the caller must return.
template <typename Tile>
int launch_latent(DecodeArguments a, void* workspace, size_t workspace_bytes, void* queue) {
    static_assert(kLatentHopper || Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    static_assert(Tile::kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
    const auto kernel = latent_decode<Tile>;
    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    if (status == 0) {
        status = static_cast<int>(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    }
    if (status != 0) return status;

    const int rows = a.seqlen_q * a.heads;  // of a request
    const int batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, kLatent) - batch;
    a.schedule.groups = choose_groups(
        batch, a.max_blocks * (kPage / Tile::kTokens), DecodeSchedule::kStartSteps, a.row_tiles,
        static_cast<long long>(multiprocessors) * Tile::kBlocks, most, {4.0, 4.0});
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, DecodeSchedule::part_count(groups, batch), rows, kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.schedule.groups == 0) return launched;
    const CombineArguments<DecodeSplits<>> merge = {
        {a.schedule, rows}, a.parts, a.o, a.lse, static_cast<long long>(batch) * rows, a.seqlen_q, a.heads, 1};
    return launch_combine<Bf16, kLatent>(merge, groups / batch + 1, queue);
}

}  // namespace mla
