// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/bulk_copy.h. Copies land when their barrier is waited for, or at once.
#pragma once

#include "ptx/mbarrier.h"

inline void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    if ((reinterpret_cast<uintptr_t>(global) | shared | bytes) % 16 != 0) emulated::fail("misaligned bulk copy", shared);
    const emulated::Bulk copy = {shared, global, bytes};
    if (!emulated::options.late_copies) emulated::land(copy);
    emulated::barrier_at(barrier).copies.push_back(copy);
}
inline void bulk_copy_fence() {}
