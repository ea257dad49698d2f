// SPDX-License-Identifier: MIT
// A stand-in for the project's own, so that the goldens change only when the packer does.
#pragma once
#if defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define LAUNCH_STATUS() static_cast<int>(hipGetLastError())
#else
#include <cuda_runtime.h>
#define LAUNCH_STATUS() static_cast<int>(cudaGetLastError())
#endif
#if defined(WARPWAVE_PACKED)
#define LAUNCH(kernel, grid, block, shared_bytes, queue) kernel<<<(grid), (block), (shared_bytes)>>>
#else
#include "launch_queue.h"
#endif
#include "status.h"
