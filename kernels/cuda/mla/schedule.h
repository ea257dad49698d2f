// SPDX-License-Identifier: MIT
// The scheduler of a decode step: the requests of a batch as one line of steps, and its cut into chunks.
#pragma once

#include "ceil_div.h"
#include "common/combine_splits.h"
#include "ptx/thread.h"
#include "split_kv.h"

namespace mla {

// The requests of a batch as a line of steps, one behind the other: how long it is, and which request lies at a point of it.
//
// Lengths lie on the device, so every warp that must know reads them; all lanes call these functions together. A schedule has
// `batch` requests of `steps(request)`.
//
// Sums are one instruction (REDUX), and no loop's end depends on the lane: so the compiler sees that a warp stays whole and agrees on
// what comes of it, and keeps the walks over requests, and the branches and addresses they decide, in uniform registers. With a
// loop from `lane` on and shuffles kernels were 5 to 20 % longer, and those with few registers spilled some. A schedule with !kAsOne has
// these all the same: 16 rows over FP8 lose 1 % where requests are long and equal, for a reason not found.

/// What a request takes of the line: its steps and a start. 0 behind the batch.
template <class Schedule>
__device__ __forceinline__ int cost_of(const Schedule& schedule, int request, int start) {
    return request < schedule.batch ? schedule.steps(request) + start : 0;
}

/// Calls each(request, cost) for all requests, every lane for its own, and for some behind the batch, which cost nothing.
template <class Schedule, class Each>
__device__ __forceinline__ void for_costs(const Schedule& schedule, int lane, int start, const Each& each) {
    constexpr int kCount = Schedule::kQuick ? 4 : 1;
#pragma unroll 1
    for (int first = Schedule::kAsOne ? 0 : lane; first < schedule.batch; first += 32 * kCount) {
        const auto own = [&](int i) { return first + 32 * i + (Schedule::kAsOne ? lane : 0); };
        int costs[kCount];  // read at once
#pragma unroll
        for (int i = 0; i < kCount; ++i) costs[i] = cost_of(schedule, own(i), start);
#pragma unroll
        for (int i = 0; i < kCount; ++i) each(own(i), costs[i]);
    }
}

/// Steps of all requests, of those before one of them, and of the longest.
struct LineSum {
    int all, before, most;
};
template <class Schedule>
__device__ __forceinline__ LineSum sum_line(const Schedule& schedule, int lane, int request) {
    int all = 0, before = 0, most = 0;
    const auto take = [&](int b, int steps) {
        most = max(most, steps);
        all += steps;
        before += b < request ? steps : 0;
    };
    for_costs(schedule, lane, 0, take);
    if constexpr (Schedule::kAsOne) {
        before = __reduce_add_sync(0xffffffffu, before);
        all = __reduce_add_sync(0xffffffffu, all);
        most = __reduce_max_sync(0xffffffffu, most);
    } else {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            all += __shfl_xor_sync(0xffffffffu, all, step);
            before += __shfl_xor_sync(0xffffffffu, before, step);
            most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
        }
    }
    return {all, before, most};
}

/// A request, and where it starts on a line.
struct LinePlace {
    int request, start;
};

/// The first request that ends behind `begin`, on the line where a request takes what counted(its steps and a start) says; else the
/// line's end.
template <class Schedule, class Counted>
__device__ __forceinline__ LinePlace
find_on_line(const Schedule& schedule, int lane, int start, int begin, Counted counted) {
    LinePlace place = {0, 0};
    for (; place.request < schedule.batch; place.request += 32) {
        const int own = counted(cost_of(schedule, place.request + lane, start));
        const int behind = sum_up_to(lane, own);
        const unsigned found = __ballot_sync(0xffffffffu, place.start + behind > begin);
        if (found != 0) {
            const int first = __ffs(static_cast<int>(found)) - 1;
            place.start += __shfl_sync(0xffffffffu, behind - own, first);
            place.request += first;
            return place;
        }
        place.start += __shfl_sync(0xffffffffu, behind, 31);
    }
    return place;
}

// Who computes which tokens in a decode step, and where partial results lie.
//
// All tokens of a batch form one line of steps (kTokens tokens each), request after request; a request also counts for
// kStartSteps, what starting one costs. The line is cut into equal chunks, one per group of blocks (the blocks of a group
// take different query rows of the same tokens). A group so works on the end of one request, some whole ones and the start
// of another. Lengths live on the device, so every warp derives the cut itself: a sum and a search over the lengths.
//
// With `slack`, a batch of equal lengths is cut between requests, or each request into the same chunks, where that makes a chunk
// longer by no more than so many steps. Then nothing is left to merge, or every group has one piece: a second one would cost it
// another start, and the merge another part.
//
// A request that one group computes alone is written out directly. Else every group writes a part to the workspace: the
// part that starts request b is number groups + b, any other part of group g is number g (a group has only one such). A
// part is [rows of a request, 512] fp32 plus one LSE per row.

#ifndef QUICK_CUT
#error "QUICK_CUT is a define of the kernel file: 1 for a start with fewer instructions that takes more registers"
#endif
constexpr bool kQuickCut = QUICK_CUT != 0;
#ifndef EXPECTED_CUT
#error \
    "EXPECTED_CUT is a define of the kernel file: 1 to compare requests with what the host expects before anything is added up"
#endif
constexpr bool kExpectedCut = EXPECTED_CUT != 0;

/// Steps of a chunk, what starting a request counts for, the steps of the longest one; of equal requests cut alike how many
/// chunks each has, of equal ones of which a chunk has one, 1 in `whole`.
struct DecodeCut {
    int chunk, start, most;
    int shares, whole;
};

/// kLeastSteps: of a chunk, since shorter ones cost more to merge than they save. kAsOne: whether the compiler is to see that warps
/// stay whole (mla/schedule.h).
template <int kTokens_, int kStartSteps_, int kLeastSteps_, bool kQuick_ = kQuickCut, bool kAsOne_ = true>
struct DecodeScheduleOf {
    static constexpr int kTokens = kTokens_, kStartSteps = kStartSteps_, kLeastSteps = kLeastSteps_;
    static constexpr bool kQuick = kQuick_, kAsOne = kAsOne_;
    static constexpr bool kPages = kTokens == 64;  // whose chunks of equal requests may be `gathered`

    const int* seqlens;  // [batch]
    int batch, longest;  // longest: tokens a request may have
    int groups;          // how many chunks; 0: one group per request, no parts
    int slack;           // steps by which a chunk may grow so that no request is cut
    int shares;          // into how many chunks each of equal requests is cut; 0: none is
    // What saves the device divisions; zero where nobody has set it. Steps of the longest request, of its chunks, and
    // the next number above 2^20 / shares.
    int full, full_chunk, share_inverse;
    DecodeCut expected;  // of requests of `full` steps each, where a group has one piece; 0 steps: not known
    int gathered;        // whether the blocks that cut equal requests alike merge them, too

    /// So many that `groups` suffice, and no more than a request of `steps` has use for.
    static int shares_of(int groups, int batch, int steps) {
        return groups < batch || steps < 1 ? 0 : ceil_div(steps, ceil_div(steps, groups / batch));
    }
    /// Set `shares` for requests of up to `steps`; groups and batch are.
    void share(int steps) { share(steps, shares_of(groups, batch, steps)); }
    /// The same with a number of chunks that is given; `groups` are enough.
    void share(int steps, int chunks) {
        shares = chunks;
        full = shares == 0 ? 0 : steps;
        full_chunk = shares == 0 ? 0 : ceil_div(steps, shares);
        share_inverse = shares == 0 ? 0 : ceil_div(1 << 20, shares);
    }
    /// Set `expected`, so that nothing is added up or searched where requests are as long as they may be: the rest is set.
    void expect() {
        if (full == 0) return;
        const DecodeCut cut = cut_line(batch * full, full);
        if (cut.whole != 0 || cut.shares != 0) expected = cut;
    }
    static long long part_count(long long groups, long long batch) { return groups + batch; }

    __device__ __forceinline__ int tokens(int request) const { return max(0, min(seqlens[request], longest)); }
    __device__ __forceinline__ int steps(int request) const { return ceil_div(tokens(request), kTokens); }

    /// Whether requests are as `expected` says. All lanes of a warp call it together.
    __device__ __forceinline__ bool as_expected(int lane) const {
        bool same = expected.chunk != 0;
        if (same) {
#pragma unroll 1
            for (int first = lane; first < batch; first += 128) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (first + 32 * i < batch && steps(first + 32 * i) != expected.most) same = false;
                }
            }
        }
        return !__any_sync(0xffffffffu, !same);
    }

    /// Steps of all requests, of those before `request`, and of the longest. All lanes of a warp call it together.
    __device__ __forceinline__ LineSum sum(int lane, int request = 0) const {
        if constexpr (kQuickCut) {
            if (batch == 1) return {steps(0), 0, steps(0)};
        }
        return sum_line(*this, lane, request);
    }
    /// How the line is cut, and in `before` where request `request` starts on it. All lanes of a warp call it together.
    __device__ __forceinline__ DecodeCut cut(int lane, int request, int& before) const {
        const LineSum line = sum(lane, request);
        const DecodeCut cut = cut_line(line.all, line.most);
        before = line.before + request * cut.start;
        return cut;
    }

    /// In which request a chunk starts where that follows from its number: requests are equal, and cut alike or not at all.
    __device__ __forceinline__ int request_of(const DecodeCut& cut, int chunk) const {
        return cut.whole != 0 ? chunk : chunk * share_inverse >> 20;
    }
    /// Whether it does follow, and then in `place` that request, and where it starts.
    __device__ __forceinline__ bool starts_at(const DecodeCut& cut, int chunk, LinePlace& place) const {
        if (kQuick && (cut.whole != 0 || (cut.shares != 0 && share_inverse != 0))) {
            place.request = request_of(cut, chunk);
            place.start = place.request * (cut.most + cut.start);
            return true;
        }
        return false;
    }

    /// How a line of `all` steps is cut, of which `most` are one request's. With kQuick nothing is divided where requests are
    /// equal and either as long as the host expected or one to a chunk: a division is 25 instructions that every launch waits for.
    WARPWAVE_HOST_DEVICE DecodeCut cut_line(int all, int most) const {
        const bool equal = all == batch * most && most > 0;
        const int line = all + batch * kStartSteps;
        if constexpr (!kQuick) {
            const int even = max(kLeastSteps, ceil_div(line, groups));
            DecodeCut cut = {even, kStartSteps, most, 0, 0};
            if (equal && shares > 0) {
                const int chunk = ceil_div(most, shares);
                if (chunk + kStartSteps <= even + slack)
                    cut = {chunk, shares * chunk - most, most, kPages ? shares : 0, 0};
            } else if (equal) {
                const int request_steps = most + kStartSteps, chunk = ceil_div(even, request_steps) * request_steps;
                if (chunk <= even + slack) cut.chunk = chunk;
            }
            return cut;
        }
        // Whether an even chunk, of max(kLeastSteps, ceil(line / groups)) steps, has at least so many.
        const auto even_has = [&](int count) { return count <= kLeastSteps || (count - 1) * groups < line; };
        const int request_steps = most + kStartSteps;
        if (equal && shares > 0) {
            const int chunk = most == full ? full_chunk : ceil_div(most, shares);
            // What the chunks of a request have too many is what starting it counts for.
            if (even_has(chunk + kStartSteps - slack)) return {chunk, shares * chunk - most, most, shares, 0};
        } else if (equal && request_steps * groups >= line && request_steps >= kLeastSteps) {
            if (even_has(request_steps - slack)) return {request_steps, kStartSteps, most, 0, 1};
        }
        const int even = max(kLeastSteps, ceil_div(line, groups));
        if (equal && shares == 0) {
            const int chunk = ceil_div(even, request_steps) * request_steps;
            if (chunk <= even + slack) return {chunk, kStartSteps, most, 0, 0};
        }
        return {even, kStartSteps, most, 0, 0};
    }
};

using DecodeSchedule = DecodeScheduleOf<32, 2, 2>;

/// Steps of one request that one group computes.
struct DecodePiece {
    int request;
    KvRange steps;
    bool first, last;  // whether it starts, ends the request

    __device__ __forceinline__ bool whole() const { return first && last; }
    /// Which part of the workspace it writes unless it is whole.
    template <class Schedule>
    __device__ __forceinline__ int part(const Schedule& schedule, int group) const {
        return first ? schedule.groups + request : group;
    }
};

/// That nothing is known of lengths before they have been read, which takes fewer registers.
struct CutFromLengths {};

/// The pieces of one group, in order. All lanes of a warp walk together.
struct DecodeScheduler {
    int request, start;  // the next request, and where it starts on the line
    int begin, end;      // the group's chunk
    int extra;           // steps that starting a request counts for
    int known;           // steps of every request; -1: its length says it
    int shares;          // of equal requests that are cut alike, into how many chunks each is

    /// The piece of a group, where requests are as the host expected.
    template <class Schedule>
    __device__ __forceinline__ DecodeScheduler(const Schedule& schedule, int group) {
        const DecodeCut& cut = schedule.expected;
        begin = group * cut.chunk;
        end = begin + cut.chunk;
        extra = cut.start;
        known = cut.most;
        shares = cut.shares;
        request = schedule.request_of(cut, group);
        start = request * (cut.most + extra);
    }

    DecodeScheduler() = default;
    template <class Schedule>
    __device__ __forceinline__ DecodeScheduler(const Schedule& schedule, int group, int lane) {
        if constexpr (kExpectedCut) {
            if (schedule.groups != 0 && schedule.as_expected(lane)) {
                *this = DecodeScheduler(schedule, group);
                return;
            }
        }
        *this = DecodeScheduler(schedule, group, lane, CutFromLengths());
    }
    template <class Schedule>
    __device__ __forceinline__ DecodeScheduler(const Schedule& schedule, int group, int lane, CutFromLengths)
        : request(group), start(0), extra(Schedule::kStartSteps), known(-1), shares(0) {
        if (schedule.groups == 0) {
            begin = 0;
            end = 1;  // ends behind the group's own request, whatever its length
            return;
        }
        const LineSum sum = schedule.sum(lane);
        const DecodeCut cut = schedule.cut_line(sum.all, sum.most);
        begin = group * cut.chunk;
        end = begin + cut.chunk;
        extra = cut.start;
        shares = cut.shares;
        LinePlace place;
        if (!schedule.starts_at(cut, group, place)) {
            place = find_on_line(schedule, lane, extra, begin, [](int cost) { return cost; });
        }
        request = place.request;
        start = place.start;
    }

    /// The first and the last group with a part of the piece that `next` gave, which is not whole.
    template <class Schedule>
    __device__ __forceinline__ KvRange groups_of(const Schedule& schedule, const DecodePiece& piece) const {
        const int cost = schedule.steps(piece.request) + extra, chunk = end - begin;
        return {(start - cost) / chunk, (start - 1) / chunk};
    }

    template <class Schedule>
    __device__ __forceinline__ bool next(const Schedule& schedule, DecodePiece& piece) {
        if (request >= schedule.batch || start >= end) return false;
        const int cost = (kExpectedCut && known >= 0 ? known : schedule.steps(request)) + extra;
        const int from = max(begin - start, 0), to = schedule.groups == 0 ? cost : min(end - start, cost);
        piece.request = request;
        piece.steps = {max(from - extra, 0), max(to - extra, 0)};
        piece.first = from == 0;
        piece.last = to == cost;
        start += cost;
        ++request;
        return true;
    }
};

/// For the merge: the parts of one output row.
template <class Schedule = DecodeSchedule>
struct DecodeSplits {
    Schedule schedule;
    int rows_per_request;

    __device__ __forceinline__ SplitList of(long long row, int lane) const {
        const int request = static_cast<int>(row / rows_per_request),
                  in_request = static_cast<int>(row % rows_per_request);
        int before;
        const DecodeCut cut = schedule.cut(lane, request, before);
        return list(request, in_request, groups(request, cut, before));
    }

    /// The groups with parts of a request, where the cut is known and where on the line the request starts; none where nothing
    /// is left to merge.
    __device__ __forceinline__ KvRange groups(int request, const DecodeCut& cut, int before) const {
        const int first = before / cut.chunk, last = (before + schedule.steps(request) + cut.start - 1) / cut.chunk;
        const bool merged = first == last || (cut.shares != 0 && schedule.gathered != 0);
        return {first, merged ? first : last + 1};
    }
    __device__ __forceinline__ SplitList list(int request, int in_request, const KvRange& groups) const {
        const long long pitch = rows_per_request;
        return {
            groups.end - groups.begin, (schedule.groups + request) * pitch + in_request,
            groups.begin * pitch + in_request, pitch};
    }

    /// Calls `each(request, where it starts on the line)` for every request with `least` parts or more, in order. All lanes of all
    /// warps call it together.
    template <class Each>
    __device__ __forceinline__ void for_long(int least, int lane, const DecodeCut& cut, Each each) const {
        int start = 0;
        if (cut.most + cut.start <= (least - 2) * cut.chunk) return;  // as of equal requests in few parts
        for (int first = 0; first < schedule.batch; first += 32) {
            const int request = first + lane;
            const int cost = request < schedule.batch ? schedule.steps(request) + cut.start : 0;
            const int behind = sum_up_to(lane, cost);
            const int from = start + behind - cost, to = start + behind - 1;
            start += __shfl_sync(0xffffffffu, behind, 31);
            unsigned found = __ballot_sync(0xffffffffu, cost > 0 && to / cut.chunk - from / cut.chunk + 1 >= least);
            for (; found != 0; found &= found - 1) {
                const int at = __ffs(static_cast<int>(found)) - 1;
                each(first + at, __shfl_sync(0xffffffffu, from, at));
            }
        }
    }
};

/// What starting a group and the second kernel cost, in steps of the schedule.
struct GroupCost {
    double start, merge;
};

/// Groups of blocks that share the line of tokens, or 0 for one group per request. `longest` is the steps a request may
/// have, `starts` what the line counts for each request, `slots` the blocks that run at a time, `most` the workspace's
/// limit.
inline int choose_groups(
    long long batch, int longest, int starts, long long row_tiles, long long slots, long long most, GroupCost cost) {
    const long long groups = most < slots / row_tiles ? most : slots / row_tiles;
    if (groups < 2) return 0;
    const double rounds = static_cast<double>(ceil_div<long long>(batch * row_tiles, slots));
    const double whole = rounds * (cost.start + longest);
    const long long line = batch * (longest + starts);
    const double cut = cost.start + static_cast<double>(ceil_div<long long>(line, groups)) + cost.merge;
    return cut < whole ? static_cast<int>(groups) : 0;
}

}  // namespace mla
