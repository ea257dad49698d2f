// SPDX-License-Identifier: MIT
#pragma once

#include "launch.h"

template <class... Parameters>
int launch_cluster(
    void (*kernel)(Parameters...), int blocks, int threads, int cluster, size_t shared_bytes, bool early, void*,
    const Parameters&... arguments) {
    if (shared_bytes > 227 * 1024 || cluster > 8) return 1;
    ::emulation::Launch{dim3(blocks), dim3(threads), shared_bytes, static_cast<unsigned>(cluster), early}(
        kernel, arguments...);
    return 0;
}

template <class Shape, class... Parameters>
int clusters_at_a_time(void (*)(Parameters...), int, int, int cluster, size_t) {
    const auto& machine = ::emulation::machine();
    return machine.refused != 0 && cluster >= machine.refused ? 0 : machine.processors / cluster;
}
