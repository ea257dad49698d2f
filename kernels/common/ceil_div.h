// SPDX-License-Identifier: MIT
// Integer division that rounds up, for tile counts on host and device.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__) || defined(__HIPCC__)
#define WARPWAVE_HOST_DEVICE __host__ __device__
#else
#define WARPWAVE_HOST_DEVICE
#endif

/// Number of tiles of size `step` (> 0) that cover `count` (>= 0) elements.
template <typename Int>
WARPWAVE_HOST_DEVICE constexpr Int ceil_div(Int count, Int step) {
    return (count + step - 1) / step;
}
