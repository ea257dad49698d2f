// SPDX-License-Identifier: MIT
// Sequences of different lengths behind one another: which of them a workgroup works on, and which come first.
#pragma once

#include "isa/lanes.h"

/// Where sequences of queries and of keys begin: [batch + 1] rows each.
struct SequenceStarts {
    const int* q;
    const int* k;
    int batch;

    __device__ __forceinline__ int queries(int sequence) const { return q[sequence + 1] - q[sequence]; }
    __device__ __forceinline__ int keys(int sequence) const { return k[sequence + 1] - k[sequence]; }
};

constexpr int kMostSorted = 1024;  // sequences: one per thread of one workgroup

/// order[r] = the sequence with the r-th most keys, of at most kMostSorted, so that the longest work can start first. One
/// workgroup; among equals the earlier one comes first.
__global__ void __launch_bounds__(kMostSorted) sort_by_keys(SequenceStarts starts, int* __restrict__ order) {
    __shared__ int keys[kMostSorted];
    const int mine = static_cast<int>(threadIdx.x);
    if (mine < starts.batch) keys[mine] = starts.keys(mine);
    __syncthreads();
    if (mine >= starts.batch) return;
    const int length = keys[mine];
    int rank = 0;
    for (int other = 0; other < starts.batch; ++other)
        rank += keys[other] > length || (keys[other] == length && other < mine);
    order[rank] = mine;
}

struct SequenceBlock {
    int sequence;  // -1: there is no such block
    int first;     // query, counted from the sequence's own
};

/// Block `index` of `Queries` queries, when those of order[0] come first, each sequence's last one first (it sees most keys
/// where a mask hides any). Without `order` sequences come as they are. The whole wave calls it and gets the same answer.
template <int Queries>
__device__ __forceinline__ SequenceBlock find_block(const SequenceStarts& starts, const int* order, int index) {
    for (int first = 0; first < starts.batch; first += kWaveSize) {
        const int rank = first + lane_id();
        int sequence = 0, blocks = 0;
        if (rank < starts.batch) {
            sequence = order ? order[rank] : rank;
            blocks = (starts.queries(sequence) + Queries - 1) / Queries;
        }
        const int end = sum_up_to_lane(blocks);
        const int total = read_lane(end, kWaveSize - 1);
        if (index < total) {
            const int lane = count_lanes(end <= index);
            return {read_lane(sequence, lane), (read_lane(end, lane) - 1 - index) * Queries};
        }
        index -= total;
    }
    return {-1, 0};
}
