// SPDX-License-Identifier: MIT
// Short requests beside long ones: who computes which tokens of a batch, where only what is much longer than a chunk is cut.
//
// One line for all (mla/schedule.h) cuts every short request that lies across a chunk's edge, and both its blocks store a
// part, wait, and merge, one request after the other. Here requests that fit into a chunk are left whole, and as many of them as fit
// make a group's work; the long ones are a line of their own, cut into equal chunks for the other groups. That is done where no group
// gets more than a chunk of the one line and kWholeSlack steps; else the line is cut as ever.
#pragma once

#include "ceil_div.h"
#include "mla/schedule.h"
#include "split_kv.h"

namespace mla {

/// What cutting requests costs a group, in steps: the best of those measured on an H200.
constexpr int kWholeSlack = 6;

/// The next number from a / b on, if that is below 2^20; never less. For a > 0, b > 0: a third of what the division of integers takes.
__device__ __forceinline__ int quotient_up(int a, int b) {
    int quotient =
        static_cast<int>(__fdividef(static_cast<float>(a) + (static_cast<float>(b) - 0.5f), static_cast<float>(b)));
    while (quotient * b < a) ++quotient;
    return quotient;
}

/// `limit`: requests that count for up to so many steps are left whole; 0: none is.
struct WholeCut {
    int limit = 0;
    int each, count;    // whole requests of a group, and of the batch
    int groups, chunk;  // that share the line of the others, of `steps`
    int steps;

    /// All lanes of a warp call it together. `even`: a chunk of the line of all requests, which are not equal.
    template <class Schedule>
    __device__ __forceinline__ WholeCut(const Schedule& schedule, int lane, int even)
        : count(0), groups(schedule.groups), steps(0) {
        const int bound = even + kWholeSlack;
        int most = 0;
        for_costs(schedule, lane, Schedule::kStartSteps, [&](int, int cost) {
            const bool whole = cost <= bound;
            steps += whole ? 0 : cost;
            most = max(most, whole ? cost : 0);
            count += whole && cost > 0 ? 1 : 0;
        });
        count = __reduce_add_sync(0xffffffffu, count);
        steps = __reduce_add_sync(0xffffffffu, steps);
        most = __reduce_max_sync(0xffffffffu, most);
        if (count == 0) return;
        // Beside long requests as many as fit, else as few as the groups allow.
        each = quotient_up(steps > 0 ? bound - most + 1 : count, steps > 0 ? most : groups);
        groups -= quotient_up(count, each);
        if (each * most > bound || groups < 0 || groups * even < steps) return;
        limit = bound;
        chunk = steps > 0 ? quotient_up(steps, groups) : 1;
    }
};

/// The pieces of one group, in order, as DecodeScheduler gives them. All lanes of a warp walk together.
struct WholeScheduler {
    int request;     // the next one
    int start;       // where it starts on the line of this group's kind, or where the next one of this kind does
    int skip, left;  // steps of it that are other groups', and of the chunk from there on; or left: whole requests
    int chunk;
    int extra;  // steps that starting a request counts for
    int limit;  // what a request counts for: more than that; where whole ones are wanted, no more than ~limit

    WholeScheduler() = default;
    /// Behind the only piece of a group.
    static __device__ __forceinline__ WholeScheduler behind(int request) {
        WholeScheduler scheduler = {};
        scheduler.request = request + 1;
        return scheduler;  // nothing is left
    }

    template <class Schedule>
    __device__ __forceinline__ WholeScheduler(const Schedule& schedule, int group, int lane, CutFromLengths)
        : request(group), start(0), skip(0), left(1), chunk(1), extra(Schedule::kStartSteps), limit(0) {
        static_assert(Schedule::kStartSteps > 0, "a request without steps counts for something");
        if (schedule.groups == 0) return;  // one request, whatever its length
        const LineSum sum = schedule.sum(lane);
        int begin;
        if (sum.all == schedule.batch * sum.most) {  // equal ones
            const DecodeCut cut = schedule.cut_line(sum.all, sum.most);
            extra = cut.start;
            left = chunk = cut.chunk;
            begin = group * chunk;
            LinePlace place;
            if (schedule.starts_at(cut, group, place)) {
                go_to(place, begin);
                return;
            }
        } else {
            left = chunk = max(Schedule::kLeastSteps, quotient_up(sum.all + schedule.batch * extra, schedule.groups));
            begin = group * chunk;
            const WholeCut whole(schedule, lane, chunk);
            if (whole.limit != 0) {
                const int other = group - whole.groups;
                limit = other < 0 ? whole.limit : ~whole.limit;
                chunk = other < 0 ? whole.chunk : whole.each;
                begin = (other < 0 ? group : other) * chunk;
                left = min(chunk, (other < 0 ? whole.steps : whole.count) - begin);
            }
        }
        go_to(find_on_line(schedule, lane, extra, begin, [&](int cost) { return counted(cost); }), begin);
    }
    __device__ __forceinline__ void go_to(const LinePlace& place, int begin) {
        request = place.request;
        start = place.start;
        skip = begin - start;
    }

    __device__ __forceinline__ bool whole() const { return limit < 0; }
    /// What a request of so many steps, its start counted, takes of this group's line.
    __device__ __forceinline__ int counted(int cost) const {
        if (whole()) return cost > ~limit || cost == 0 ? 0 : 1;
        return cost > limit ? cost : 0;
    }

    /// The first and the last group with a part of the piece that `next` gave, which is not whole.
    template <class Schedule>
    __device__ __forceinline__ KvRange groups_of(const Schedule& schedule, const DecodePiece& piece) const {
        const int cost = schedule.steps(piece.request) + extra;
        return {(start - cost) / chunk, (start - 1) / chunk};
    }

    template <class Schedule>
    __device__ __forceinline__ bool next(const Schedule& schedule, DecodePiece& piece) {
#pragma unroll 1
        while (request < schedule.batch && left > 0) {
            const int cost = schedule.steps(request) + extra, count = counted(cost);
            piece.request = request++;
            if (count == 0) continue;  // other groups compute it
            const int from = skip, to = whole() || schedule.groups == 0 ? cost : min(from + left, cost);
            piece.steps = {max(from - extra, 0), max(to - extra, 0)};
            piece.first = from == 0;
            piece.last = to == cost;
            left -= whole() || schedule.groups == 0 ? 1 : to - from;
            skip = 0;
            start += count;
            return true;
        }
        return false;
    }
};

}  // namespace mla
