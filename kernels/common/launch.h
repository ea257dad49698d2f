// SPDX-License-Identifier: MIT
// One way to launch a kernel on both vendors, and the status codes every entry point returns.
//
//   LAUNCH(kernel, grid, block, shared_bytes, queue)(arguments...);
//   return LAUNCH_STATUS();
//
// Local builds hand the caller's queue to the launch, so that a graph capture sees the work and torch's current
// queue is honoured. Packed builds (WARPWAVE_PACKED) use the default one: leaderboards refuse any source that spells
// the vendor's word for a queue, so that spelling lives in launch_queue.h alone and the packer never emits it.
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
