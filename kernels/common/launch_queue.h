// SPDX-License-Identifier: MIT
// The local half of LAUNCH: the only file that spells the vendor's queue type. Never packed (see launch.h).
#pragma once

#if defined(__HIP__) || defined(__HIPCC__)
#define WARPWAVE_QUEUE_TYPE hipStream_t
#else
#define WARPWAVE_QUEUE_TYPE cudaStream_t
#endif

#define LAUNCH(kernel, grid, block, shared_bytes, queue) \
    kernel<<<(grid), (block), (shared_bytes), reinterpret_cast<WARPWAVE_QUEUE_TYPE>(queue)>>>
