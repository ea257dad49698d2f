// SPDX-License-Identifier: MIT
#include "footprint.h"

#include <bit>

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

Footprint::Counts Footprint::counts() const {
    Counts result;
    for (const auto& [page, marks] : pages_) {
        for (u64 i = 0; i < kLines; ++i) {
            const unsigned mark = marks[i];
            if (!mark) continue;
            result.touched += 1;
            result.loaded += (mark & 0xff) != 0;
            result.stored += mark >> 8 != 0;
            result.loaded_by_die += static_cast<u64>(std::popcount(mark & 0xff));
            result.stored_by_die += static_cast<u64>(std::popcount(mark >> 8));
        }
    }
    return result;
}

}  // namespace emu::counters
