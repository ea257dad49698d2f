// SPDX-License-Identifier: MIT
// Host side: which instance of the Hopper product serves a problem best, and into how many parts its K is divided.
//
// A model of time with fitted constants: a few that all instances share, here, and three of each instance (Instance, in the
// kernel file), all in cycles of 1980 MHz. benchmarks/tools/fit_gemm_plan.py fits them to sweeps; benchmarks/fp8_gemm.md,
// version 10, has its outcome.
#pragma once

#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "gemm/problem.h"

namespace gemm {

/// An instance as the model sees it.
struct WgmmaCost {
    int m, n;  // tile rows and columns
    bool tokens_are_rows;
    bool reduce;  // may split K over a cluster
    int pair, resident;
    int step;    // cycles per K block with the multiprocessor to itself
    int shared;  // cycles per K block of all residents together
    int tile;    // cycles per tile beside its K blocks: fill and finish, as far as nothing hides them
};

/// Constants for an instance that was never fitted, close enough to tell which are worth a try.
constexpr WgmmaCost estimated(const WgmmaCost& shape) {
    WgmmaCost rated = shape;
    rated.step = 200 + shape.m * shape.n / 27;
    rated.shared = rated.step * 7 / 4;
    rated.tile = shape.reduce ? 1000 + shape.m * shape.n / 4 : 700;
    return rated;
}

// Fitted together: instances' steps hold most of the wait for memory, so kMemoryBytesPerCycle is more than the GPU delivers.
constexpr double kLaunchCycles = 4315;         // a launch beside its neighbours in a graph, and the first latency
constexpr double kMemoryBytesPerCycle = 3597;  // of the whole GPU
constexpr double kOutCyclesPerSum = 0.0412;    // the last tiles' way out of a persistent block, which nothing hides
constexpr double kMeetingCycles = 689;         // of a cluster that adds up parts of K
constexpr double kSplitCycles = 272;           // more, for each further part and each block on its multiprocessor
// Of a pair that has one tile each: what they wait for each other nothing hides.
constexpr double kLonePairCycles = 2000;

/// Parts of K worth a try. Six and seven were never best: their clusters leave more multiprocessors idle.
constexpr int kSplitCounts[] = {1, 2, 3, 4, 5, 8};

/// Clusters of `blocks` blocks that run at once, one block per multiprocessor. Those of more than two come from one GPC
/// of 16 or 18 multiprocessors. Between what ran in one round and what took two in the sweep on an H200 (132).
inline int clusters_at_once(int blocks, int processors) {
    const int of_132[] = {132, 66, 36, 28, 22, 17, 14, 14};
    return std::max(1, of_132[blocks - 1] * processors / 132);
}

/// Predicted cycles of one candidate on `processors` multiprocessors.
inline double predicted_cycles(const WgmmaCost& shape, int splits, int m, int n, int k, int processors) {
    const int rows = shape.tokens_are_rows ? m : n, columns = shape.tokens_are_rows ? n : m;
    const int tiles = ceil_div(rows, shape.m) * ceil_div(columns, shape.n * shape.pair);  // pairs of them where paired
    const int layer = shape.reduce ? clusters_at_once(splits, processors) : processors / shape.pair;
    const int rounds = ceil_div(tiles, layer * shape.resident);
    const int together = std::min(shape.resident, ceil_div(tiles, layer));  // blocks on a multiprocessor
    // Where some multiprocessors have a block more than others, memory waits for those.
    const int blocks = tiles * (shape.reduce ? splits : shape.pair);
    const double uneven = together > 1 ? ceil_div(blocks, processors) * static_cast<double>(processors) / blocks : 1;
    const double step = shape.resident == 1 ? shape.step
                                            : shape.step + static_cast<double>(shape.shared - shape.step) *
                                                               (together - 1) / (shape.resident - 1);
    // An instance that reduces has a block per tile and hides nothing between tiles. Its constants come from few rounds.
    if (shape.reduce && splits == 1 && rounds > 4) return HUGE_VAL;
    const double meeting = splits > 1 ? kMeetingCycles + kSplitCycles * (splits - 1) * together : 0;
    const double lone = shape.pair == 2 && rounds == 1 ? kLonePairCycles : 0;
    const double work = rounds * (ceil_div(k / 128, splits) * step + shape.tile + meeting) + lone;
    const int reads = shape.tokens_are_rows ? 1 : ceil_div(columns, shape.n);  // of the weights
    const double bytes = (static_cast<double>(m) + static_cast<double>(n) * reads) * k + 2.0 * m * n;
    const double memory = bytes * uneven / kMemoryBytesPerCycle;
    const double out = shape.reduce ? 0 : kOutCyclesPerSum * shape.m * shape.n;
    return kLaunchCycles + std::pow(std::pow(work, 4) + std::pow(memory, 4), 0.25) + out;
}

/// How many of `tiles` row tiles to walk together, so that `room` concurrent tiles of m x n read the fewest operands: band of
/// them by room / band column tiles. Bands are as equal as can be.
inline int best_band(int room, int tiles, int m, int n) {
    int best = 1;
    double best_rows = 1e300;
    for (int bands = 1; bands <= tiles; ++bands) {
        const int band = ceil_div(tiles, bands);
        const double rows = band * static_cast<double>(m) + static_cast<double>(room) / band * n;
        if (rows < best_rows) {
            best = band;
            best_rows = rows;
        }
    }
    return best;
}

/// The cheapest of `count` instances and of all splits, each with `extra(its cost)` cycles more.
template <class Extra>
Plan choose_wgmma_plan(const WgmmaCost* shapes, int count, int m, int n, int k, int processors, const Extra& extra) {
    Plan best = {0, 1};
    double best_cycles = 1e300;
    for (int shape = 0; shape < count; ++shape) {
        for (const int splits : kSplitCounts) {
            if (splits > 1 && (!shapes[shape].reduce || splits > k / 128)) break;
            const double cycles = predicted_cycles(shapes[shape], splits, m, n, k, processors) + extra(shapes[shape]);
            if (cycles < best_cycles) {
                best = {shape, splits};
                best_cycles = cycles;
            }
        }
    }
    return best;
}

inline Plan choose_wgmma_plan(const WgmmaCost* shapes, int count, int m, int n, int k, int processors) {
    return choose_wgmma_plan(shapes, count, m, n, k, processors, [](const WgmmaCost&) { return 0.0; });
}

}  // namespace gemm
