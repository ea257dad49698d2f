// SPDX-License-Identifier: MIT
// Who runs first, and who waits. None of these changes a result.
#pragma once

/// Priority of this wave among those of its SIMD, 0 .. 3. Raised around matrix instructions, so that the wave that has
/// its operands keeps the matrix core busy while the other one loads.
template <int Priority>
__device__ __forceinline__ void set_wave_priority() {
    static_assert(Priority >= 0 && Priority <= 3, "s_setprio takes two bits");
    __builtin_amdgcn_s_setprio(Priority);
}

/// Wait until every load of this wave has arrived. The compiler waits by itself where a value is used; but for values that
/// a loop uses and that were loaded before it, it waits inside the loop, and then for the loop's own prefetches, too.
__device__ __forceinline__ void wait_for_loads() {
    constexpr int kNoLoadOutstanding = 0x0f70;  // vmcnt 0, expcnt and lgkmcnt as large as they come
    __builtin_amdgcn_s_waitcnt(kNoLoadOutstanding);
}

/// `value`, of which the compiler knows nothing any more: what is computed from it inside a loop stays there. Otherwise it
/// keeps a register per address of a tile from one iteration to the next, until others spill.
__device__ __forceinline__ int computed_here(int value) {
    asm volatile("" : "+v"(value));
    return value;
}

/// The same of a value that all lanes share.
__device__ __forceinline__ int computed_here_for_all(int value) {
    asm volatile("" : "+s"(value));
    return value;
}

/// Nothing is moved across this place when instructions are put in order.
__device__ __forceinline__ void schedule_barrier() { __builtin_amdgcn_sched_barrier(0); }
