// SPDX-License-Identifier: MIT
// Host side: which instance of the Hopper product serves a problem best, and into how many parts its K is divided.
#pragma once

#include <algorithm>

#include "ceil_div.h"
#include "tile/plan.h"

/// An instance as the model sees it.
struct WgmmaCost {
    int m, n;                  // tile rows and columns
    bool tokens_are_rows;
    bool exchange;             // may split K over a cluster
    int pair, resident;
};

constexpr int kMostClusterBlocks = 8;   // what every Hopper GPU accepts

constexpr double kProductFlopPerCycle = 6500;   // of 8192: waits, turns, power
constexpr double kLoadBytesPerCycle = 40;       // through L2, per multiprocessor
constexpr double kMemoryBytesPerCycle = 2100;   // the whole GPU
constexpr double kTileCycles = 900;             // storing a tile beside nothing else
constexpr double kExchangeCycles = 3500;        // filling a block's ring, the exchange and the store

/// Predicted cycles of one candidate on `processors` multiprocessors.
inline double predicted_cycles(const WgmmaCost& shape, int splits, int m, int n, int k, int processors) {
    const int rows = shape.tokens_are_rows ? m : n, columns = shape.tokens_are_rows ? n : m;
    const double units = static_cast<double>(ceil_div(rows, shape.m)) * ceil_div(columns, shape.n * shape.pair);
    const double blocks = units * shape.pair * splits;
    const double room = processors / shape.pair * shape.pair * (shape.exchange ? shape.resident : 1);
    const double rounds = static_cast<double>(static_cast<long long>((blocks + room - 1) / room));
    const double together = std::min<double>(shape.exchange ? shape.resident : 1, (blocks + processors - 1) / processors);
    const double product = 2.0 * 128 * shape.m * shape.n / kProductFlopPerCycle;
    const double load = 128.0 * (static_cast<double>(shape.m) / shape.pair + shape.n) / kLoadBytesPerCycle;
    const double step = std::max(product, load) * std::max(1.0, together);
    const double cycles =
        rounds * (ceil_div(k / 128, splits) * std::max(step, 600.0) + (shape.exchange ? kExchangeCycles : kTileCycles));
    return std::max(cycles, (static_cast<double>(m) + n) * k / kMemoryBytesPerCycle + kExchangeCycles);
}

/// How many row tiles `room` concurrent tiles of m x n should span, so that together they read the fewest operands.
inline int best_band(int room, int m, int n) {
    int best = 1;
    for (int band = 1; band <= 32; ++band) {
        if (band * m + ceil_div(room, band) * n < best * m + ceil_div(room, best) * n) best = band;
    }
    return best;
}

/// The cheapest of `count` instances and of all splits.
inline Plan choose_wgmma_plan(const WgmmaCost* shapes, int count, int m, int n, int k, int processors) {
    Plan best = {0, 1};
    double best_cycles = 1e300;
    for (int shape = 0; shape < count; ++shape) {
        const int most = shapes[shape].exchange ? std::min(kMostClusterBlocks, k / 128) : 1;
        for (int splits = 1; splits <= most; ++splits) {
            const double cycles = predicted_cycles(shapes[shape], splits, m, n, k, processors);
            if (cycles < best_cycles) {
                best = {shape, splits};
                best_cycles = cycles;
            }
        }
    }
    return best;
}
