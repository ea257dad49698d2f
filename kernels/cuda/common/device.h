// SPDX-License-Identifier: MIT
// Host side: what a launcher asks the device.
#pragma once

#include "launch.h"

/// Multiprocessors of the current device, or 0 with `error` set.
inline int multiprocessors(int& error) {
    int device = 0, count = 0;
    error = static_cast<int>(cudaGetDevice(&device));
    if (error == 0) error = static_cast<int>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}
