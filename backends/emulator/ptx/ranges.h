// SPDX-License-Identifier: MIT
// What global memory a launch may touch: known allocations, looked up by every lane of every access.
#pragma once

#include <algorithm>
#include <vector>

#include "heap.h"

namespace emu::ptx {

class Ranges {
public:
    struct Range {
        u64 begin, end;
    };
    /// `known` in any order; they may overlap and touch. `heap`: what malloc gives is known as well, as one more range; or null.
    explicit Ranges(std::vector<Range> known, Heap* heap = nullptr) : heap_(heap) {
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
        if (next != list_.begin())
            if (const Range& range = *std::prev(next); address + bytes <= range.end) return &range;
        return given(address, bytes);
    }
    /// Null: the launch has none.
    Heap* heap() const { return heap_; }
    bool in_heap(size_t number) const { return heap_ && number == list_.size(); }

    /// Null: it was in the heap, and another block has freed it since.
    size_t number(const Range* range) const {
        return !range || range == &in_heap_ ? list_.size() : static_cast<size_t>(range - list_.data());
    }
    size_t count() const { return list_.size() + 1; }
    Range at(size_t number) const { return in_heap(number) ? Range{heap_->begin(), heap_->end()} : list_[number]; }

private:
    /// Apart, so that launches without a heap do not have it in the way.
    [[gnu::noinline, gnu::cold]] const Range* given(u64 address, u64 bytes) const {
        return heap_ && heap_->contains(address, bytes) ? &in_heap_ : nullptr;
    }

    std::vector<Range> list_;
    Heap* heap_;
    Range in_heap_{1, 0};  // has no bytes, so that each access asks whether the allocation is still there
};

}  // namespace emu::ptx
