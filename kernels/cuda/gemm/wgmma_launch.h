// SPDX-License-Identifier: MIT
// Host side of the Hopper product: tensor maps, grid and launch of one instance, the table of instances, and plans measured for
// some shapes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ceil_div.h"
#include "common/device.h"
#include "common/launch_cluster.h"
#include "common/tensor_map.h"
#include "gemm/plan.h"
#include "gemm/problem.h"
#include "gemm/wgmma.h"

namespace gemm {

// Host side of the Hopper product: tensor maps, grid and launch of one instance, and the table of instances.

// Weights fetched into L2 while the previous kernel ends (EARLY_START=2), for products of so few tokens that reading weights
// is all they do. Measured: 12 MB compete with what the previous kernel reads; 1024 tokens gain nothing.
constexpr size_t kFetchedBytes = 4 << 20;
constexpr int kFetchingTokens = 128;

/// Launch one instance with K in `splits` parts (1 unless it reduces over a cluster). Returns 0 or the runtime's or the driver's error.
template <class Shape>
int launch_wgmma(const BlockScaledGemm& g, int splits, int processors, void* queue) {
    const Matrix tokens = {g.a, g.m, g.k, 1}, weights = {g.b, g.n, g.k, 1}, product = {g.c, g.m, g.n, 2};
    const Matrix& rows = Shape::kTokensAreRows ? tokens : weights;
    const Matrix& columns = Shape::kTokensAreRows ? weights : tokens;
    const int room = processors / Shape::kPair;  // clusters at a time
    // Rows outside the matrix would cost TMA as much time as others, and nobody needs their zeros: wgmma's rows and columns
    // do not mix, and those outside are never stored.
    const int row_box = Shape::kMnMajorRows ? Shape::kM / Shape::kPair : std::min(Shape::kM / Shape::kPair, rows.rows);
    const int column_box = std::min(Shape::kN, columns.rows);
    // So the last tiles have boxes of their own; not those of rows that two blocks share or that lie MN-major.
    const bool rows_alone = Shape::kPair == 1 && !Shape::kMnMajorRows && rows.rows > Shape::kM;
    const int row_tail = rows_alone ? rows.rows % Shape::kM : 0;
    const int column_tail = columns.rows > Shape::kN ? columns.rows % Shape::kN : 0;
    const size_t slice = static_cast<size_t>(g.n) * Shape::kK * splits;  // bytes of one K block in every part
    const int fetched =
        EARLY_START == 2 && g.m <= kFetchingTokens ? std::max(1, static_cast<int>(kFetchedBytes / slice)) : 0;
    const WgmmaProblem problem = {
        g.a_scale,
        g.b_scale,
        g.c,
        g.m,
        g.n,
        g.k / Shape::kK,
        ceil_div(rows.rows, Shape::kM),
        ceil_div(columns.rows, Shape::kN * Shape::kPair),
        best_band(room, ceil_div(rows.rows, Shape::kM), Shape::kM, Shape::kN * Shape::kPair),
        g.n % 8 == 0,
        row_box * Shape::kPair,
        column_box,
        row_tail,
        column_tail,
        static_cast<const uint8_t*>(weights.start),
        fetched,
        g.b_scale_row,
        g.b_scale_k};

    TensorMap row_map, row_tail_map = {}, column_map, column_tail_map = {}, output_map = {};
    int error = Shape::kMnMajorRows ? encode_mn_major_rows<Shape>(&row_map, rows)
                                    : encode_tensor_map(&row_map, rows, row_box, Shape::kK);
    if (error == 0) error = encode_tensor_map(&column_map, columns, column_box, Shape::kK);
    if (error == 0 && row_tail > 0) error = encode_tensor_map(&row_tail_map, rows, row_tail, Shape::kK);
    if (error == 0 && column_tail > 0) error = encode_tensor_map(&column_tail_map, columns, column_tail, Shape::kK);
    if (error == 0 && !Shape::kClusterReduce && problem.boxes) {
        error = Shape::kTokensAreRows ? encode_tensor_map(&output_map, product, 64, Shape::kBox)
                                      : encode_tensor_map(&output_map, product, Shape::kBox, 64);
    }
    if (error != 0) return error;

    const int tiles = problem.tiles_m * problem.tiles_n;
    const int cluster = Shape::kClusterReduce ? splits : Shape::kPair;
    const int clusters = Shape::kClusterReduce || tiles < room ? tiles : room;
    return launch_cluster(
        wgmma_gemm<Shape>, clusters * cluster, Shape::kThreads, cluster, Shape::kSharedBytes, EARLY_START != 0, queue,
        row_map, row_tail_map, column_map, column_tail_map, output_map, problem);
}

/// An instance with its fitted constants (WgmmaCost in gemm/plan.h); one without them gets estimates.
template <class Shape, int kStep, int kShared, int kTile>
struct Instance;

template <class Shape>
constexpr WgmmaCost cost_of(int step, int shared, int tile) {
    return {Shape::kM, Shape::kN, Shape::kTokensAreRows, Shape::kClusterReduce, Shape::kPair, Shape::kResident, step,
            shared,    tile};
}

template <class Entry>
struct TableEntry {
    using Shape = Entry;
    static constexpr WgmmaCost cost() { return estimated(cost_of<Shape>(0, 0, 0)); }
};
template <class Shape_, int kStep, int kShared, int kTile>
struct TableEntry<Instance<Shape_, kStep, kShared, kTile>> {
    using Shape = Shape_;
    static constexpr WgmmaCost cost() { return cost_of<Shape>(kStep, kShared, kTile); }
};

/// The instances a variant offers, Instance or not. Its tables are local to functions, for the reason ShapeTable's are.
template <class... Entries>
struct WgmmaTable {
    static constexpr int kCount = sizeof...(Entries);

    static WgmmaCost cost(int shape) {
        const WgmmaCost costs[kCount] = {TableEntry<Entries>::cost()...};
        return costs[shape];
    }

    static Plan choose(int m, int n, int k, size_t, int processors) {
        WgmmaCost costs[kCount];
        for (int i = 0; i < kCount; ++i) costs[i] = cost(i);
        return choose_wgmma_plan(costs, kCount, m, n, k, processors);
    }

    /// 0, or why this plan cannot run.
    static int refuse(const BlockScaledGemm& problem, const Plan& plan, size_t) {
        // A block has room for what it receives at these numbers of parts alone (most_received).
        const int* const last = kSplitCounts + sizeof(kSplitCounts) / sizeof(int);
        const bool known = std::find(kSplitCounts, last, plan.splits) != last;
        const bool splits = cost(plan.shape).reduce ? known : plan.splits == 1;
        return splits && plan.splits <= problem.k / 128 ? 0 : kUnsupportedShape;
    }

    static int launch(const BlockScaledGemm& problem, const Plan& plan, void* queue) {
        int error = 0;
        const int processors = multiprocessors(error);
        if (error != 0) return error;
        using Launcher = int (*)(const BlockScaledGemm&, int, int, void*);
        const Launcher launchers[kCount] = {launch_wgmma<typename TableEntry<Entries>::Shape>...};
        return launchers[plan.shape](problem, plan.splits, processors, queue);
    }

    /// Choose and launch.
    static int run(const BlockScaledGemm& problem, void* queue) {
        int error = 0;
        const int processors = multiprocessors(error);
        if (error != 0) return error;
        return launch(problem, choose(problem.m, problem.n, problem.k, 0, processors), queue);
    }
};

// Host side: a table of instances with plans for the shapes that were measured; the model of gemm/plan.h for all others.

/// The fastest plan measured with `kTokens_` tokens and weights [kN_][kK_]: an instance and the parts of K. It serves fewer tokens,
/// too, from `kLeast_` on.
template <int kLeast_, int kTokens_, int kN_, int kK_, class Shape_, int kSplits_>
struct Measured {
    using Shape = Shape_;
    static constexpr int kLeast = kLeast_, kTokens = kTokens_, kN = kN_, kK = kK_, kSplits = kSplits_;
};

/// Measured plans that are faster than the model's.
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
            int least, tokens, n, k;
            Plan plan;
        };
        const Row rows[] = {
            {Rows::kLeast,
             Rows::kTokens,
             Rows::kN,
             Rows::kK,
             {IndexIn<typename Rows::Shape, Table>::kIndex, Rows::kSplits}}...};
        for (const Row& row : rows) {
            const bool same = row.n == n && row.k == k && row.least <= m && m <= row.tokens;
            if (processors == kProcessors && same) return row.plan;
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

}  // namespace gemm
