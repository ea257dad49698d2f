// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    emulation::shared_at(barrier, 8, 8);
    emulation::extension().barriers[barrier] = {arrivals, arrivals};
}
inline void mbarrier_fence_init() {}
inline void mbarrier_arrive(uint32_t barrier) { emulation::extension().barrier(barrier).arrive(); }
inline void mbarrier_arrive_cluster(uint32_t mapped) {
    auto& block = emulation::block_of(mapped);
    if (emulation::ended(block)) emulation::fail("a thread arrives at a block that has ended");
    emulation::extension(block).barrier(emulation::offset_of(mapped)).arrive();
}
inline void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    auto& state = emulation::extension().barrier(barrier);
    state.bytes += bytes;
    state.arrive();
}
inline void mbarrier_arrive_after_copies(uint32_t barrier) {
    auto& fiber = *emulation::machine().current;
    const auto copies = std::move(fiber.open);
    fiber.open.clear();
    emulation::deliver(*fiber.block, {barrier, [=](emulation::Block& at) {
        for (const auto& copy : copies) emulation::perform(at, copy);
        emulation::extension(at).barrier(barrier).arrive();
    }});
}
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    auto& block = emulation::this_block();
    while (emulation::extension().barrier(barrier).phase % 2 == parity) {
        emulation::hurry(block, barrier);
        if (emulation::extension().barrier(barrier).phase % 2 != parity) break;
        emulation::give_way();
    }
    ++emulation::machine().progress;  // this thread goes on, and may do what others wait for
}
inline bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
    return emulation::extension().barrier(barrier).phase % 2 != parity;
}
