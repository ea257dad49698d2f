// SPDX-License-Identifier: MIT
// Lanes of a wave: who am I, and what does another lane hold.
#pragma once

#include "isa/types.h"

constexpr int kWaveSize = 64;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % kWaveSize; }

/// Index of this wave in its workgroup, in a scalar register: the compiler cannot know that it is the same in all lanes.
__device__ __forceinline__ int wave_id() {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / kWaveSize);
}

/// The value of lane `lane ^ 16`: ds_swizzle_b32 in its 32-lane mode (xor mask in bits 10-14, and mask in bits 0-4).
__device__ __forceinline__ float from_lane_xor_16(float value) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), 0x401f));
}

/// The value of lane `lane ^ 32`. ds_bpermute_b32 takes the byte address of the source lane's dword.
__device__ __forceinline__ float from_lane_xor_32(float value) {
    const int address = (lane_id() ^ 32) * 4;
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(address, __builtin_bit_cast(int, value)));
}

/// Whether any lane of the wave says yes; a scalar, so that a branch on it is the wave's.
__device__ __forceinline__ bool any_lane(bool yes) { return __builtin_amdgcn_ballot_w64(yes) != 0; }
