// SPDX-License-Identifier: MIT
// hadamard_quantize on both vendors: rows rotated in registers by a fast Hadamard transform, then coded in fp8.
//
// A block takes 128 tokens of one head, four or eight lanes to a row, and keeps them in registers. A lane holds pieces of 8
// elements, which take turns with its neighbours': lane l has elements (piece * kLanes + l) * 8 + i of a row. So all steps of
// the transform but two or three stay in the lane; those exchange with lanes 1, 2 and 4 apart.
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
    static constexpr int kLanes = kDim == 256 ? 8 : 4;  // of a row
    static constexpr int kPieces = kDim / 8 / kLanes;   // of a row in a lane
    static constexpr int kRows = kDim == 256 ? 2 : 1;   // of a lane
    static constexpr int kApart = kQuantTokens / kRows;
    static constexpr int kThreads = kApart * kLanes, kGroups = kThreads / 32;
};

template <class Number, int kCount>
struct alignas(sizeof(Number) * kCount) QuantPiece {
    Number values[kCount];
};

/// The steps of the transform that exchange with lanes kMask, 2 kMask … kLanes / 2 apart.
template <class Vendor, int kLanes, int kCount, int kMask = 1>
__device__ __forceinline__ void transform_lanes(float (&y)[kCount], int lane) {
    if constexpr (kMask < kLanes) {
        const float sign = lane & kMask ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < kCount; ++i) y[i] = y[i] * sign + Vendor::template from_lane_xor<kMask>(y[i]);
        transform_lanes<Vendor, kLanes, kCount, 2 * kMask>(y, lane);
    }
}

/// y H · sqrt(dim), in place.
template <class Vendor, int kLanes, int kCount>
__device__ __forceinline__ void transform(float (&y)[kCount], int lane) {
#pragma unroll
    for (int width = 1; width < kCount; width *= 2) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if ((i & width) == 0) {
                const float a = y[i], b = y[i + width];
                y[i] = a + b;
                y[i + width] = a - b;
            }
        }
    }
    transform_lanes<Vendor, kLanes>(y, lane);
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
    constexpr int kRows = Shape::kRows, kLanes = Shape::kLanes, kPieces = Shape::kPieces, kCount = kPieces * 8;
    __shared__ float shared[Shape::kGroups];
    const int lane = static_cast<int>(threadIdx.x) % kLanes, row = static_cast<int>(threadIdx.x) / kLanes;
    const int index = static_cast<int>(blockIdx.x), head = index % call.heads;
    const int block = index / call.heads % call.blocks, batch = index / call.heads / call.blocks;
    const int first = block * kQuantTokens + row;
    const size_t pitch = static_cast<size_t>(call.heads) * kDim;
    const size_t start =
        (static_cast<size_t>(batch) * static_cast<size_t>(call.tokens) + static_cast<size_t>(first)) * pitch +
        static_cast<size_t>(head * kDim + lane * 8);

    float y[kRows][kCount];
    float largest = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const bool there = first + r * Shape::kApart < call.tokens;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
            QuantPiece<uint16_t, 8> piece = {};
            if (there)
                piece = *reinterpret_cast<const QuantPiece<uint16_t, 8>*>(
                    call.x + start + static_cast<size_t>(r * Shape::kApart) * pitch + j * kLanes * 8);
#pragma unroll
            for (int i = 0; i < 8; ++i) y[r][j * 8 + i] = bf16_to_float(piece.values[i]);
        }
    }
    float factor = 1.0f;  // what y still lacks
    if (call.rotated) {
        constexpr float kRoot = kDim == 64 ? 0.125f : kDim == 128 ? 0.08838834764831845f : 0.0625f;
        factor = kRoot;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
            const float* const signs = call.signs + (j * kLanes + lane) * 8;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float sign = signs[i];
#pragma unroll
                for (int r = 0; r < kRows; ++r) y[r][j * 8 + i] *= sign;
            }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) transform<Vendor, kLanes>(y[r], lane);
    }
    float scale = 0.0f;
    if constexpr (kPass == kCodes) {
        scale = call.scale[call.scales == 0 ? 0 : batch * call.heads + head];
    } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) largest = fmaxf(largest, fabsf(y[r][i]));
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
        if (first + r * Shape::kApart >= call.tokens) continue;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
            QuantPiece<uint32_t, 2> codes;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float* const v = y[r] + j * 8 + i * 4;
                codes.values[i] = Vendor::pack(v[0] * inverse, v[1] * inverse, v[2] * inverse, v[3] * inverse);
            }
            *reinterpret_cast<QuantPiece<uint32_t, 2>*>(
                call.codes + start + static_cast<size_t>(r * Shape::kApart) * pitch + j * kLanes * 8) = codes;
        }
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
