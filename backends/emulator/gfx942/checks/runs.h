// SPDX-License-Identifier: MIT
// Lanes whose accesses lie side by side, and lanes that read what another one reads: looked at together they cost little.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../types.h"

namespace emu::checks {

/// Runs of neighbouring lanes of which each accesses what lies behind the one before. Found by runs_of.
struct LaneRuns {
    u64 lanes = 0;    // all that are in one
    u64 follows = 0;  // those that continue the lane before

    u64 starts() const { return lanes & ~follows; }
    /// How many lanes belong to the run that begins with `lane`.
    int size(int lane) const { return lane == kLanes - 1 ? 1 : 1 + std::countr_one(follows >> (lane + 1)); }
    u64 lanes_of(int lane) const {
        const int count = size(lane);
        return (count == kLanes ? kAllLanes : (u64{1} << count) - 1) << lane;
    }
};

/// Of each lane what the one `kBy` before it has; the first ones keep theirs, which mean nothing.
template <size_t kBy, class Vector, size_t... kLane>
Vector shifted(Vector all, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(all, all, static_cast<int>(kLane < kBy ? kLane : kLane - kBy)...);
}

/// Runs of `lanes`, each of which accesses `bytes` bytes. With `merge` lanes are left out that have the address of the lane one
/// or sixteen before: tiles are read by rows and columns, which many lanes share. `address` has 64 elements.
template <class Address>
LaneRuns runs_of(const Address* address, u64 lanes, u32 bytes, bool merge) {
    using Vector = std::conditional_t<sizeof(Address) == 4, u32v, u64v>;
    if (lanes == kAllLanes && address[kLanes - 1] - address[0] == (kLanes - 1) * bytes) {
        Address differs = 0, expected = address[0];
        for (int lane = 0; lane < kLanes; ++lane, expected += bytes) differs |= address[lane] ^ expected;
        if (!differs) return {kAllLanes, kAllLanes - 1};
    }
    constexpr u64 kFar = 16;
    Vector all;
    std::memcpy(&all, address, sizeof all);
    const Vector one = shifted<1>(all, std::make_index_sequence<kLanes>());
    if (merge) {
        const u64 near = to_mask(all == one) & lanes << 1;
        const u64 far = to_mask(all == shifted<kFar>(all, std::make_index_sequence<kLanes>())) & lanes << kFar;
        lanes &= ~(near | far);
    }
    return {lanes, to_mask(all == one + static_cast<Address>(bytes)) & lanes & lanes << 1};
}

}  // namespace emu::checks
