// SPDX-License-Identifier: MIT
// The requests of a batch as a line of steps, one behind the other: how long it is, and which request lies at a point of it.
//
// Lengths lie on the device, so every warp that must know reads them; all lanes call these functions together. A schedule has
// `batch` requests of `steps(request)`.
//
// Sums are one instruction (REDUX), and no loop's end depends on the lane: so the compiler sees that a warp stays whole and agrees on
// what comes of it, and keeps the walks over requests, and the branches and addresses they decide, in uniform registers. With a
// loop from `lane` on kernels were 5 to 20 % longer, and those with few registers spilled some.
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
__device__ __forceinline__ void for_costs(const Schedule& schedule, int lane, int start, Each each) {
    constexpr int kCount = Schedule::kQuick ? 4 : 1;
#pragma unroll 1
    for (int first = 0; first < schedule.batch; first += 32 * kCount) {
        int costs[kCount];   // read at once
#pragma unroll
        for (int i = 0; i < kCount; ++i) costs[i] = cost_of(schedule, first + 32 * i + lane, start);
#pragma unroll
        for (int i = 0; i < kCount; ++i) each(first + 32 * i + lane, costs[i]);
    }
}

/// Steps of requests, and of the longest of them.
struct LineSum {
    int all, most;

    __device__ __forceinline__ void take(int steps) {
        all += steps;
        most = max(most, steps);
    }
    /// Of all lanes' requests.
    __device__ __forceinline__ LineSum over_lanes() const {
        return {__reduce_add_sync(0xffffffffu, all), __reduce_max_sync(0xffffffffu, most)};
    }
};

/// A request, and where it starts on a line.
struct LinePlace {
    int request, start;
};

/// The first request that ends behind `begin`, on the line where a request takes what counted(its steps and a start) says; else the
/// line's end.
template <class Schedule, class Counted>
__device__ __forceinline__ LinePlace find_on_line(const Schedule& schedule, int lane, int start, int begin, Counted counted) {
    LinePlace place = {0, 0};
#pragma unroll 1
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
