// SPDX-License-Identifier: MIT
// Launches with events of their own, after the public reference of HIP. For compilers without ROCm's own header.
#pragma once

#include <hip/hip_runtime.h>

/// As hipModuleLaunchKernel, but global sizes are in threads. `start` and `stop` are recorded around the kernel.
extern "C" hipError_t hipExtModuleLaunchKernel(
    hipFunction_t function, uint32_t global_x, uint32_t global_y, uint32_t global_z, uint32_t local_x, uint32_t local_y,
    uint32_t local_z, size_t lds, hipStream_t queue, void** parameters, void** extra, hipEvent_t start = nullptr,
    hipEvent_t stop = nullptr, uint32_t flags = 0);

/// The same under its older name.
extern "C" hipError_t hipHccModuleLaunchKernel(
    hipFunction_t function, uint32_t global_x, uint32_t global_y, uint32_t global_z, uint32_t local_x, uint32_t local_y,
    uint32_t local_z, size_t lds, hipStream_t queue, void** parameters, void** extra, hipEvent_t start = nullptr,
    hipEvent_t stop = nullptr);

namespace warpwave {

/// Arguments in the types of the kernel's parameters, and where each lies. A kernel has no reference among them.
template <class... Parameters>
hipError_t launch_between(
    void (*kernel)(Parameters...), const dim3& grid, const dim3& block, uint32_t lds, hipStream_t queue,
    hipEvent_t start, hipEvent_t stop, uint32_t flags, Parameters... arguments) {
    void* places[sizeof...(Parameters) + 1] = {static_cast<void*>(&arguments)...};
    return hipExtLaunchKernel(
        reinterpret_cast<const void*>(kernel), grid, block, places, lds, queue, start, stop, static_cast<int>(flags));
}

}  // namespace warpwave

/// `kernel<<<grid, block, lds, queue>>>(arguments…)` with events before and after it.
template <class... Parameters, class... Arguments>
void hipExtLaunchKernelGGL(
    void (*kernel)(Parameters...), const dim3& grid, const dim3& block, uint32_t lds, hipStream_t queue,
    hipEvent_t start, hipEvent_t stop, uint32_t flags, Arguments... arguments) {
    (void)warpwave::launch_between<Parameters...>(
        kernel, grid, block, lds, queue, start, stop, flags, static_cast<Parameters>(arguments)...);
}
