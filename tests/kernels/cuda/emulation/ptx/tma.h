// SPDX-License-Identifier: MIT
// The tensor memory accelerator (sm_90), one instruction per function: boxes of two, three and five dimensions by a tensor map,
// with and without a policy for L2, and plain bulk copies. One thread issues.
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

// Policies change nothing here.

inline uint64_t policy_evict_first() { return 1; }
inline void tma_load(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint64_t) {
    tma_load(shared, map, barrier, x, y);
}
inline void tma_load_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks, uint64_t) {
    tma_load_multicast(shared, map, barrier, x, y, ranks);
}

inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2) {
    emulation::load_box_5d(shared, map, barrier, {x0, x1, x2, 0, 0});
}
inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint64_t) {
    tma_load_3d(shared, map, barrier, x0, x1, x2);
}
inline void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks) {
    auto& m = emulation::machine();
    if (ranks >> m.cluster_size != 0) emulation::fail("a multicast to blocks the cluster does not have");
    for (unsigned rank = 0; rank < m.cluster_size; ++rank)
        if (ranks >> rank & 1) emulation::load_box_5d(*m.blocks[rank], shared, map, barrier, {x0, x1, x2, 0, 0});
}
inline void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks, uint64_t) {
    tma_load_3d_multicast(shared, map, barrier, x0, x1, x2, ranks);
}

inline void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4) {
    emulation::load_box_5d(shared, map, barrier, {x0, x1, x2, x3, x4});
}
/// Policies change nothing here.
inline void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint64_t) {
    tma_load_5d(shared, map, barrier, x0, x1, x2, x3, x4);
}
inline void tma_prefetch_5d(const TensorMap&, int, int, int, int, int) {}

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
    if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0)
        emulation::fail("a bulk addition of odd bytes");
    auto& block = emulation::this_block();
    emulation::box_stores()[emulation::machine().current].open.push_back([=, &block] {
        const auto* from = reinterpret_cast<const float*>(emulation::shared_at(block, shared, bytes, 16));
        for (int i = 0; i < bytes / 4; ++i) global[i] += from[i];
    });
    emulation::machine().at_end = [] {
        const auto& mine = emulation::box_stores()[emulation::machine().current];
        if (!mine.open.empty() || !mine.groups.empty())
            emulation::fail("a block ends while an addition reads its memory");
    };
}

template <int kPending>
void bulk_wait_done() {
    tma_store_wait_read<kPending>();
}
inline void fence_async_global() {}
