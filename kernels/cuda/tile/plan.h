// SPDX-License-Identifier: MIT
// Host side: what a launcher asks and, of a product, decides before it launches.
#pragma once

#include "launch.h"

/// Index of a tile shape in the launcher's table, and the number of parts K is divided into.
struct Plan {
    int shape;
    int splits;
};

/// Multiprocessors of the current device, or 0 with `error` set.
inline int multiprocessors(int& error) {
    int device = 0, count = 0;
    error = static_cast<int>(cudaGetDevice(&device));
    if (error == 0) error = static_cast<int>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}
