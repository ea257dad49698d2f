// SPDX-License-Identifier: MIT
// Addition to a number in global memory that other blocks add to as well.
#pragma once

/// What stood at `number` before. Orders nothing else.
__device__ __forceinline__ unsigned fetch_add(unsigned* number, unsigned value) { return atomicAdd(number, value); }

/// The same with 64 bits.
__device__ __forceinline__ unsigned long long fetch_add_wide(unsigned long long* number, unsigned long long value) {
    return atomicAdd(number, value);
}
