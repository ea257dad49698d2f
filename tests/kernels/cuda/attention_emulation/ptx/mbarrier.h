// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/mbarrier.h. A phase completes, late, when somebody waits for it.
#pragma once

#include "ptx/shared_address.h"

namespace emulated {
struct Bulk {
    uint32_t shared;
    const void* global;
    uint32_t bytes;
};
struct Barrier {
    uint32_t arrivals = 0, arrived = 0, expected = 0, phase = 0;
    std::vector<Bulk> copies;
};
inline void land(const Bulk& copy) {
    if (!may_read(copy.global, copy.bytes)) return fail("bulk copy reads outside the arrays; shared address", copy.shared);
    memcpy(at_shared(copy.shared, 16), copy.global, copy.bytes);
}
/// Barriers live beside the emulated shared memory; a block's end forgets them.
inline std::vector<std::pair<uint32_t, Barrier>> barriers;
inline Barrier& barrier_at(uint32_t address) {
    for (auto& entry : barriers) {
        if (entry.first == address) return entry.second;
    }
    fail("no mbarrier was set up at", address);
    barriers.push_back({address, Barrier()});
    return barriers.back().second;
}
}  // namespace emulated

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    emulated::at_shared(barrier, 8);
    auto& all = emulated::barriers;
    std::erase_if(all, [=](const auto& entry) { return entry.first == barrier; });
    all.push_back({barrier, emulated::Barrier{arrivals}});
}
inline void mbarrier_fence_init() {}
inline void mbarrier_arrive(uint32_t barrier) { ++emulated::barrier_at(barrier).arrived; }
inline void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    ++emulated::barrier_at(barrier).arrived;
    emulated::barrier_at(barrier).expected += bytes;
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    for (;; emulated::yield()) {
        emulated::Barrier& b = emulated::barrier_at(barrier);
        if ((b.phase & 1) != parity) return;
        uint32_t bytes = 0;
        for (const auto& copy : b.copies) bytes += copy.bytes;
        if (b.arrived < b.arrivals || bytes != b.expected) continue;
        if (emulated::options.late_copies) {
            for (const auto& copy : b.copies) emulated::land(copy);
        }
        b = {b.arrivals, 0, 0, b.phase + 1, {}};
        ++emulated::progress;
        return;
    }
}
