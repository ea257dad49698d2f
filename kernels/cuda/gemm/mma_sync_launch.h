// SPDX-License-Identifier: MIT
// Host side of the product on mma.sync: choosing a tile shape and a split of K, and launching it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/device.h"
#include "gemm/mma_sync.h"
#include "launch.h"

namespace gemm {

// Host side: which tile shape and how many splits of K serve a product best, by a small model of one multiprocessor.
//
// The busiest multiprocessor gets ceil(blocks / processors) thread blocks, as many at a time as fit. One K block costs a
// lone thread block its latency, and several resident ones their shares of the tensor cores and issue slots, whichever is
// more; starting and the epilogue cost a constant. Nothing runs faster than L2 and memory deliver. Splitting K costs a
// second launch and the traffic of the planes.
//
// The constants are cycles, fitted to 643 times of one H200 (benchmarks/fp8_gemm.md): the model's choice is within 1.5 % of
// the best plan in the geometric mean of 18 swept products. Other GPUs take them too: only the candidates' order matters.

/// A tile shape as the model sees it.
struct ShapeCost {
    int m, n;
    int resident;   // thread blocks that share a multiprocessor
    double lone;    // cycles of one K block when a thread block is alone
    double shared;  // cycles by which each resident thread block delays the others per K block
};

/// The measured costs of the tile kM x kN.
constexpr ShapeCost shape_cost(int m, int n) {
    if (m <= 16) return {m, n, 2, 760, 240};
    if (m <= 32) return {m, n, 2, 1030, 810};
    if (n <= 64) return {m, n, 4, 1060, 790};
    if (m <= 64) return {m, n, 2, 1700, 1480};
    return {m, n, 1, 2960, 2960};
}

constexpr double kL2BytesPerCycle = 26;         // what one multiprocessor draws through L2 while all do
constexpr double kOperandBytesPerCycle = 1730;  // the whole GPU, operands that no cache holds
constexpr double kPlaneBytesPerCycle = 45;      // per multiprocessor, planes written and read again
constexpr double kBlockCycles = 3300;           // first bytes' latency plus the epilogue
constexpr double kSumCycles = 7400;             // the second launch and its start
constexpr int kMaxSplits = 16;                  // further ones only add plane traffic
constexpr int kMinBlocksPerSplit = 2;           // a part must keep the ring busy at all

/// Predicted cycles of one candidate on `processors` multiprocessors.
inline double predicted_cycles(const ShapeCost& shape, int splits, int m, int n, int k, int processors) {
    const double blocks = static_cast<double>(ceil_div(m, shape.m)) * ceil_div(n, shape.n) * splits;
    const int busiest = static_cast<int>((blocks + processors - 1) / processors);
    const int steps = ceil_div(k / 128, splits);
    const auto round = [&](int together) {
        return together == 0 ? 0.0 : kBlockCycles + steps * std::max(shape.lone, together * shape.shared);
    };
    double cycles = busiest / shape.resident * round(shape.resident) + round(busiest % shape.resident);
    const double l2 = blocks * steps * 128.0 * (shape.m + shape.n) / (kL2BytesPerCycle * processors);
    const double memory = (static_cast<double>(m) + n) * k / kOperandBytesPerCycle;
    cycles = std::max(cycles, kBlockCycles + std::max(l2, memory));
    if (splits == 1) return cycles;
    const double plane_traffic = 2.0 * 4 * splits * m * plane_pitch(n);  // written, then read
    return cycles + kSumCycles + plane_traffic / (kPlaneBytesPerCycle * processors);
}

inline size_t plane_bytes(int m, int n) { return static_cast<size_t>(m) * plane_pitch(n) * sizeof(float); }

/// The cheapest of `count` shapes and of all splits whose planes fit the workspace.
inline Plan choose_plan(
    const ShapeCost* shapes, int count, int m, int n, int k, size_t workspace_bytes, int processors) {
    const size_t fitting = workspace_bytes / plane_bytes(m, n);
    const int most =
        static_cast<int>(std::min<size_t>(fitting, std::min(kMaxSplits, std::max(1, k / 128 / kMinBlocksPerSplit))));
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

// Host side: run a plan. The table of tile shapes is here; everything about a shape is known at compile time.

/// Launch the product with one tile shape; K in `splits` parts, which the planes at problem.planes must have room for.
template <class Layout, class Shape>
int launch_shape(const BlockScaledGemm& problem, int splits, void* queue) {
    const auto kernel = splits == 1 ? block_scaled_gemm<Layout, Shape, false> : block_scaled_gemm<Layout, Shape, true>;
    const int error = static_cast<int>(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
    if (error != 0) return error;
    const int tiles = ceil_div(problem.m, Shape::kM) * ceil_div(problem.n, Shape::kN);
    LAUNCH(kernel, dim3(tiles, splits), Shape::kThreads, Shape::kSharedBytes, queue)(problem);
    if (splits > 1) {
        const size_t quads = static_cast<size_t>(problem.m) * plane_pitch(problem.n) / kSumColumns;
        const unsigned blocks = static_cast<unsigned>(ceil_div<size_t>(quads, kSumThreads));
        LAUNCH(sum_planes, blocks, kSumThreads, 0, queue)(problem.planes, problem.c, problem.m, problem.n, splits);
    }
    return LAUNCH_STATUS();
}

/// The shapes a variant offers, smallest first. Its tables are local to functions on purpose: static data members of a
/// template are one object per process, so that two builds of a kernel loaded side by side would launch the first one's code.
template <class Layout, class... Shapes>
struct ShapeTable {
    static constexpr int kCount = sizeof...(Shapes);

    static int launch(const BlockScaledGemm& problem, const Plan& plan, void* queue) {
        using Launcher = int (*)(const BlockScaledGemm&, int, void*);
        const Launcher launchers[kCount] = {launch_shape<Layout, Shapes>...};
        return launchers[plan.shape](problem, plan.splits, queue);
    }

    static ShapeCost cost(int shape) {
        const ShapeCost costs[kCount] = {shape_cost(Shapes::kM, Shapes::kN)...};
        return costs[shape];
    }

    static Plan choose(int m, int n, int k, size_t workspace_bytes, int processors) {
        const ShapeCost costs[kCount] = {shape_cost(Shapes::kM, Shapes::kN)...};
        return choose_plan(costs, kCount, m, n, k, workspace_bytes, processors);
    }

    /// 0, or why this plan cannot run.
    static int refuse(const BlockScaledGemm& problem, const Plan& plan, size_t workspace_bytes) {
        if (plan.splits > problem.k / 128) return kUnsupportedShape;
        const size_t needed = plan.splits > 1 ? plan.splits * plane_bytes(problem.m, problem.n) : 0;
        return workspace_bytes < needed ? kWorkspaceTooSmall : 0;
    }

    /// Choose and launch.
    static int run(const BlockScaledGemm& problem, size_t workspace_bytes, void* queue) {
        int error = 0;
        const int processors = multiprocessors(error);
        if (error != 0) return error;
        const size_t room = problem.planes != nullptr ? workspace_bytes : 0;
        return launch(problem, choose(problem.m, problem.n, problem.k, room, processors), queue);
    }
};

}  // namespace gemm
