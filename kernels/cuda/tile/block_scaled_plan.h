// SPDX-License-Identifier: MIT
// Host side: which tile shape and how many splits of K serve a product best, by a small model of one multiprocessor.
//
// The busiest multiprocessor gets ceil(blocks / processors) thread blocks. Each of its K blocks costs the larger of its
// tensor time (2 * 128 * kM * kN FLOP) and its load time ((kM + kN) * 128 bytes); filling the ring and the epilogue cost
// a constant per block. Splitting K costs a second launch and the traffic of the planes. Constants are cycles, rough on
// purpose: only the order of the candidates matters.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ceil_div.h"
#include "launch.h"
#include "tile/block_scaled_gemm.h"

/// Index of a tile shape in the launcher's table, and the number of parts K is divided into.
struct Plan {
    int shape;
    int splits;
};

struct ShapeCost {
    int m, n;
};

constexpr double kTensorFlopPerCycle = 2048;   // one Ada multiprocessor, fp8; Hopper through fp16 is near it
constexpr double kLoadBytesPerCycle = 32;      // what one multiprocessor draws from L2 and beyond with a full ring
constexpr double kBlockCycles = 2500;          // first bytes' latency plus the epilogue
constexpr double kSumCycles = 3000;            // launching the summation
constexpr int kMaxSplits = 16;                 // further ones only add plane traffic
constexpr int kMinBlocksPerSplit = 2;          // a part must keep the ring busy at all

/// Predicted cycles of one candidate on `processors` multiprocessors.
inline double predicted_cycles(const ShapeCost& shape, int splits, int m, int n, int k, int processors) {
    const double tiles = static_cast<double>(ceil_div(m, shape.m)) * ceil_div(n, shape.n);
    const double rounds = static_cast<double>(static_cast<long long>((tiles * splits + processors - 1) / processors));
    const double tensor = 2.0 * 128 * shape.m * shape.n / kTensorFlopPerCycle;
    const double load = 128.0 * (shape.m + shape.n) / kLoadBytesPerCycle;
    const double product = rounds * (ceil_div(k / 128, splits) * std::max(tensor, load) + kBlockCycles);
    if (splits == 1) return product;
    const double plane_bytes = 2.0 * 4 * splits * m * plane_pitch(n);   // written, then read
    return product + kSumCycles + plane_bytes / (kLoadBytesPerCycle * processors);
}

inline size_t plane_bytes(int m, int n) { return static_cast<size_t>(m) * plane_pitch(n) * sizeof(float); }

/// The cheapest of `count` shapes and of all splits whose planes fit the workspace.
inline Plan choose_plan(
    const ShapeCost* shapes, int count, int m, int n, int k, size_t workspace_bytes, int processors) {
    const size_t fitting = workspace_bytes / plane_bytes(m, n);
    const int most = static_cast<int>(
        std::min<size_t>(fitting, std::min(kMaxSplits, std::max(1, k / 128 / kMinBlocksPerSplit))));
    Plan best = {0, 1};
    double best_cycles = predicted_cycles(shapes[0], 1, m, n, k, processors);
    for (int shape = 0; shape < count; ++shape) {
        for (int splits = 1; splits <= std::max(1, most); ++splits) {
            const double cycles = predicted_cycles(shapes[shape], splits, m, n, k, processors);
            if (cycles < best_cycles) {
                best = {shape, splits};
                best_cycles = cycles;
            }
        }
    }
    return best;
}

/// Multiprocessors of the current device, or 0 with `error` set.
inline int multiprocessors(int& error) {
    int device = 0, count = 0;
    error = static_cast<int>(cudaGetDevice(&device));
    if (error == 0) error = static_cast<int>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}
