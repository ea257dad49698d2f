// SPDX-License-Identifier: MIT
// Host side: the Hopper product of operands that come K-outermost. In shared memory wgmma reads only K-major FP8 operands.
//
// One launch transposes the weights, or both operands, into the workspace, the next multiplies. The product starts beside the
// end of the transposition and reads what that just wrote, out of L2 as long as it fits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tile/transpose_bytes.h"
#include "tile/wgmma_launch.h"

// Copying blocks that start beside the end of an earlier kernel crowd on the multiprocessors it leaves first, five on each, and
// wait there; the others then have too few. The product's, one to a multiprocessor, cannot.
#if !defined(EARLY_COPIES)
#define EARLY_COPIES 0   // a tunable of the kernel files
#endif
constexpr bool kEarlyCopies = EARLY_COPIES != 0;

/// A WgmmaTable for K-outermost operands; the problem's `planes` are the workspace that takes the copies. With kBoth a's
/// rows are copied, too; else they stay as they are, and the table's instances are RowsOutermost.
template <class Table, bool kBoth>
struct TransposedTable {
    static constexpr int kCount = Table::kCount;

    /// A copy's bytes, such that the next one is aligned for TMA.
    static size_t copy_bytes(int rows, int k) { return ceil_div<size_t>(static_cast<size_t>(rows) * k, 256) * 256; }

    static size_t copies_bytes(const BlockScaledGemm& g) {
        return copy_bytes(g.n, g.k) + (kBoth ? copy_bytes(g.m, g.k) : 0);
    }

    static auto cost(int shape) { return Table::cost(shape); }

    static Plan choose(int m, int n, int k, size_t workspace_bytes, int processors) {
        return Table::choose(m, n, k, workspace_bytes, processors);
    }

    /// 0, or why this plan cannot run.
    static int refuse(const BlockScaledGemm& g, const Plan& plan, size_t workspace_bytes) {
        if (workspace_bytes < copies_bytes(g)) return kWorkspaceTooSmall;
        return Table::refuse(g, plan, workspace_bytes);
    }

    static int launch(const BlockScaledGemm& g, const Plan& plan, void* queue) {
        constexpr ColumnOrder kOrder = kBoth ? ColumnOrder::kNatural : ColumnOrder::kPaired;
        BlockScaledGemm copied = g;
        uint8_t* const b = reinterpret_cast<uint8_t*>(g.planes);
        uint8_t* const a = b + copy_bytes(g.n, g.k);
        ByteTransposition tokens = {};
        if (kBoth) tokens = {g.a, a, g.m, g.k};
        if (kBoth) copied.a = a;
        copied.b = b;
        const int error = launch_transpositions<kOrder>({g.b, b, g.n, g.k}, tokens, kEarlyCopies, queue);
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
