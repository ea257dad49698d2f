// SPDX-License-Identifier: MIT
// Which 128-byte lines of global memory a launch loaded and stored, and from which of the eight dies: an exact set.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "../types.h"
#include "places.h"

namespace emu::counters {

constexpr u64 kLine = 128;  // bytes of an L2 cache line (AMD CDNA 3 white paper)

class Footprint {
public:
    /// Lines, each counted once (loaded, stored, touched) or once for each die (by_die).
    struct Counts {
        u64 loaded = 0, stored = 0, touched = 0, loaded_by_die = 0, stored_by_die = 0;
    };
    using Lines = std::function<void(u64 line, unsigned marks)>;  // bits 0-7: loaded by that die, 8-15: stored

    void mark(u64 line, u32 die, bool store) {
        const u64 page = line / kLines;
        Recent& recent = recent_[page % kRecent];
        if (recent.page != page) [[unlikely]]
            find(recent, page);
        recent.marks[line % kLines] |= static_cast<u16>(1u << (die + (store ? 8 : 0)));
    }
    void add(const Footprint&);
    Counts counts() const;
    void each(const Lines&) const;

private:
    static constexpr u64 kLines = 16384, kRecent = 64;  // a page is 2 MiB
    struct Recent {
        u64 page = ~u64{0};
        u16* marks = nullptr;
    };
    void find(Recent&, u64 page);

    Recent recent_[kRecent];
    std::unordered_map<u64, std::unique_ptr<u16[]>> pages_;
};

/// What all workgroups of a launch touch, from what one in `scale` of them did: as many times more lines, but no more than the
/// allocations that they lie in have. Lines shared between workgroups make that an upper estimate; with scale 1 it is exact.
Footprint::Counts extrapolate(const Footprint&, const Places&, double scale);

}  // namespace emu::counters
