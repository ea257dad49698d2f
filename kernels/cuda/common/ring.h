// SPDX-License-Identifier: MIT
// Positions in a pipeline's ring of stages, for producers and consumers that meet at one mbarrier pair per stage.
#pragma once

#include <cstdint>

/// A place in the ring and the parity of its use there.
template <int kStages>
struct RingPosition {
    int stage = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};
