// SPDX-License-Identifier: MIT
// Tiles of the MFMA steps: four waves with 16 queries each, 64 keys and values in LDS, scores and probabilities too.
//
// With r = lane % 16 and g = lane / 16, an operand of mfma 16x16x16 is row r, elements 4 g to 4 g + 3 of K, and element i of the
// result row 4 g + i, column r (isa/mfma.h). Four threads own a row in the softmax; every fourth key is one's own.
#pragma once

#include "step.h"

constexpr int kKeys = 64, kThreads = 256;
constexpr int kPitch = kHeadDim + 8;    // 16-bit elements of a row of K, V or P in LDS
constexpr int kScorePitch = kKeys + 4;  // floats

__device__ __forceinline__ int row_of_lane() { return lane_id() % 16; }
__device__ __forceinline__ int group_of_lane() { return lane_id() / 16; }

/// The queries of a wave as operands, straight from memory; rows past the end are zero.
__device__ __forceinline__ void load_queries(u32x2 (&q)[kHeadDim / 16], const Step& p, int first) {
    const int row = first + row_of_lane();
#pragma unroll
    for (int c = 0; c < kHeadDim / 16; ++c) {
        q[c] = row < p.queries ? *reinterpret_cast<const u32x2*>(p.q + p.query_row(row) + 16 * c + 4 * group_of_lane())
                               : u32x2{0, 0};
    }
}

/// 64 rows of keys or values to LDS, element by element; rows past the end are zero, so that a masked probability of 0 never
/// meets a NaN.
__device__ __forceinline__ void load_tile(uint16_t* tile, const uint16_t* from, const Step& p, int first) {
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * kHeadDim; i += kThreads) {
        const int row = i / kHeadDim, c = i % kHeadDim;
        tile[row * kPitch + c] = first + row < p.keys ? from[p.key_row(first + row) + c] : static_cast<uint16_t>(0);
    }
}

/// The same 16 bytes at a time, in two halves: to registers, and from there to LDS.
struct WideTile {
    static constexpr int kEach = kKeys * kHeadDim / 8 / kThreads;
    u32x4 keys[kEach], values[kEach];

    __device__ __forceinline__ void load(const Step& p, int first) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int piece = static_cast<int>(threadIdx.x) + i * kThreads, row = first + piece / 8;
            const bool inside = row < p.keys;
            const size_t at = inside ? p.key_row(row) + piece % 8 * 8 : 0;
            keys[i] = inside ? *reinterpret_cast<const u32x4*>(p.k + at) : u32x4{0, 0, 0, 0};
            values[i] = inside ? *reinterpret_cast<const u32x4*>(p.v + at) : u32x4{0, 0, 0, 0};
        }
    }
    __device__ __forceinline__ void store(uint16_t* key_tile, uint16_t* value_tile) const {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int piece = static_cast<int>(threadIdx.x) + i * kThreads, at = piece / 8 * kPitch + piece % 8 * 8;
            *reinterpret_cast<u32x4*>(key_tile + at) = keys[i];
            *reinterpret_cast<u32x4*>(value_tile + at) = values[i];
        }
    }
};

/// scores[16 rows of this wave][64] = Q K^T.
template <class Half>
__device__ __forceinline__ void multiply_scores(float* scores, const u32x2 (&q)[kHeadDim / 16], const uint16_t* keys) {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
        f32x4 sum = {};
#pragma unroll
        for (int c = 0; c < kHeadDim / 16; ++c) {
            const uint16_t* const key = keys + (n * 16 + row_of_lane()) * kPitch + 16 * c + 4 * group_of_lane();
            sum = Half::multiply(q[c], *reinterpret_cast<const u32x2*>(key), sum);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores[(wave_id() * 16 + 4 * group_of_lane() + i) * kScorePitch + n * 16 + row_of_lane()] = sum[i];
    }
}

/// The softmax of one row by its four threads: scores become probabilities. Returns what everything before is to be multiplied
/// with. `state.sum` is this thread's share.
__device__ __forceinline__ float softmax_row(float* scores, SoftmaxRow& state, int quarter, int visible, float scale) {
    float largest = -INFINITY;
    for (int j = quarter; j < kKeys; j += 4) {
        if (j >= visible) scores[j] = -INFINITY;
        largest = fmaxf(largest, scores[j]);
    }
    largest = fmaxf(largest, from_lane_xor<1>(largest));
    largest = fmaxf(largest, from_lane_xor<2>(largest));
    const float correction = state.raise(largest, scale, Exp2()), shift = state.shift(scale);
    for (int j = quarter; j < kKeys; j += 4) {
        scores[j] = Exp2()(scores[j] * scale - shift);
        state.sum += scores[j];
    }
    return correction;
}

/// The sum of a row from the shares of its four threads.
__device__ __forceinline__ float row_sum(float share) {
    share += from_lane_xor<1>(share);
    return share + from_lane_xor<2>(share);
}

/// Four values of column `column` of V, from key `key` on.
__device__ __forceinline__ u32x2 value_column(const uint16_t* values, int key, int column) {
    const uint16_t* const from = values + key * kPitch + column;
    return u32x2{
        from[0] | static_cast<uint32_t>(from[kPitch]) << 16, from[2 * kPitch] | static_cast<uint32_t>(from[3 * kPitch])
                                                                                    << 16};
}
