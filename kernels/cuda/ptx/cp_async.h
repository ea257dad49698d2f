// SPDX-License-Identifier: MIT
// Asynchronous copies from global to shared memory (cp.async, sm_80 and later): one instruction per function.
//
// A thread's copies complete in groups: issue some, commit, and later wait until at most N groups are still in flight.
// Waiting covers this thread's copies only; a barrier makes the other threads' copies visible.
#pragma once

#include <cstdint>

#include "ptx/ldst.h"

/// Copy 16 bytes past L1, or write 16 zero bytes where `valid` is false: nothing is read then, so `global` may lie outside
/// its array. Both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global, bool valid) {
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

/// Copy 4 bytes through L1, or write 4 zero bytes where `valid` is false. Both addresses are multiples of 4.
__device__ __forceinline__ void cp_async_4(uint32_t shared, const void* global, bool valid) {
    const int bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

/// Close the group of all copies this thread issued since the last commit. An empty group is legal and counts.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

/// Wait until at most `kPending` of this thread's most recent groups are still in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    static_assert(kPending >= 0, "the operand counts groups that may still be in flight, so it cannot be negative");
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}
