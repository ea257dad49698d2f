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

/// The compiler moves nothing across this: it hoists loads and products of an unrolled loop until registers run out.
__device__ __forceinline__ void keep_order() { __builtin_amdgcn_sched_barrier(0); }
