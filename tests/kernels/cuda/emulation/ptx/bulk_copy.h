// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"
#include "ptx/tma.h"

inline void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    if (shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0 || bytes == 0)
        emulation::fail("a bulk copy's addresses and size are multiples of 16");
    emulation::deliver(emulation::this_block(), {barrier, [=](emulation::Block& at) {
        std::memcpy(emulation::shared_at(at, shared, bytes, 16), global, bytes);
        emulation::extension(at).barrier(barrier).land(bytes);
    }});
}

inline void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier, uint64_t) {
    bulk_load(shared, global, bytes, barrier);
}

inline void bulk_reduce_add(float* global, uint32_t shared, int bytes) {
    if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0) emulation::fail("a bulk addition of odd bytes");
    auto& block = emulation::this_block();
    emulation::box_stores()[emulation::machine().current].open.push_back([=, &block] {
        const auto* from = reinterpret_cast<const float*>(emulation::shared_at(block, shared, bytes, 16));
        for (int i = 0; i < bytes / 4; ++i) global[i] += from[i];
    });
    emulation::machine().at_end = [] {
        const auto& mine = emulation::box_stores()[emulation::machine().current];
        if (!mine.open.empty() || !mine.groups.empty()) emulation::fail("a block ends while an addition reads its memory");
    };
}

template <int kPending>
void bulk_wait_done() {
    tma_store_wait_read<kPending>();
}
inline void fence_async_global() {}
