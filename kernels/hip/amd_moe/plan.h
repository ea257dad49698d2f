// SPDX-License-Identifier: MIT
// Which tiles each workgroup of a product multiplies, and in which order: a kernel in front of both products.
//
// An expert's rows are cut into tiles that are alike. Those of the same columns are dealt out one after the other on one die:
// they share the expert's matrix while it passes by. A die gets neighbouring columns, as many as take an eighth of the time,
// and an eighth of the shared expert's, whose last tiles are half as high. Whoever has the least gets the next tile, so that
// all end together.
#pragma once

#include "amd_moe/routes.h"
#include "tile/grid.h"
#include "tile/half_overlapped.h"

/// Rows [first, first + count) by a tile of an expert's columns.
struct PlannedTile {
    int first, count;
    int expert_and_column;  // the column in the upper 24 bits
    int next;               // this workgroup's next tile, or -1
};

constexpr int kWorkgroups = kComputeUnits, kPerDie = kWorkgroups / kDies;

struct TilePlan {
    PlannedTile* tiles;  // of each die, `capacity`
    int* begin;          // [kWorkgroups]: the first one's number, or -1
    int columns, capacity;
};

/// Tiles that a die has at most. An eighth of all effort goes to it, and no tile takes less than one unit's. Of experts with
/// several tiles a column, those have 2.5 units on average at least: no more than 3 / 2 as many as there would be of four;
/// of the others there are no more than experts. Tiles that are cut finer where there are few are the rest.
__host__ __device__ __forceinline__ int plan_capacity(long long rows, int experts, int columns) {
    const long long all = experts + 1, units = rows / kUnitRows + all, tiles = rows / kTileRows + all;
    const long long least = columns * (3 * units + 5 * tiles) / (8 * kDies);
    const long long most = columns * (rows / kTileRows) * 3 / (2 * kDies) + columns * all;
    return static_cast<int>(least < most ? least : most) + 32 * kPerDie;
}

/// How long tiles of some units take together: each as long as 5 / 3 of a unit beside its own. (Modelled: a K block of tiles of
/// four, two and one unit takes 4100, 2420 and 2000 cycles; then there are a tile's ends.)
__device__ __forceinline__ int tile_effort(int tiles, int units) { return 3 * units + 5 * tiles; }

__device__ __forceinline__ int sum_of_lanes(int value) { return read_lane(sum_up_to_lane(value), kWaveSize - 1); }

/// A die's plan in the making, by one wave: lane w is the die's w-th workgroup.
class DiePlan {
    const TilePlan& plan_;
    const int die_;
    int count_ = 0;         // of tiles
    int least_ = 0;         // no workgroup has less to do
    int load_, last_ = -1;  // of this lane's workgroup

public:
    __device__ __forceinline__ DiePlan(const TilePlan& plan, int die) : plan_(plan), die_(die) {
        load_ = lane_id() < kPerDie ? 0 : 0x7fffffff;
    }

    /// Deal out `tiles` tiles of one column, of rows from `first` on, `rows` in all; the first `higher` ones are a unit higher
    /// than `height`. All that have least to do take one at once.
    __device__ __forceinline__ void add(
        int first, int rows, int tiles, int height, int higher, int expert, int column) {
        for (int dealt = 0; dealt < tiles;) {
            uint64_t ready = __builtin_amdgcn_ballot_w64(load_ <= least_);
            while (ready == 0) ready = __builtin_amdgcn_ballot_w64(load_ <= ++least_);
            const int rank = __builtin_popcountll(ready & ((uint64_t{1} << lane_id()) - 1)), tile = dealt + rank;
            if (load_ <= least_ && tile < tiles) {
                const int units = height + (tile < higher), index = die_ * plan_.capacity + count_ + rank;
                const int row = (tile * height + (tile < higher ? tile : higher)) * kUnitRows;
                const int count = rows - row < units * kUnitRows ? rows - row : units * kUnitRows;
                plan_.tiles[index] = {first + row, count, expert | column << 8, -1};
                if (last_ < 0) plan_.begin[lane_id() * kDies + die_] = index;
                else plan_.tiles[last_].next = index;
                last_ = index;
                load_ += tile_effort(1, units);
            }
            const int free = __builtin_popcountll(ready), taken = free < tiles - dealt ? free : tiles - dealt;
            dealt += taken, count_ += taken;
        }
    }

    __device__ __forceinline__ void finish() const {
        if (lane_id() < kPerDie && last_ < 0) plan_.begin[lane_id() * kDies + die_] = -1;
    }
};

/// Workgroups 0 .. 7 plan a die's part of the first product each, the others the second product's.
__global__ void __launch_bounds__(kWaveSize) plan_tiles(Routes routes, TilePlan first_plan, TilePlan second_plan) {
    const int die = static_cast<int>(blockIdx.x) % kDies, shared = routes.experts;
    const TilePlan plan = static_cast<int>(blockIdx.x) < kDies ? first_plan : second_plan;

    // Lane e's are expert e's.
    const int lane = lane_id(), columns = plan.columns;
    const int first = lane <= shared ? routes.first_row[lane] : 0;
    const int rows = lane <= shared ? routes.first_row[lane + 1] - first : 0;
    const int units = (rows + kUnitRows - 1) / kUnitRows;
    // The height of tiles: what all take together, and half of the last one that a workgroup gets.
    int highest = 0, best = 0x7fffffff, tiles = 0;
    for (int height = kUnits; height > 0; height /= 2) {
        const int cut = (units + height - 1) / height;
        const int effort = 2 * 5 * columns * sum_of_lanes(cut) + 3 * height * kWorkgroups;
        if (effort >= best) continue;
        best = effort, highest = height, tiles = cut;
    }
    const int effort = tile_effort(tiles, units);  // of a column
    const int before = sum_up_to_lane(effort) - effort;
    const int shared_effort = read_lane(effort, shared), all = (read_lane(before, shared) + shared_effort) * columns;
    // The columns of the shared expert, and the part [from, to) of the others' effort, columns in their order. A die that has too
    // much of the first gets none of the second, and the next one less.
    const int shared_from = die * columns / kDies, shared_to = (die + 1) * columns / kDies;
    int from = 0, to = 0;
    for (int end = 1; end <= die + 1; ++end) {
        from = to;
        const int others =
            static_cast<int>(static_cast<long long>(all) * end / kDies) - end * columns / kDies * shared_effort;
        if (others > to) to = others;
    }

    // This die's columns of this lane's expert.
    const auto columns_before = [&](int end) {
        const int inside = end - before * columns;
        const int whole = effort > 0 && inside > 0 ? (inside + effort - 1) / effort : 0;
        return whole < columns ? whole : columns;
    };
    const int first_column = columns_before(from), last_column = lane < shared ? columns_before(to) : 0;

    DiePlan made(plan, die);
    for (uint64_t left = __builtin_amdgcn_ballot_w64(first_column < last_column); left != 0; left &= left - 1) {
        const int expert = uniform(static_cast<int>(__builtin_ctzll(left))), count = read_lane(tiles, expert);
        const int of_units = read_lane(units, expert), least = uniform(of_units / count);
        const int begin = read_lane(first_column, expert), end = read_lane(last_column, expert);
        for (int column = begin; column < end; ++column)
            made.add(
                read_lane(first, expert), read_lane(rows, expert), count, least, of_units - least * count, expert,
                column);
    }
    const int shared_rows = read_lane(rows, shared), shared_first = read_lane(first, shared);
    int left = read_lane(units, shared) * (shared_to - shared_from);
    for (int column = shared_from; column < shared_to; ++column) {
        for (int row = 0; row < shared_rows;) {
            // The last ones of all are half as high; a call deals out as many as come before those or the column's end.
            const int fill = highest == kUnits && left <= kPerDie ? 2 : highest;
            const int rest = shared_rows - row, in_rest = (rest + kUnitRows - 1) / kUnitRows;
            const int until = highest == kUnits && left > kPerDie ? left - kPerDie : left;
            const int height = fill < in_rest ? fill : in_rest;
            const int count = ((until < in_rest ? until : in_rest) + height - 1) / height;
            const int all_units = count * height < in_rest ? count * height : in_rest;
            const int covered = all_units * kUnitRows < rest ? all_units * kUnitRows : rest;
            made.add(shared_first + row, covered, count, height, 0, shared, column);
            row += covered;
            left -= all_units;
        }
    }
    made.finish();
}

/// What a product's workgroup has to do.
struct ExpertTile {
    int expert, first, count, units, column;
};

class ExpertTiles {
    // No kernel writes the plan while this one runs: scalar loads, which nobody waits for before they are used.
    typedef const __attribute__((address_space(4))) PlannedTile* Planned;

    const Planned tiles_;
    PlannedTile coming_;  // count 0: none

    __device__ __forceinline__ PlannedTile at(int number) const {
        if (number < 0) return {0, 0, 0, -1};
        const Planned tile = tiles_ + number;
        return {tile->first, tile->count, tile->expert_and_column, tile->next};
    }

public:
    __device__ __forceinline__ explicit ExpertTiles(const TilePlan& plan)
        : tiles_((Planned)plan.tiles), coming_(at(uniform(plan.begin[blockIdx.x]))) {}

    /// This workgroup's next tile; false if there is none.
    __device__ __forceinline__ bool next(ExpertTile& tile) {
        if (coming_.count == 0) return false;
        tile.first = coming_.first, tile.count = coming_.count;
        tile.expert = coming_.expert_and_column & 0xff, tile.column = coming_.expert_and_column >> 8;
        tile.units = (tile.count + kUnitRows - 1) / kUnitRows;
        coming_ = at(coming_.next);
        return true;
    }
};
