// SPDX-License-Identifier: MIT
// hadamard_quantize on both vendors: rows rotated in registers by a fast Hadamard transform, then coded in fp8.
//
// A block takes 128 tokens of one head, 32 lanes to a row, and keeps them in registers. Lane l holds elements l * kEach + i of
// a row: the transform's first steps stay in the lane, the last five exchange with lanes 1, 2, 4, 8 and 16 apart.
//
//   scales by block   one launch: the block's maximum is its scale's; x is read once
//   by head, tensor   three: maxima of all blocks, scales, codes; x is read and rotated twice, the second time from L2 as far
//                     as it fits there
//
// A `Vendor` says how lanes exchange and how numbers become codes:
//   template <int kMask> static float from_lane_xor(float)   the value of lane ^ kMask, kMask < 32
//   static uint32_t pack(float, float, float, float)         codes from byte 0 up, zeros as 0
#pragma once

#include "ceil_div.h"
#include "fp8.h"
#include "kernel.h"
#include "launch.h"

struct Quantize {
    const uint16_t* x;
    const float* signs;
    uint8_t* codes;
    float* scale;
    float* maxima;  // [batch][blocks][heads], in the workspace
    int batch, tokens, heads, blocks;
    int rotated, scales;
    float largest;
};

constexpr int kQuantTokens = 128;        // of a block
constexpr float kQuantSmallest = 1e-4f;  // magnitude that a scale is made for at least
enum QuantPass { kWhole, kMaxima, kCodes };

template <int kDim>
struct QuantShape {
    static constexpr int kEach = kDim / 32;               // elements of a row in a lane
    static constexpr int kRows = kDim == 256 ? 8 : 16;    // rows of a lane
    static constexpr int kGroups = kQuantTokens / kRows;  // of 32 lanes
    static constexpr int kThreads = kGroups * 32;
};

template <class Number, int kCount>
struct alignas(sizeof(Number) * kCount) QuantPiece {
    Number values[kCount];
};

/// The steps of the transform that exchange with lanes kMask, 2 kMask … 16 apart.
template <class Vendor, int kMask, int kEach>
__device__ __forceinline__ void transform_lanes(float (&y)[kEach], int lane) {
    if constexpr (kMask < 32) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const float other = Vendor::template from_lane_xor<kMask>(y[i]);
            y[i] = lane & kMask ? other - y[i] : y[i] + other;
        }
        transform_lanes<Vendor, 2 * kMask>(y, lane);
    }
}

/// y H · sqrt(dim), in place.
template <class Vendor, int kEach>
__device__ __forceinline__ void transform(float (&y)[kEach], int lane) {
#pragma unroll
    for (int width = 1; width < kEach; width *= 2) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if ((i & width) == 0) {
                const float a = y[i], b = y[i + width];
                y[i] = a + b;
                y[i + width] = a - b;
            }
        }
    }
    transform_lanes<Vendor, 1>(y, lane);
}

/// The largest value of 32 lanes, in all of them.
template <class Vendor, int kMask = 1>
__device__ __forceinline__ float maximum_of_lanes(float value) {
    if constexpr (kMask < 32)
        return maximum_of_lanes<Vendor, 2 * kMask>(fmaxf(value, Vendor::template from_lane_xor<kMask>(value)));
    return value;
}

/// The largest value of a block, in all threads. `shared` holds a number per 32 lanes.
template <class Vendor, int kGroups>
__device__ __forceinline__ float maximum_of_block(float value, float* shared) {
    value = maximum_of_lanes<Vendor>(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) value = fmaxf(value, shared[group]);
    return value;
}

template <class Vendor, int kDim, QuantPass kPass>
__global__ void __launch_bounds__(QuantShape<kDim>::kThreads) quantize_block(Quantize call) {
    using Shape = QuantShape<kDim>;
    constexpr int kEach = Shape::kEach, kRows = Shape::kRows;
    __shared__ float shared[Shape::kGroups];
    const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / 32;
    const int index = static_cast<int>(blockIdx.x), head = index % call.heads;
    const int block = index / call.heads % call.blocks, batch = index / call.heads / call.blocks;
    const int first = block * kQuantTokens + group;
    const size_t pitch = static_cast<size_t>(call.heads) * kDim;
    const size_t start =
        (static_cast<size_t>(batch) * static_cast<size_t>(call.tokens) + static_cast<size_t>(first)) * pitch +
        static_cast<size_t>(head * kDim + lane * kEach);

    float y[kRows][kEach];
    float largest = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        QuantPiece<uint16_t, kEach> piece = {};
        if (first + r * Shape::kGroups < call.tokens)
            piece = *reinterpret_cast<const QuantPiece<uint16_t, kEach>*>(
                call.x + start + static_cast<size_t>(r * Shape::kGroups) * pitch);
#pragma unroll
        for (int i = 0; i < kEach; ++i) y[r][i] = bf16_to_float(piece.values[i]);
    }
    float factor = 1.0f;  // what y still lacks
    if (call.rotated) {
        constexpr float kRoot = kDim == 64 ? 0.125f : kDim == 128 ? 0.08838834764831845f : 0.0625f;
        factor = kRoot;
        float signs[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) signs[i] = call.signs[lane * kEach + i];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) y[r][i] *= signs[i];
            transform<Vendor>(y[r], lane);
        }
    }
    float scale = 0.0f;
    if constexpr (kPass == kCodes) {
        scale = call.scale[call.scales == 0 ? 0 : batch * call.heads + head];
    } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(y[r][i]));
        }
        largest = maximum_of_block<Vendor, Shape::kGroups>(largest, shared) * factor;
        if constexpr (kPass == kMaxima) {
            if (threadIdx.x == 0) call.maxima[index] = largest;
            return;
        }
        scale = fmaxf(largest, kQuantSmallest) / call.largest;
        if (threadIdx.x == 0) call.scale[index] = scale;
    }
    const float inverse = factor / scale;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        QuantPiece<uint8_t, kEach> piece;
#pragma unroll
        for (int i = 0; i < kEach; i += 4) {
            const float* const v = y[r] + i;
            const bool four = kEach >= 4;
            const uint32_t codes = Vendor::pack(
                v[0] * inverse, v[1] * inverse, four ? v[four ? 2 : 0] * inverse : 0.0f,
                four ? v[four ? 3 : 0] * inverse : 0.0f);
#pragma unroll
            for (int j = 0; j < 4 && i + j < kEach; ++j) piece.values[i + j] = static_cast<uint8_t>(codes >> 8 * j);
        }
        if (first + r * Shape::kGroups < call.tokens)
            *reinterpret_cast<QuantPiece<uint8_t, kEach>*>(
                call.codes + start + static_cast<size_t>(r * Shape::kGroups) * pitch) = piece;
    }
}

constexpr int kMergeThreads = 256;

/// Scales from the maxima: a block per batch and head, or one for the tensor.
template <class Vendor>
__global__ void __launch_bounds__(kMergeThreads) merge_maxima(Quantize call) {
    __shared__ float shared[kMergeThreads / 32];
    const int index = static_cast<int>(blockIdx.x);
    const bool whole = call.scales == 0;
    const int count = whole ? call.batch * call.blocks * call.heads : call.blocks;
    float largest = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kMergeThreads)
        largest = fmaxf(
            largest, call.maxima[whole ? i : (index / call.heads * call.blocks + i) * call.heads + index % call.heads]);
    largest = maximum_of_block<Vendor, kMergeThreads / 32>(largest, shared);
    if (threadIdx.x == 0) call.scale[index] = fmaxf(largest, kQuantSmallest) / call.largest;
}

template <class Vendor, int kDim>
int launch_quantize_dim(const Quantize& call, void* queue) {
    const dim3 blocks(static_cast<unsigned>(call.batch * call.blocks * call.heads)),
        threads(QuantShape<kDim>::kThreads);
    if (call.scales == 2) {
        const auto kernel = quantize_block<Vendor, kDim, kWhole>;
        LAUNCH(kernel, blocks, threads, 0, queue)(call);
        return LAUNCH_STATUS();
    }
    const auto maxima = quantize_block<Vendor, kDim, kMaxima>, codes = quantize_block<Vendor, kDim, kCodes>;
    const auto merge = merge_maxima<Vendor>;
    const unsigned count = call.scales == 0 ? 1u : static_cast<unsigned>(call.batch * call.heads);
    LAUNCH(maxima, blocks, threads, 0, queue)(call);
    LAUNCH(merge, dim3(count), dim3(kMergeThreads), 0, queue)(call);
    LAUNCH(codes, blocks, threads, 0, queue)(call);
    return LAUNCH_STATUS();
}

/// hadamard_quantize() for a vendor.
template <class Vendor>
int launch_quantize(
    const void* x, const float* signs, unsigned char* codes, float* scale, int batch, int tokens, int heads,
    int head_dim, int rotated, int scales, float largest, void* workspace, size_t workspace_bytes, void* queue) {
    if (batch < 1 || tokens < 1 || heads < 1 || scales < 0 || scales > 2) return kUnsupportedShape;
    if (reinterpret_cast<uintptr_t>(x) % 16 != 0 || reinterpret_cast<uintptr_t>(codes) % 16 != 0)
        return kUnsupportedShape;
    const int blocks = ceil_div(tokens, kQuantTokens);
    const long long count = static_cast<long long>(batch) * blocks * heads;
    if (count > (1 << 22)) return kUnsupportedShape;  // a grid of AMD's has 32 bits of threads
    if (workspace_bytes < sizeof(float) * static_cast<size_t>(count)) return kWorkspaceTooSmall;
    const Quantize call = {
        static_cast<const uint16_t*>(x),
        signs,
        codes,
        scale,
        static_cast<float*>(workspace),
        batch,
        tokens,
        heads,
        blocks,
        rotated,
        scales,
        largest};
    switch (head_dim) {
        case 64: return launch_quantize_dim<Vendor, 64>(call, queue);
        case 128: return launch_quantize_dim<Vendor, 128>(call, queue);
        case 256: return launch_quantize_dim<Vendor, 256>(call, queue);
        default: return kUnsupportedShape;
    }
}
