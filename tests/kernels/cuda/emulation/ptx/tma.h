// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void tma_prefetch_map(const TensorMap&) {}
inline void tma_load(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y) {
    emulation::load_box(emulation::this_block(), shared, map, barrier, x, y);
}
inline void tma_load_multicast(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks) {
    auto& m = emulation::machine();
    if (ranks >> m.cluster_size != 0) emulation::fail("a multicast to blocks the cluster does not have");
    for (unsigned rank = 0; rank < m.cluster_size; ++rank)
        if (ranks >> rank & 1) emulation::load_box(*m.blocks[rank], shared, map, barrier, x, y);
}
inline void fence_async_shared() {}
inline void tma_store(const TensorMap& map, uint32_t shared, int x, int y) {
    auto& block = emulation::this_block();
    emulation::box_stores()[emulation::machine().current].open.push_back([=, &block] {
        emulation::each_byte(block, shared, map, x, y, [](const uint8_t* from, char* to) {
            if (to) *to = static_cast<char>(*from);
        });
    });
    emulation::machine().at_end = [] {
        const auto& mine = emulation::box_stores()[emulation::machine().current];
        if (!mine.open.empty() || !mine.groups.empty()) emulation::fail("a block ends while a store reads its memory");
    };
}
inline void tma_store_commit() {
    auto& mine = emulation::box_stores()[emulation::machine().current];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}
template <int kPending>
void tma_store_wait_read() {
    auto& mine = emulation::box_stores()[emulation::machine().current];
    while (mine.groups.size() > kPending) {
        for (const auto& store : mine.groups.front()) store();
        mine.groups.pop_front();
    }
}
