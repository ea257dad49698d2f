// SPDX-License-Identifier: MIT
// Host side: the Hopper product of operands that come K-outermost, which wgmma cannot read: FP8 operands must be K-major.
//
// One launch transposes both into the workspace, the next multiplies the copies. The product starts beside the end of the
// transposition and reads what that just wrote, out of L2 as long as it fits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tile/transpose_bytes.h"
#include "tile/wgmma_launch.h"

/// A WgmmaTable for K-outermost operands; the problem's `planes` are the workspace that takes the copies.
template <class Table>
struct TransposedTable {
    static constexpr int kCount = Table::kCount;

    /// A copy's bytes, such that the next one is aligned for TMA.
    static size_t copy_bytes(int rows, int k) { return ceil_div<size_t>(static_cast<size_t>(rows) * k, 256) * 256; }

    static auto cost(int shape) { return Table::cost(shape); }

    static Plan choose(int m, int n, int k, size_t workspace_bytes, int processors) {
        return Table::choose(m, n, k, workspace_bytes, processors);
    }

    /// 0, or why this plan cannot run.
    static int refuse(const BlockScaledGemm& g, const Plan& plan, size_t workspace_bytes) {
        if (workspace_bytes < copy_bytes(g.m, g.k) + copy_bytes(g.n, g.k)) return kWorkspaceTooSmall;
        return Table::refuse(g, plan, workspace_bytes);
    }

    static int launch(const BlockScaledGemm& g, const Plan& plan, void* queue) {
        BlockScaledGemm copied = g;
        uint8_t* const a = reinterpret_cast<uint8_t*>(g.planes);
        uint8_t* const b = a + copy_bytes(g.m, g.k);
        copied.a = a;
        copied.b = b;
        const int error = launch_transpositions({g.a, a, g.m, g.k}, {g.b, b, g.n, g.k}, EARLY_START != 0, queue);
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
