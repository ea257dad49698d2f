// SPDX-License-Identifier: MIT
// Host side of the block-scaled GEMM: which tile height, how many parts of K, and the launches.
#pragma once

#include <initializer_list>

#include "ceil_div.h"
#include "launch.h"
#include "tile/block_scaled_gemm.h"
#include "tile/split_k.h"

struct Plan {
    int rows;   // of a tile of c
    int parts;  // of K
};

constexpr int kTileColumns = 128;
constexpr int kMaxParts = 16;  // beyond, only plane traffic grows

// The model's device, an MI300X: rough on purpose, since only the order of the candidates matters.
constexpr double kMatrixFlopPerCycle = 4096;   // of one compute unit
constexpr double kCacheBytesPerCycle = 64;     // what one compute unit draws from L2
constexpr double kMemoryBytesPerCycle = 2000;  // of the whole device, planes being short-lived and cached
constexpr double kBlockCycles = 1100;          // two barriers and the latency of LDS and memory of each K block
constexpr double kTileCycles = 3000;           // first bytes' latency and the epilogue
constexpr double kSumCycles = 8000;            // launching the summation

/// Predicted cycles. The busiest compute unit works through ceil(workgroups / units) tiles; each K block costs the larger
/// of its matrix and its load time, and a constant. Parts add a second launch, and writing and reading their planes.
inline double predicted_cycles(Plan plan, int m, int n, int k, int units) {
    const long long tiles = static_cast<long long>(ceil_div(m, plan.rows)) * ceil_div(n, kTileColumns);
    const double rounds = static_cast<double>(ceil_div<long long>(tiles * plan.parts, units));
    const double multiply = 2.0 * kBlockK * kTileColumns * plan.rows / kMatrixFlopPerCycle;
    const double load = static_cast<double>(kBlockK) * (kTileColumns + plan.rows) / kCacheBytesPerCycle;
    const int blocks = ceil_div(k / kBlockK, plan.parts);
    const double product = rounds * (blocks * ((multiply > load ? multiply : load) + kBlockCycles) + kTileCycles);
    if (plan.parts == 1) return product;
    return product + kSumCycles + 8.0 * plan.parts * m * n / kMemoryBytesPerCycle;
}

/// The cheapest of all tile heights and numbers of parts whose planes fit the workspace. `rows` and `parts` are taken as
/// they are if positive (parts as far as the workspace allows).
inline Plan choose_plan(
    std::initializer_list<int> heights, int m, int n, int k, size_t workspace_bytes, int rows, int parts,
    int units = kComputeUnits) {
    const long long fitting = static_cast<long long>(workspace_bytes / (plane_elements(m, n) * sizeof(float)));
    long long most = parts > 0 ? parts : kMaxParts;
    if (most > k / kBlockK) most = k / kBlockK;
    if (most > fitting) most = fitting > 1 ? fitting : 1;
    Plan best = {0, 1};
    double best_cycles = 0;
    for (const int height : heights) {
        if (rows > 0 && height != rows) continue;
        for (int count = parts > 0 ? static_cast<int>(most) : 1; count <= most; ++count) {
            const double cycles = predicted_cycles({height, count}, m, n, k, units);
            if (best.rows != 0 && cycles >= best_cycles) continue;
            best = {height, count};
            best_cycles = cycles;
        }
    }
    return best;
}

/// Launch `whole` or, where K is cut, `split` and the summation: `tiles` tiles of shape `Shape`, K in at most `wanted` parts,
/// for whose planes there is room; at most `most` workgroups for each. `more`: the kernel's arguments after those two.
template <class Shape, class... More>
int launch_product(
    void (*whole)(BlockScaledGemm, int, More...), void (*split)(BlockScaledGemm, int, More...),
    const BlockScaledGemm& problem, int wanted, void* queue, long long tiles, long long most, More... more) {
    if (tiles * Shape::kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    const int blocks_per_part = ceil_div(problem.k / kBlockK, wanted);
    const int parts = ceil_div(problem.k / kBlockK, blocks_per_part);  // none is empty
    const dim3 grid(static_cast<unsigned>(tiles < most ? tiles : most), static_cast<unsigned>(parts));
    LAUNCH((parts == 1 ? whole : split), grid, dim3(Shape::kThreads), 0, queue)(problem, blocks_per_part, more...);
    if (parts == 1) return LAUNCH_STATUS();
    const size_t sums = ceil_div<size_t>(plane_elements(problem.m, problem.n), kSumThreads * kSumElements);
    LAUNCH(sum_planes, dim3(static_cast<unsigned>(sums)), dim3(kSumThreads), 0, queue)(
        problem.planes, problem.c, problem.m, problem.n, parts);
    return LAUNCH_STATUS();
}

/// How many there are; 64 bits, unlike all_tiles.
template <class Shape>
long long count_tiles(int m, int n) {
    return static_cast<long long>(ceil_div(m, Shape::kM)) * ceil_div(n, Shape::kN);
}

template <class Layout, class Shape>
int launch_block_scaled(const BlockScaledGemm& problem, int wanted, void* queue) {
    const long long tiles = count_tiles<Shape>(problem.m, problem.n);
    return launch_product<Shape>(
        block_scaled_gemm<Layout, Shape, false>, block_scaled_gemm<Layout, Shape, true>, problem, wanted, queue, tiles,
        tiles);
}
