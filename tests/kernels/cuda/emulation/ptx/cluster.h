// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline int cluster_index() { return static_cast<int>(blockIdx.x / emulation::machine().cluster_size); }
inline int cluster_count() { return static_cast<int>(gridDim.x / emulation::machine().cluster_size); }
inline int cluster_rank() { return static_cast<int>(emulation::this_block().rank); }
inline int cluster_blocks() { return static_cast<int>(emulation::machine().cluster_size); }
inline void cluster_barrier() {
    auto& m = emulation::machine();
    const unsigned threads = m.block_size.x;
    emulation::meet(
        m.cluster, threads * m.cluster_size, cluster_rank() * threads + m.current->index, nullptr, [](void**) {});
}

/// The round of the cluster's barrier that each thread arrived in.
inline std::map<emulation::Fiber*, uint64_t>& cluster_arrivals() {
    static std::map<emulation::Fiber*, uint64_t> rounds;
    return rounds;
}
inline void cluster_arrive_relaxed() {
    auto& m = emulation::machine();
    cluster_arrivals()[m.current] = m.cluster.generation;
    if (++m.cluster.arrived == m.block_size.x * m.cluster_size) {
        m.cluster.arrived = 0;
        ++m.cluster.generation;
        ++m.progress;
    }
}
inline void cluster_arrive() { cluster_arrive_relaxed(); }
inline void cluster_wait() {
    while (emulation::machine().cluster.generation == cluster_arrivals().at(emulation::machine().current))
        emulation::give_way();
}
inline uint32_t map_shared(uint32_t shared, int rank) { return emulation::cluster_address(shared, rank); }
inline float4 load_cluster(uint32_t mapped) {
    float4 value;
    std::memcpy(&value, emulation::shared_at(emulation::block_of(mapped), emulation::offset_of(mapped), 16, 16), 16);
    return value;
}
inline float load_cluster_float(uint32_t mapped) {
    float value;
    std::memcpy(&value, emulation::shared_at(emulation::block_of(mapped), emulation::offset_of(mapped), 4, 4), 4);
    return value;
}

/// The source is read when the copy arrives, so that reusing it early shows; so does ending early, by a fiber that is done.
inline void copy_to_cluster(uint32_t mapped, uint32_t shared, uint32_t bytes, uint32_t barrier) {
    emulation::Block &from = emulation::this_block(), &to = emulation::block_of(mapped);
    if (&to != &emulation::block_of(barrier))
        emulation::fail("a copy and the mbarrier that counts it are in two blocks");
    if (bytes == 0 || bytes % 16 != 0) emulation::fail("a bulk copy of no or of odd bytes");
    const uint32_t at = emulation::offset_of(mapped), counts = emulation::offset_of(barrier);
    emulation::extension(to).barrier(counts);
    emulation::deliver(to, {counts, [=, &from](emulation::Block& block) {
        if (emulation::ended(from)) emulation::fail("a block ended before what it sent was read");
        for (uint32_t i = 0; i < bytes; i += 16) {
            std::memcpy(
                emulation::shared_at(block, at + i, 16, 16), emulation::shared_at(from, shared + i, 16, 16), 16);
        }
        emulation::extension(block).barrier(counts).land(bytes);
    }});
}
