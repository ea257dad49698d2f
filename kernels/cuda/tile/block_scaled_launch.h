// SPDX-License-Identifier: MIT
// Host side: run a plan. The table of tile shapes is here; everything about a shape is known at compile time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "tile/block_scaled_gemm.h"
#include "tile/block_scaled_plan.h"
#include "tile/split_k.h"

/// Launch the product with one tile shape; K in `splits` parts, which the planes at problem.planes must have room for.
template <class Layout, class Shape>
int launch_shape(const BlockScaledGemm& problem, int splits, void* queue) {
    const auto kernel =
        splits == 1 ? block_scaled_gemm<Layout, Shape, false> : block_scaled_gemm<Layout, Shape, true>;
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
