// SPDX-License-Identifier: MIT
// Sums in memory that several workgroups add to.
#pragma once

#include "isa/types.h"

/// *to += value, in one piece; in which order different waves add is not known.
__device__ __forceinline__ void add_to_memory(float* to, float value) {
    typedef __attribute__((address_space(1))) float* Global;
    __builtin_amdgcn_global_atomic_fadd_f32((Global)to, value);
}
