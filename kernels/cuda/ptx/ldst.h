// SPDX-License-Identifier: MIT
// Loads and stores: addresses of shared memory, matrices of 16-bit elements (ldmatrix, stmatrix), single numbers, prefetches,
// and stores with a policy for L2.
#pragma once

#include <cstdint>

// Generic pointer to shared memory -> the 32-bit address that PTX's .shared operands take.

/// Address of `pointer` inside the block's shared memory window, in bytes. `pointer` must point into shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The block's dynamic shared memory: the byte count of the launch, 128-byte aligned.
__device__ __forceinline__ uint8_t* dynamic_shared() {
    extern __shared__ __align__(128) uint8_t dynamic_shared_bytes[];
    return dynamic_shared_bytes;
}

/// The same memory in kernels that use TMA's swizzles, whose patterns repeat every 1024 bytes: aligned to that.
__device__ __forceinline__ uint8_t* swizzled_shared() {
    extern __shared__ __align__(1024) uint8_t swizzled_shared_bytes[];
    return swizzled_shared_bytes;
}

// Warp-wide loads of 8x8 matrices of 16-bit elements from shared memory (ldmatrix, sm_75 and later).
//
// Matrix i takes its eight row addresses (16 bytes each, 16-byte aligned) from lanes 8i .. 8i+7. With g = lane / 4 and
// t = lane % 4, a lane receives of each matrix the elements (row g, columns 2t and 2t+1); the transposed forms give it
// (rows 2t and 2t+1, column g). The lower-numbered element is in the low half of the register. Pairs of 8-bit elements
// travel as one 16-bit element. Lanes whose addresses a form does not use may pass any valid address.

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

/// Lanes 0 .. 15 give the row addresses.
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
}

/// Lanes 0 .. 15 give the row addresses.
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
}

// Warp-wide stores of 8x8 matrices of 16-bit elements to shared memory (stmatrix, sm_90): ldmatrix backwards.
//
// Matrix i takes its eight row addresses (16 bytes each, 16-byte aligned) from lanes 8i .. 8i+7. With g = lane / 4 and
// t = lane % 4, a lane gives of each matrix the elements (row g, columns 2t and 2t+1), the lower-numbered in the low half.

__device__ __forceinline__ void stmatrix_x4(uint32_t row, const uint32_t (&d)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row), "r"(d[0]), "r"(d[1]),
                 "r"(d[2]), "r"(d[3])
                 : "memory");
}

/// Stores each matrix transposed: a lane gives (rows 2t and 2t+1, column g) of what the addressed rows become.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, const uint32_t (&d)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row), "r"(d[0]),
                 "r"(d[1]), "r"(d[2]), "r"(d[3])
                 : "memory");
}

// Loads from shared memory by 32-bit address, where a pointer would have the compiler derive that address again and again.

/// The float at `address`. Stays where it is written: between the waits and products around it.
__device__ __forceinline__ float load_shared(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// A load from global memory that is issued where it is written: the compiler moves loads down to where their values are used,
// behind waits for other loads, where it finds registers scarce.

/// 16 bytes, 16-byte aligned.
__device__ __forceinline__ float4 load_now(const float4* from) {
    float4 x;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(from));
    return x;
}
__device__ __forceinline__ float load_now(const float* from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];\n" : "=f"(x) : "l"(from));
    return x;
}

// Requests to bring global memory into L2: hints, which nothing waits for.

/// The line at `global`.
__device__ __forceinline__ void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global) : "memory");
}

/// `bytes` from `global` on, both multiples of 16. One thread.
__device__ __forceinline__ void prefetch_l2(const void* global, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes) : "memory");
}

// Stores with a policy for L2: which lines it keeps when it needs room.

/// The last to go, as far as L2 has room for such lines; or as without a policy.
__device__ __forceinline__ uint64_t policy_evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint64_t policy_evict_normal() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}

/// Store 16 bytes, aligned.
__device__ __forceinline__ void store_16(void* global, const uint4& x, uint64_t policy) {
    asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;\n" ::"l"(global), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w), "l"(policy)
                 : "memory");
}
