// SPDX-License-Identifier: MIT
// Host side: a table of instances with plans for the shapes that were measured; the model of wgmma_plan.h for all others.
#pragma once

#include <type_traits>

#include "tile/wgmma_launch.h"

/// The fastest plan measured with `kTokens_` tokens and weights [kN_][kK_]: an instance and the parts of K. It serves fewer tokens,
/// too, down to the next smaller measured number.
template <int kTokens_, int kN_, int kK_, class Shape_, int kSplits_>
struct Measured {
    using Shape = Shape_;
    static constexpr int kTokens = kTokens_, kN = kN_, kK = kK_, kSplits = kSplits_;
};

/// Measured plans, the fewest tokens first for each pair of n and k.
template <class... Rows>
struct MeasuredPlans {};

/// The index of an instance in a table.
template <class Shape, class Table>
struct IndexIn;
template <class Shape, class... Entries>
struct IndexIn<Shape, WgmmaTable<Entries...>> {
    static constexpr int find() {
        const bool same[] = {std::is_same_v<Shape, typename TableEntry<Entries>::Shape>...};
        for (int i = 0; i < static_cast<int>(sizeof...(Entries)); ++i) {
            if (same[i]) return i;
        }
        return -1;
    }
    static constexpr int kIndex = find();
    static_assert(kIndex >= 0, "a measured plan names an instance that the table lacks");
};

/// A WgmmaTable that chooses by measurement on a GPU of `kProcessors` multiprocessors, where it can.
template <class Table, int kProcessors, class Plans>
struct MeasuredTable;

template <class Table, int kProcessors, class... Rows>
struct MeasuredTable<Table, kProcessors, MeasuredPlans<Rows...>> : Table {
    static Plan choose(int m, int n, int k, size_t room, int processors) {
        struct Row {
            int tokens, n, k;
            Plan plan;
        };
        const Row rows[] = {{Rows::kTokens, Rows::kN, Rows::kK, {IndexIn<typename Rows::Shape, Table>::kIndex, Rows::kSplits}}...};
        for (const Row& row : rows) {
            if (processors == kProcessors && row.n == n && row.k == k && m <= row.tokens) return row.plan;
        }
        return Table::choose(m, n, k, room, processors);
    }

    /// Choose and launch.
    static int run(const BlockScaledGemm& problem, void* queue) {
        int error = 0;
        const int processors = multiprocessors(error);
        if (error != 0) return error;
        return Table::launch(problem, choose(problem.m, problem.n, problem.k, 0, processors), queue);
    }
};
