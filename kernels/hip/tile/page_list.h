// SPDX-License-Identifier: MIT
// The pages of one request, in order.
#pragma once

#include "isa/lanes.h"
#include "isa/schedule.h"

/// The lanes of a wave hold 64 of them at a time: looking one up needs no load, whose arrival
/// would have to be waited for behind all the tile's.
class PageList {
    const int* pages_;
    int count_;
    int first_ = 0;  // page that lane 0 holds
    int held_ = 0;

    __device__ __forceinline__ void hold(int first) {
        first_ = first;
        const int mine = first + lane_id();
        held_ = computed_here(mine < count_ ? pages_[mine] : 0);  // waited for here, not at each use
    }

public:
    /// The `count` pages that a request's length covers, to be walked from `first` on. None beyond is looked at.
    __device__ __forceinline__ PageList(const int* pages, int count, int first) : pages_(pages), count_(count) {
        hold(first);
    }

    /// Where page `index` is in the cache; indices never fall.
    __device__ __forceinline__ int operator[](int index) {
        if (index >= first_ + kWaveSize) hold(index);
        return read_lane(held_, index - first_);
    }
};
