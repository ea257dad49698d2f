// SPDX-License-Identifier: MIT
// Counters and flags in global memory that the blocks of a launch share: atomic additions, ordered loads and stores, fences.
#pragma once

// Addition to a number in global memory that other blocks add to as well.

/// What stood at `number` before. Orders nothing else.
__device__ __forceinline__ unsigned fetch_add(unsigned* number, unsigned value) { return atomicAdd(number, value); }

/// The same with 64 bits.
__device__ __forceinline__ unsigned long long fetch_add_wide(unsigned long long* number, unsigned long long value) {
    return atomicAdd(number, value);
}

/// Add to a number in global memory that other blocks add to as well. Orders nothing, and nobody gets what stood there.
__device__ __forceinline__ void add_anywhere(float* number, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(number), "f"(value) : "memory");
}

// Numbers in global memory by which blocks of one launch agree on who does what, and when.

/// The next number of a counter: every caller gets another.
__device__ __forceinline__ int take_number(int* counter) { return atomicAdd(counter, 1); }

/// Make this thread's accesses to global memory come before what it does next, for the whole device.
__device__ __forceinline__ void fence_device() { __threadfence(); }

/// Wait until `*turn` is `number`, and see what was written before it was set.
__device__ __forceinline__ void wait_for_turn(const int* turn, int number) {
    int now;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(now) : "l"(turn) : "memory");
    } while (now != number);
}

/// Set `*turn`; what was fenced before is visible to who waits for it.
__device__ __forceinline__ void pass_turn(int* turn, int number) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;\n" ::"l"(turn), "r"(number) : "memory");
}

/// Wait until `*count` has reached `number`, and see what was written before it was raised.
__device__ __forceinline__ void wait_for_count(const int* count, int number) {
    int now;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(now) : "l"(count) : "memory");
    } while (now < number);
}

/// Raise `*count` by one; what was fenced before is visible to who waits for it.
__device__ __forceinline__ void raise_count(int* count) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;\n" ::"l"(count) : "memory");
}

/// The same without any order.
__device__ __forceinline__ void raise_count_relaxed(int* count) {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;\n" ::"l"(count) : "memory");
}

/// Four numbers from L2: what other multiprocessors wrote, whatever this one has read there before.
__device__ __forceinline__ float4 load_from_l2(const float* from) {
    return __ldcg(reinterpret_cast<const float4*>(from));
}

/// The same with the order that is needed between two threads only: cheaper than one of all fences of the device.
__device__ __forceinline__ void fence_between() { asm volatile("fence.acq_rel.gpu;\n" ::: "memory"); }

/// A number that other blocks raise, and all that was written before they did.
__device__ __forceinline__ unsigned look_at(const unsigned* number) {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(now) : "l"(number) : "memory");
    return now;
}

/// A number in L2, without any order: what was there at some time, whatever this multiprocessor has read before.
__device__ __forceinline__ int peek(const int* number) {
    int now;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];\n" : "=r"(now) : "l"(number) : "memory");
    return now;
}

/// A number that other blocks change, without any order.
__device__ __forceinline__ unsigned long long look_at_wide(const unsigned long long* number) {
    unsigned long long now;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];\n" : "=l"(now) : "l"(number) : "memory");
    return now;
}
