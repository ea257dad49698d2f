// SPDX-License-Identifier: MIT
// Host side of the block-scaled GEMM: which tile shape, how many parts of K, and the launches.
#pragma once

#include "ceil_div.h"
#include "launch.h"
#include "tile/block_scaled_gemm.h"
#include "tile/split_k.h"

constexpr int kComputeUnits = 304;       // of an MI300X
constexpr int kMinBlocksPerPart = 4;     // a part must outlast its first bytes' latency
constexpr int kMaxParts = 16;            // beyond, plane traffic costs more than idle compute units

/// Parts to cut K into so that `tiles` workgroups, `resident` of which fit a compute unit, fill the device. `forced`
/// overrides the choice if positive; the workspace bounds both.
inline int choose_parts(long long tiles, int resident, int k_blocks, size_t plane_bytes, size_t workspace_bytes, int forced) {
    long long parts = forced > 0 ? forced : kComputeUnits * static_cast<long long>(resident) / tiles;
    const long long most = forced > 0 ? k_blocks : ceil_div(k_blocks, kMinBlocksPerPart);
    if (parts > most) parts = most;
    if (forced <= 0 && parts > kMaxParts) parts = kMaxParts;
    const long long fitting = static_cast<long long>(workspace_bytes / plane_bytes);
    if (parts > fitting) parts = fitting;
    return parts < 2 ? 1 : static_cast<int>(parts);
}

/// Launch with tile shape `Shape`.
template <class Layout, class Shape>
int launch_block_scaled(const BlockScaledGemm& problem, size_t workspace_bytes, int forced_parts, void* queue) {
    constexpr int kLdsBytes = 64 * 1024;
    constexpr int kResident = kLdsBytes / static_cast<int>(sizeof(BlockScaledLds<Shape>));
    const int k_blocks = problem.k / kBlockK;
    const size_t plane_bytes = plane_elements(problem.m, problem.n) * sizeof(float);
    const long long tiles = static_cast<long long>(ceil_div(problem.m, Shape::kM)) * ceil_div(problem.n, Shape::kN);
    if (tiles > 0x7fffffff) return kUnsupportedShape;

    const int wanted = choose_parts(
        tiles, kResident, k_blocks, plane_bytes, problem.planes ? workspace_bytes : 0, forced_parts);
    const int blocks_per_part = ceil_div(k_blocks, wanted);
    const int parts = ceil_div(k_blocks, blocks_per_part);     // none is empty
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts));
    if (parts == 1) {
        LAUNCH((block_scaled_gemm<Layout, Shape, false>), grid, dim3(Shape::kThreads), 0, queue)(problem, blocks_per_part);
        return LAUNCH_STATUS();
    }
    LAUNCH((block_scaled_gemm<Layout, Shape, true>), grid, dim3(Shape::kThreads), 0, queue)(problem, blocks_per_part);
    const size_t sums = ceil_div<size_t>(plane_elements(problem.m, problem.n), kSumThreads * kSumElements);
    LAUNCH(sum_planes, dim3(static_cast<unsigned>(sums)), dim3(kSumThreads), 0, queue)(
        problem.planes, problem.c, problem.m, problem.n, parts);
    return LAUNCH_STATUS();
}
