// SPDX-License-Identifier: MIT
// Cutting the keys of an attention problem into parts that different blocks process, on both vendors.
//
// Each part writes a normalised fp32 output row and its natural-log LSE to the workspace; a second kernel merges them in
// a fixed order, so results do not depend on timing:
//   lse = log(sum_s exp(lse_s)),  o = sum_s exp(lse_s - lse) * o_s.
// A part that saw no key writes lse_s = -inf and need not write o_s: the merge must not read it.
// Workspace: o_s [splits, rows, columns] fp32, then lse_s [splits, rows] fp32, where a row is one (batch, query, head)
// in the order of the output tensor [batch, seqlen_q, heads_q, columns].
#pragma once

#include <stddef.h>

#include "ceil_div.h"

struct KvRange {
    int begin;  // in steps of the kernel's key tile
    int end;
};

/// Part `split` of `steps` key tiles when every part has `steps_per_split` of them (the last ones fewer, or none). Equal
/// parts balance best when requests differ in length: the long ones simply have more parts.
WARPWAVE_HOST_DEVICE inline KvRange kv_range(int steps, int steps_per_split, int split) {
    const long long begin = static_cast<long long>(split) * steps_per_split;
    const long long end = begin + steps_per_split;
    return {static_cast<int>(begin < steps ? begin : steps), static_cast<int>(end < steps ? end : steps)};
}

/// The partial results of `splits` parts inside a workspace.
struct SplitWorkspace {
    float* o;    // [splits, rows, columns]
    float* lse;  // [splits, rows]

    static size_t bytes(long long splits, long long rows, int columns) {
        return static_cast<size_t>(splits) * static_cast<size_t>(rows) * (static_cast<size_t>(columns) + 1) *
               sizeof(float);
    }

    /// How many parts fit into `available` bytes.
    static long long capacity(size_t available, long long rows, int columns) {
        return static_cast<long long>(available / bytes(1, rows, columns));
    }

    static SplitWorkspace at(void* workspace, long long splits, long long rows, int columns) {
        float* o = static_cast<float*>(workspace);
        return {o, o + static_cast<size_t>(splits) * static_cast<size_t>(rows) * static_cast<size_t>(columns)};
    }
};

/// What the split choice weighs, in units of the time one block takes for one key tile.
struct SplitCost {
    double start;    // of a block before its first tile and after its last one
    double combine;  // of the second kernel, once
    double part;     // of the second kernel, per part
};

/// How many parts to cut every query tile's `steps` key tiles into. `units` is the number of query tiles (batch and
/// heads included), `slots` how many blocks the device holds at a time, `most` a limit (the workspace's). Minimises
/// rounds * (start + steps per part), plus the merge; 1 where splitting does not pay.
inline int choose_splits(long long units, int steps, int slots, long long most, SplitCost cost) {
    int best = 1;
    double best_time = static_cast<double>(ceil_div<long long>(units, slots)) * (cost.start + steps);
    for (int splits = 2; splits <= most && splits <= steps && splits <= 512; ++splits) {
        const int per_split = ceil_div(steps, splits);
        if (ceil_div(steps, per_split) != splits) continue;  // the same parts as a smaller count, plus empty ones
        const double rounds = static_cast<double>(ceil_div<long long>(units * splits, slots));
        const double time = rounds * (cost.start + per_split) + cost.combine + cost.part * splits;
        if (time < best_time) {
            best_time = time;
            best = splits;
        }
    }
    return best;
}
