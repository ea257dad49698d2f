// SPDX-License-Identifier: MIT
// The device code of attention's backward pass on mma.sync: a kernel for dq by tiles of queries, one for dk and dv by keys.
//
// See flash_attention_bwd/mma_sync.cu for the algorithm and the launch. In both a block keeps a tile of rows of two tensors
// (`fixed`: Q and dO, or K and V) while tiles of the other two (`moving`) pass by, and each warp has 16 of the rows. At head
// dimension 256 registers hold dk or dv of 16 keys, not both: there two warps share them (`kRoles`).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ceil_div.h"
#include "common/attention_mma.h"
#include "common/wide_rows.h"
#include "fp8.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/barrier.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace attention {

struct BackwardArguments {
    const uint8_t* q;  // [batch, seqlen_q, heads_q, head_dim], as o, dout and dq
    const uint8_t* k;  // [batch, seqlen_k, heads_k, head_dim], as v, dk and dv
    const uint8_t* v;
    const uint8_t* o;
    const uint8_t* dout;
    const float* lse;  // [batch, heads_q, seqlen_q]
    uint8_t* dq;
    uint8_t* dk;
    uint8_t* dv;
    float* shifts;  // [batch, heads_q, seqlen_q]: lse * log2(e), or +inf for a row that sees no key; of the workspace
    float* deltas;  // [batch, heads_q, seqlen_q]: rowsum(dout * o); of the workspace
    int batch, seqlen_q, seqlen_k, heads_q, heads_k;
    bool causal;
    float softmax_scale;
};

/// kWarps x 16 rows stay, kMoving rows at a time pass by, in two stages. With two roles kWarps others have the same keys: the
/// first ones compute P and dv, the others dS and dk, from P that they get rounded, kWeightScale times as large.
template <typename Element_, int kHeadDim_, int kWarps_, int kMoving_>
struct BackwardTile {
    using Element = Element_;
    using Rows = WideRows<kHeadDim_>;
    static constexpr int kHeadDim = kHeadDim_, kWarps = kWarps_, kMoving = kMoving_;
    static constexpr int kThreads = 32 * kWarps, kFixed = 16 * kWarps;
    static constexpr int kColumnSteps = kHeadDim / 16, kMovingTiles = kMoving / 8, kOutTiles = kHeadDim / 8;
    static constexpr int kFixedBytes = Rows::bytes(kFixed), kMovingBytes = Rows::bytes(kMoving);
    static constexpr int kNumbers = 2 * kFixedBytes + 4 * kMovingBytes;  // where shifts and deltas of a stage begin
    static constexpr int kWeights =
        kNumbers + 4 * kMoving * static_cast<int>(sizeof(float));  // where P of two roles begins
    static constexpr int kRoles = kHeadDim > 128 ? 2 : 1, kKeyThreads = kRoles * kThreads;
    static constexpr int kSharedBytes = kWeights + (kRoles - 1) * kFixed * kMoving * 2;
    static constexpr float kWeightScale = 1024.0f;  // small weights keep their bits in fp16
    static_assert(kMoving % 16 == 0, "the second products advance 16 rows at a time");
    static_assert(kRoles == 1 || kMoving == 16, "a lane passes on 16 bytes of P");
};

template <typename Element>
__device__ __forceinline__ float unpack(uint16_t code);
template <>
__device__ __forceinline__ float unpack<Bf16>(uint16_t code) {
    return bf16_to_float(code);
}
template <>
__device__ __forceinline__ float unpack<Fp16>(uint16_t code) {
    return fp16_to_float(code);
}

/// scores = (16 fixed rows) x (moving rows)^T; lane addresses of both tiles.
template <typename Tile>
__device__ __forceinline__ void multiply_rows(
    float (&scores)[1][Tile::kMovingTiles][4], const LaneRows& fixed, const LaneRows& moving) {
#pragma unroll
    for (int j = 0; j < Tile::kMovingTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[0][j][e] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < Tile::kColumnSteps; ++c) {
        uint32_t rows[1][4];
        ldmatrix_x4(rows[0], fixed.at(c * 32));
        multiply_keys<typename Tile::Element, typename Tile::Rows>(scores, rows, moving, c * 32);
    }
}

/// out += (16 fixed rows x moving rows, rounded) x (moving rows).
template <typename Tile>
__device__ __forceinline__ void add_products(
    float (&out)[1][Tile::kOutTiles][4], const float (&weights)[1][Tile::kMovingTiles][4], const LaneRows& moving) {
#pragma unroll
    for (int i = 0; i < Tile::kMoving / 16; ++i) {
        uint32_t a[1][4];
        pack_probabilities<typename Tile::Element>(a[0], weights[0][2 * i], weights[0][2 * i + 1]);
        multiply_values<typename Tile::Element, typename Tile::Rows>(out, a, moving, i * 16);
    }
}

/// Write this warp's 16 rows from `first` on, times `factor`, through its own rows of a tile that nobody else reads, so that
/// whole rows leave in 16-byte pieces. `to` is row 0 of the tile in global memory; rows from `valid` on do not exist.
template <typename Tile>
__device__ __forceinline__ void store_rows(
    const float (&out)[1][Tile::kOutTiles][4], int first, float factor, uint8_t* tile, uint8_t* to, size_t pitch,
    int valid) {
    using Rows = typename Tile::Rows;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + 8 * half + lane / 4;
#pragma unroll
        for (int j = 0; j < Tile::kOutTiles; ++j) {
            *reinterpret_cast<uint32_t*>(tile + Rows::offset(row, 16 * j) + lane % 4 * 4) =
                Tile::Element::pack(out[0][j][2 * half] * factor, out[0][j][2 * half + 1] * factor);
        }
    }
    __syncwarp();
    constexpr int kChunks = Rows::kPitch / 16;
#pragma unroll
    for (int i = 0; i < 16 * kChunks / 32; ++i) {
        const int row = first + (i * 32 + lane) / kChunks, chunk = (i * 32 + lane) % kChunks * 16;
        const uint4 piece = *reinterpret_cast<const uint4*>(tile + Rows::offset(row, chunk));
        if (row < valid) *reinterpret_cast<uint4*>(to + row * pitch + chunk) = piece;
    }
}

/// dq of one tile of queries of one head, and the shifts and deltas of its rows.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) backward_queries(const __grid_constant__ BackwardArguments a) {
    using Element = typename Tile::Element;
    using Rows = typename Tile::Rows;
    const int tiles = ceil_div(a.seqlen_q, Tile::kFixed), block = static_cast<int>(blockIdx.x);
    const int head = block / tiles % a.heads_q, batch = block / tiles / a.heads_q;
    // Causal tiles near the end see most keys: start them first, so that short ones fill the last round.
    const int first_query = (a.causal ? tiles - 1 - block % tiles : block % tiles) * Tile::kFixed;
    const int queries = min(Tile::kFixed, a.seqlen_q - first_query);
    const size_t query_pitch = static_cast<size_t>(a.heads_q) * Rows::kPitch;
    const size_t key_pitch = static_cast<size_t>(a.heads_k) * Rows::kPitch;
    const size_t start = (static_cast<size_t>(batch) * a.seqlen_q + first_query) * query_pitch + head * Rows::kPitch;
    const size_t keys_start = static_cast<size_t>(batch) * a.seqlen_k * key_pitch +
                              static_cast<size_t>(head / (a.heads_q / a.heads_k)) * Rows::kPitch;
    const int ahead = a.seqlen_k - a.seqlen_q;  // causal: row i sees keys j <= i + ahead
    const int seen = a.causal ? max(0, min(a.seqlen_k, first_query + queries + ahead)) : a.seqlen_k;
    const int steps = ceil_div(seen, Tile::kMoving);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16;

    uint8_t* const shared = dynamic_shared();
    const uint32_t fixed = shared_address(shared), moving = fixed + 2 * Tile::kFixedBytes;
    const auto copy = [&](int step) {
        const uint32_t to = moving + (step & 1) * 2 * Tile::kMovingBytes;
        const size_t from = keys_start + static_cast<size_t>(step) * Tile::kMoving * key_pitch;
        const int valid = a.seqlen_k - step * Tile::kMoving;
        Rows::template copy_async<Tile::kMoving, Tile::kThreads>(to, a.k + from, key_pitch, valid);
        Rows::template copy_async<Tile::kMoving, Tile::kThreads>(to + Tile::kMovingBytes, a.v + from, key_pitch, valid);
        cp_async_commit();
    };
    Rows::template copy_async<Tile::kFixed, Tile::kThreads>(fixed, a.q + start, query_pitch, queries);
    Rows::template copy_async<Tile::kFixed, Tile::kThreads>(
        fixed + Tile::kFixedBytes, a.dout + start, query_pitch, queries);
    if (steps > 0) copy(0);
    else cp_async_commit();  // what no group has is not waited for

    // Two lanes per row: half of dout * o each. Lane r < 16 then holds the numbers of row r of the warp.
    float delta = 0.0f, shift = INFINITY;
    const int row = warp_row + lane % 16;
    if (row < queries) {
        const size_t at = start + row * query_pitch + lane / 16 * (Rows::kPitch / 2);
        for (int chunk = 0; chunk < Rows::kPitch / 2; chunk += 16) {
            const uint4 left = *reinterpret_cast<const uint4*>(a.dout + at + chunk);
            const uint4 right = *reinterpret_cast<const uint4*>(a.o + at + chunk);
            const uint32_t x[4] = {left.x, left.y, left.z, left.w}, y[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                delta += unpack<Element>(static_cast<uint16_t>(x[i])) * unpack<Element>(static_cast<uint16_t>(y[i]));
                delta += unpack<Element>(static_cast<uint16_t>(x[i] >> 16)) *
                         unpack<Element>(static_cast<uint16_t>(y[i] >> 16));
            }
        }
    }
    delta += __shfl_xor_sync(0xffffffffu, delta, 16);
    if (row < queries) {
        const size_t at = (static_cast<size_t>(batch) * a.heads_q + head) * a.seqlen_q + first_query + row;
        const float lse = a.lse[at];
        if (lse != -INFINITY) shift = lse * kLog2E;
        if (lane < 16) {
            a.shifts[at] = shift;
            a.deltas[at] = delta;
        }
    }
    float shifts[2], deltas[2];
    int limits[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        shifts[half] = __shfl_sync(0xffffffffu, shift, lane / 4 + 8 * half);
        deltas[half] = __shfl_sync(0xffffffffu, delta, lane / 4 + 8 * half);
        const int last = first_query + warp_row + lane / 4 + 8 * half + ahead + 1;
        limits[half] = a.causal ? min(a.seqlen_k, last) : a.seqlen_k;
    }

    const float scale = a.softmax_scale * kLog2E;
    const LaneRows own_queries(fixed + warp_row * Rows::kPitch + Rows::lane_offset_by_rows(lane));
    const LaneRows own_gradients(fixed + Tile::kFixedBytes + warp_row * Rows::kPitch + Rows::lane_offset_by_rows(lane));
    float dq[1][Tile::kOutTiles][4] = {};
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<0>();
        __syncthreads();  // the step's tiles are there, and every warp is done with the other stage
        if (step + 1 < steps) copy(step + 1);
        const uint32_t tile = moving + (step & 1) * 2 * Tile::kMovingBytes;
        float p[1][Tile::kMovingTiles][4], ds[1][Tile::kMovingTiles][4];
        multiply_rows<Tile>(p, own_queries, LaneRows(tile + Rows::lane_offset_by_columns(lane)));
        multiply_rows<Tile>(
            ds, own_gradients, LaneRows(tile + Tile::kMovingBytes + Rows::lane_offset_by_columns(lane)));
#pragma unroll
        for (int j = 0; j < Tile::kMovingTiles; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int key = step * Tile::kMoving + 8 * j + lane % 4 * 2 + e % 2;
                const float weight = key < limits[e / 2] ? Exp2()(p[0][j][e] * scale - shifts[e / 2]) : 0.0f;
                ds[0][j][e] = weight * (ds[0][j][e] - deltas[e / 2]);
            }
        }
        add_products<Tile>(dq, ds, LaneRows(tile + Rows::lane_offset_by_rows(lane)));
    }
    cp_async_wait<0>();
    __syncthreads();  // no copy into the tile of queries is under way where there was no step
    store_rows<Tile>(dq, warp_row, a.softmax_scale, shared, a.dq + start, query_pitch, queries);
}

/// dk and dv of one tile of keys of one key head, from all queries of its group; after backward_queries.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kKeyThreads, 1) backward_keys(const __grid_constant__ BackwardArguments a) {
    using Element = typename Tile::Element;
    using Rows = typename Tile::Rows;
    constexpr bool kPaired = Tile::kRoles == 2;
    const int tiles = ceil_div(a.seqlen_k, Tile::kFixed), block = static_cast<int>(blockIdx.x);
    const int head = block / tiles % a.heads_k, batch = block / tiles / a.heads_k;
    const int first_key = block % tiles * Tile::kFixed;  // causal: the longest first
    const int keys = min(Tile::kFixed, a.seqlen_k - first_key);
    const size_t query_pitch = static_cast<size_t>(a.heads_q) * Rows::kPitch;
    const size_t key_pitch = static_cast<size_t>(a.heads_k) * Rows::kPitch;
    const size_t start = (static_cast<size_t>(batch) * a.seqlen_k + first_key) * key_pitch + head * Rows::kPitch;
    const int ahead = a.seqlen_k - a.seqlen_q, group = a.heads_q / a.heads_k;
    // Causal: key j is seen by queries i >= j - ahead. The last query sees all keys, so there is a tile at least.
    const int first_tile = a.causal ? max(0, first_key - ahead) / Tile::kMoving : 0;
    const int per_head = ceil_div(a.seqlen_q, Tile::kMoving) - first_tile, steps = per_head * group;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int role = kPaired ? thread / Tile::kThreads : 0, pair = thread / 32 - role * Tile::kWarps;
    const int warp_row = pair * 16;

    uint8_t* const shared = dynamic_shared();
    const uint32_t fixed = shared_address(shared), moving = fixed + 2 * Tile::kFixedBytes;
    float* const numbers = reinterpret_cast<float*>(shared + Tile::kNumbers);  // stage s: shifts, then deltas
    // Rows of two tensors, `bytes` apart; of two roles each brings one.
    const auto copy_two = [&](auto rows, uint32_t to, int bytes, const uint8_t* one, const uint8_t* two, size_t pitch,
                              int valid) {
        constexpr int kRows = decltype(rows)::value;
        if constexpr (kPaired) {
            Rows::template copy_async_as<kRows, Tile::kThreads>(
                recomputed_thread() % Tile::kThreads, to + role * bytes, role == 0 ? one : two, pitch, valid);
        } else {
            Rows::template copy_async<kRows, Tile::kThreads>(to, one, pitch, valid);
            Rows::template copy_async<kRows, Tile::kThreads>(to + bytes, two, pitch, valid);
        }
    };
    const auto copy = [&](int step) {
        const int query_head = head * group + step / per_head;
        const int first_query = (first_tile + step % per_head) * Tile::kMoving;
        const uint32_t to = moving + (step & 1) * 2 * Tile::kMovingBytes;
        const size_t from = (static_cast<size_t>(batch) * a.seqlen_q + first_query) * query_pitch +
                            static_cast<size_t>(query_head) * Rows::kPitch;
        const int valid = a.seqlen_q - first_query;
        copy_two(
            std::integral_constant<int, Tile::kMoving>(), to, Tile::kMovingBytes, a.q + from, a.dout + from,
            query_pitch, valid);
        cp_async_commit();
        if (thread < Tile::kMoving) {
            const size_t at = (static_cast<size_t>(batch) * a.heads_q + query_head) * a.seqlen_q + first_query + thread;
            float* const stage = numbers + (step & 1) * 2 * Tile::kMoving + thread;
            stage[0] = thread < valid ? a.shifts[at] : INFINITY;
            stage[Tile::kMoving] = thread < valid ? a.deltas[at] : 0.0f;
        }
    };
    copy_two(
        std::integral_constant<int, Tile::kFixed>(), fixed, Tile::kFixedBytes, a.k + start, a.v + start, key_pitch,
        keys);
    copy(0);

    const float scale = a.softmax_scale * kLog2E;
    const uint32_t own_rows = fixed + warp_row * Rows::kPitch + Rows::lane_offset_by_rows(lane);
    const LaneRows own_keys(own_rows + role * Tile::kFixedBytes), own_values(own_rows + Tile::kFixedBytes);
    float sums[3 - Tile::kRoles][1][Tile::kOutTiles][4] = {};  // dv and dk, or one of them
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<0>();
        __syncthreads();  // the step's tiles are there, and every warp is done with the other stage
        if (step + 1 < steps) copy(step + 1);
        const uint32_t tile = moving + (step & 1) * 2 * Tile::kMovingBytes;
        const float* const stage = numbers + (step & 1) * 2 * Tile::kMoving;
        const int first_query = (first_tile + step % per_head) * Tile::kMoving;
        const auto weigh = [&](float score, int j, int e) {
            const int column = 8 * j + lane % 4 * 2 + e % 2;
            const int key = first_key + warp_row + lane / 4 + e / 2 * 8;
            const bool hidden = a.causal && key > first_query + column + ahead;
            return hidden ? 0.0f : Exp2()(score * scale - stage[column]);
        };
        const auto gradient = [&](float weight, float dp, int j, int e) {
            return weight * (dp - stage[Tile::kMoving + 8 * j + lane % 4 * 2 + e % 2]);
        };
        if constexpr (kPaired) {
            // S = K Q^T or dP = V dO^T, then dv += P dO or dk += dS Q.
            const uint32_t first = tile + role * Tile::kMovingBytes, second = tile + (1 - role) * Tile::kMovingBytes;
            uint4* const passed = reinterpret_cast<uint4*>(shared + Tile::kWeights) + pair * 32 + lane;
            float weights[1][Tile::kMovingTiles][4];
            multiply_rows<Tile>(weights, own_keys, LaneRows(first + Rows::lane_offset_by_columns(lane)));
            if (role == 0) {
                uint32_t rounded[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float (&p)[4] = weights[0][i / 2];
                    const int e = i % 2 * 2;
                    p[e] = weigh(p[e], i / 2, e), p[e + 1] = weigh(p[e + 1], i / 2, e + 1);
                    rounded[i] = Element::pack(p[e] * Tile::kWeightScale, p[e + 1] * Tile::kWeightScale);
                }
                *passed = make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]);
                named_barrier_arrive(1 + pair, 64);
            } else {
                named_barrier_sync(1 + pair, 64);  // P is there; the next one comes behind the next step's barrier
                const uint4 from = *passed;
                const uint32_t rounded[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const uint16_t code = static_cast<uint16_t>(rounded[i / 2] >> i % 2 * 16);
                    float& ds = weights[0][i / 4][i % 4];
                    ds = gradient(unpack<Element>(code) * (1.0f / Tile::kWeightScale), ds, i / 4, i % 4);
                }
            }
            add_products<Tile>(sums[0], weights, LaneRows(second + Rows::lane_offset_by_rows(lane)));
        } else {
            float p[1][Tile::kMovingTiles][4], ds[1][Tile::kMovingTiles][4];
            multiply_rows<Tile>(p, own_keys, LaneRows(tile + Rows::lane_offset_by_columns(lane)));
            multiply_rows<Tile>(
                ds, own_values, LaneRows(tile + Tile::kMovingBytes + Rows::lane_offset_by_columns(lane)));
#pragma unroll
            for (int j = 0; j < Tile::kMovingTiles; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    p[0][j][e] = weigh(p[0][j][e], j, e);
                    ds[0][j][e] = gradient(p[0][j][e], ds[0][j][e], j, e);
                }
            }
            add_products<Tile>(sums[0], p, LaneRows(tile + Tile::kMovingBytes + Rows::lane_offset_by_rows(lane)));
            add_products<Tile>(sums[1], ds, LaneRows(tile + Rows::lane_offset_by_rows(lane)));
        }
    }
    __syncthreads();
    if constexpr (kPaired) {
        store_rows<Tile>(
            sums[0], warp_row, role == 0 ? 1.0f : a.softmax_scale, shared + role * Tile::kFixedBytes,
            (role == 0 ? a.dv : a.dk) + start, key_pitch, keys);
    } else {
        store_rows<Tile>(sums[1], warp_row, a.softmax_scale, shared, a.dk + start, key_pitch, keys);
        store_rows<Tile>(sums[0], warp_row, 1.0f, shared + Tile::kFixedBytes, a.dv + start, key_pitch, keys);
    }
}

}  // namespace attention
