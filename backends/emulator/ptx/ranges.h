// SPDX-License-Identifier: MIT
// What global memory a launch may touch: known allocations, looked up by every lane of every access.
#pragma once

#include <algorithm>
#include <vector>

#include "types.h"

namespace emu::ptx {

class Ranges {
public:
    struct Range {
        u64 begin, end;
    };
    /// `known` in any order; they may overlap and touch.
    explicit Ranges(std::vector<Range> known) {
        std::sort(known.begin(), known.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
        for (const Range& each : known) {
            if (!list_.empty() && each.begin <= list_.back().end)
                list_.back().end = std::max(list_.back().end, each.end);
            else list_.push_back(each);
        }
    }
    /// The range that contains the bytes, or null. `last`: one that may.
    const Range* find(u64 address, u64 bytes, const Range* last) const {
        if (last && address >= last->begin && address + bytes <= last->end) return last;
        const auto next = std::upper_bound(
            list_.begin(), list_.end(), address, [](u64 a, const Range& range) { return a < range.begin; });
        if (next == list_.begin()) return nullptr;
        const Range& range = *std::prev(next);
        return address + bytes <= range.end ? &range : nullptr;
    }

    size_t number(const Range* range) const { return static_cast<size_t>(range - list_.data()); }
    size_t count() const { return list_.size(); }
    const Range& at(size_t number) const { return list_[number]; }

private:
    std::vector<Range> list_;
};

}  // namespace emu::ptx
