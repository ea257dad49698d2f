// SPDX-License-Identifier: MIT
// The requests of a batch as a line of steps, one behind the other: how long it is, and which request lies at a point of it.
//
// Lengths lie on the device, so every warp that must know reads them; all lanes call these functions together. A schedule has
// `batch` requests of `steps(request)`.
//
// Sums are one instruction (REDUX), and no loop's end depends on the lane: so the compiler sees that a warp stays whole and agrees on
// what comes of it, and keeps the walks over requests, and the branches and addresses they decide, in uniform registers. With a
// loop from `lane` on and shuffles kernels were 5 to 20 % longer, and those with few registers spilled some. A schedule with !kAsOne has
// these all the same: 16 rows over FP8 lose 1 % where requests are long and equal, for a reason not found.
#pragma once

/// The sum of this lane's value and of those of the lanes before it.
__device__ __forceinline__ int sum_up_to(int lane, int value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, value, step);
        value += lane >= step ? other : 0;
    }
    return value;
}

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
        int costs[kCount];   // read at once
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
__device__ __forceinline__ LinePlace find_on_line(const Schedule& schedule, int lane, int start, int begin, Counted counted) {
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
