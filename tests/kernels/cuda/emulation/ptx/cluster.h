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
    emulation::meet(m.cluster, threads * m.cluster_size, cluster_rank() * threads + m.current->index, nullptr, [](void**) {});
}
inline uint32_t map_shared(uint32_t shared, int rank) { return emulation::cluster_address(shared, rank); }
inline void store_cluster(uint32_t mapped, const float4& value) {
    std::memcpy(emulation::shared_at(emulation::block_of(mapped), emulation::offset_of(mapped), 16, 16), &value, 16);
}
inline float4 load_cluster(uint32_t mapped) {
    float4 value;
    std::memcpy(&value, emulation::shared_at(emulation::block_of(mapped), emulation::offset_of(mapped), 16, 16), 16);
    return value;
}
