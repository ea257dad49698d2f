// SPDX-License-Identifier: MIT
// Host side: launches that LAUNCH cannot express: clusters, and an early start beside the end of the previous kernel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#include "launch.h"

/// The caller's queue as the vendor's handle type, which kernel files may not spell. Packed builds use the default queue.
struct QueueHandle {
    void* queue;

    template <class Handle>
    operator Handle*() const {
#if defined(WARPWAVE_PACKED)
        return nullptr;
#else
        return static_cast<Handle*>(queue);
#endif
    }
};

/// How many clusters of `cluster` blocks of a kernel `device` runs at a time, 0 where it cannot say. Asked once; each kernel has a
/// Shape of its own.
template <class Shape, class... Parameters>
int clusters_at_a_time(void (*kernel)(Parameters...), int device, int threads, int cluster, size_t shared_bytes) {
    constexpr int kDevices = 64, kMost = 8;
    static std::atomic<int> known[kDevices][kMost + 1];  // and 1 more
    if (device >= kDevices || cluster > kMost) return 0;
    std::atomic<int>& answer = known[device][cluster];
    if (answer != 0) return answer - 1;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    const cudaLaunchConfig_t config = {
        dim3(static_cast<unsigned>(cluster)),
        dim3(static_cast<unsigned>(threads)),
        shared_bytes,
        QueueHandle{nullptr},
        &attribute,
        1u};
    int count = 0;
    const bool told =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)) ==
            cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess;
    answer = (told ? count : 0) + 1;
    return answer - 1;
}

/// Launch `blocks` blocks in clusters of `cluster` along x. With `early` the kernel may start before the previous one in the queue
/// has ended, so it calls grid_dependency_wait (ptx/launch_dependency.h) before it touches global memory. Returns 0 or the
/// runtime's error.
template <class... Parameters>
int launch_cluster(
    void (*kernel)(Parameters...), dim3 blocks, int threads, int cluster, size_t shared_bytes, bool early, void* queue,
    const Parameters&... arguments) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return static_cast<int>(error);

    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    attributes[1].id =
        static_cast<cudaLaunchAttributeID>(6);  // programmatic serialisation; its name is unspeakable, too
    const int allowed = 1;
    std::memcpy(&attributes[1].val, &allowed, sizeof allowed);
    const cudaLaunchConfig_t config = {
        blocks, dim3(static_cast<unsigned>(threads)), shared_bytes, QueueHandle{queue}, attributes, early ? 2u : 1u};
    error = cudaLaunchKernelEx(&config, kernel, arguments...);
    return static_cast<int>(error);
}
