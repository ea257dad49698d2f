// SPDX-License-Identifier: MIT
// Host side: the Hopper product of MN-major operands. In shared memory wgmma reads only K-major FP8 operands.
//
// One launch transposes one operand, or both, into the workspace, the next multiplies. The product starts beside the
// end of the transposition and reads what that just wrote, out of L2 as long as it fits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/device.h"
#include "gemm/transpose_bytes.h"
#include "gemm/wgmma_launch.h"

namespace gemm {

// Copying blocks that start beside the end of an earlier kernel crowd on the multiprocessors it leaves first, five on each, and
// wait there; the others then have too few. The product's, one to a multiprocessor, cannot.
#ifndef EARLY_COPIES
#error "EARLY_COPIES is a tunable of the kernel file: 1 starts the copies beside the end of the launch before"
#endif
constexpr bool kEarlyCopies = EARLY_COPIES != 0;

constexpr double kCopiedBytesPerCycle = 1000;  // of the whole GPU, at 1980 MHz

/// A WgmmaTable for MN-major operands; the problem's `planes` are the workspace that takes the copies. Without kBoth only
/// the operand of an instance's columns is copied, and its rows stay as they are: the instances are MnMajorRows.
template <class Table, bool kBoth>
struct TransposedTable {
    static constexpr int kCount = Table::kCount;

    /// A copy's bytes, such that the next one is aligned for TMA.
    static size_t copy_bytes(int rows, int k) { return ceil_div<size_t>(static_cast<size_t>(rows) * k, 256) * 256; }

    /// What any plan may need.
    static size_t copies_bytes(const BlockScaledGemm& g) {
        const size_t tokens = copy_bytes(g.m, g.k), weights = copy_bytes(g.n, g.k);
        return kBoth ? tokens + weights : std::max(tokens, weights);
    }

    static auto cost(int shape) { return Table::cost(shape); }

    static Plan choose(int m, int n, int k, size_t, int processors) {
        WgmmaCost costs[kCount];
        for (int i = 0; i < kCount; ++i) costs[i] = cost(i);
        return choose_wgmma_plan(costs, kCount, m, n, k, processors, [=](const WgmmaCost& shape) {
            return kBoth ? 0.0 : (shape.tokens_are_rows ? n : m) * static_cast<double>(k) / kCopiedBytesPerCycle;
        });
    }

    /// 0, or why this plan cannot run.
    static int refuse(const BlockScaledGemm& g, const Plan& plan, size_t workspace_bytes) {
        if (workspace_bytes < copies_bytes(g)) return kWorkspaceTooSmall;
        return Table::refuse(g, plan, workspace_bytes);
    }

    static int launch(const BlockScaledGemm& g, const Plan& plan, void* queue) {
        constexpr ColumnOrder kOrder = kBoth ? ColumnOrder::kNatural : ColumnOrder::kPaired;
        BlockScaledGemm copied = g;
        ByteTransposition tokens = {}, weights = {};
        uint8_t* room = reinterpret_cast<uint8_t*>(g.planes);
        const bool tokens_are_rows = cost(plan.shape).tokens_are_rows;
        if (kBoth || tokens_are_rows) {
            weights = {g.b, room, g.n, g.k};
            copied.b = room;
            room += copy_bytes(g.n, g.k);
        }
        if (kBoth || !tokens_are_rows) {
            tokens = {g.a, room, g.m, g.k};
            copied.a = room;
        }
        const int error = launch_transpositions<kOrder>(weights, tokens, kEarlyCopies, queue);
        return error != 0 ? error : Table::launch(copied, plan, queue);
    }

    /// Choose and launch.
    static int run(const BlockScaledGemm& g, size_t workspace_bytes, void* queue) {
        int error = 0;
        const int processors = multiprocessors(error);
        if (error != 0) return error;
        const Plan plan = choose(g.m, g.n, g.k, workspace_bytes, processors);
        const int refusal = refuse(g, plan, g.planes != nullptr ? workspace_bytes : 0);
        return refusal != 0 ? refusal : launch(g, plan, queue);
    }
};

}  // namespace gemm
