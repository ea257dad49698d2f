// SPDX-License-Identifier: MIT
#include "footprint.h"

#include <algorithm>
#include <bit>
#include <set>

namespace emu::counters {

void Footprint::find(Recent& recent, u64 page) {
    std::unique_ptr<u16[]>& marks = pages_[page];
    if (!marks) marks = std::make_unique<u16[]>(kLines);
    recent = {page, marks.get()};
}

void Footprint::add(const Footprint& other) {
    for (const auto& [page, marks] : other.pages_) {
        Recent mine;
        find(mine, page);
        for (u64 i = 0; i < kLines; ++i) mine.marks[i] |= marks[i];
    }
}

void Footprint::each(const Lines& take) const {
    for (const auto& [page, marks] : pages_)
        for (u64 i = 0; i < kLines; ++i)
            if (marks[i]) take(page * kLines + i, marks[i]);
}

Footprint::Counts Footprint::counts() const {
    Counts result;
    each([&](u64, unsigned marks) {
        result.touched += 1;
        result.loaded += (marks & 0xff) != 0;
        result.stored += marks >> 8 != 0;
        result.loaded_by_die += static_cast<u64>(std::popcount(marks & 0xff));
        result.stored_by_die += static_cast<u64>(std::popcount(marks >> 8));
    });
    return result;
}

Footprint::Counts extrapolate(const Footprint& footprint, const Places& places, double scale) {
    constexpr u64 kDies = 8;
    Footprint::Counts all = footprint.counts();
    if (scale <= 1) return all;
    u64 loadable = 0, storable = 0, from = 0, to = 0;  // lines of allocations; those of the last one
    std::set<std::pair<u64, bool>> seen;
    footprint.each([&](u64 line, unsigned marks) {
        if (line < from || line >= to) {
            const Places::Range range = places.on_device(line * kLine);
            from = range.end ? range.base / kLine : line;
            to = range.end ? (range.base + range.end - range.begin) / kLine + 1 : line + 1;
        }
        const auto size = to - from > 1 ? to - from : static_cast<u64>(scale);
        if (marks & 0xff && seen.insert({from, false}).second) loadable += size;
        if (marks >> 8 && seen.insert({from, true}).second) storable += size;
    });
    auto grow = [&](u64& lines, u64 most) {
        lines = std::min(static_cast<u64>(static_cast<double>(lines) * scale), most);
    };
    grow(all.loaded, loadable);
    grow(all.stored, storable);
    grow(all.loaded_by_die, kDies * all.loaded);
    grow(all.stored_by_die, kDies * all.stored);
    grow(all.touched, loadable + storable);
    return all;
}

}  // namespace emu::counters
