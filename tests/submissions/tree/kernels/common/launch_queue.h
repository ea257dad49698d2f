// SPDX-License-Identifier: MIT
#pragma once
#if defined(__HIP__) || defined(__HIPCC__)
#define WARPWAVE_QUEUE_TYPE hipStream_t
#else
#define WARPWAVE_QUEUE_TYPE cudaStream_t
#endif
#define LAUNCH(kernel, grid, block, shared_bytes, queue) \
    kernel<<<(grid), (block), (shared_bytes), reinterpret_cast<WARPWAVE_QUEUE_TYPE>(queue)>>>
