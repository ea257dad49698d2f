// SPDX-License-Identifier: MIT
// Lanes of a wave: who am I, and what does another lane hold.
#pragma once

#include "isa/types.h"

constexpr int kWaveSize = 64;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % kWaveSize; }

/// A value that is the same in all lanes, in a scalar register. Compilers do not always see that it is: they cannot know it
/// of a thread's wave number, and older ones lose track of quotients, which they compute in vector registers.
__device__ __forceinline__ int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }

template <class T>
__device__ __forceinline__ T* uniform(T* pointer) {
    const uint64_t bits = reinterpret_cast<uint64_t>(pointer);
    const uint32_t low = static_cast<uint32_t>(uniform(static_cast<int>(bits & 0xffffffffu)));
    const uint32_t high = static_cast<uint32_t>(uniform(static_cast<int>(bits >> 32)));
    return reinterpret_cast<T*>(static_cast<uint64_t>(high) << 32 | low);
}

/// Index of this wave in its workgroup.
__device__ __forceinline__ int wave_id() { return uniform(static_cast<int>(threadIdx.x) / kWaveSize); }

/// The value of lane `lane ^ Mask`: ds_swizzle_b32 in its 32-lane mode (xor mask in bits 10-14, and mask in bits 0-4).
template <int Mask>
__device__ __forceinline__ float from_lane_xor(float value) {
    static_assert(Mask > 0 && Mask < 32, "within 32 lanes");
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), Mask << 10 | 0x1f));
}

/// The value of lane `lane ^ 16`.
__device__ __forceinline__ float from_lane_xor_16(float value) { return from_lane_xor<16>(value); }

/// The value of lane `lane ^ 32`. ds_bpermute_b32 takes the byte address of the source lane's dword.
__device__ __forceinline__ float from_lane_xor_32(float value) {
    const int address = (lane_id() ^ 32) * 4;
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(address, __builtin_bit_cast(int, value)));
}

/// The value that lane `lane` (any number, taken modulo 64) holds; a lane of one's own choice for each.
__device__ __forceinline__ int from_lane(int value, int lane) { return __builtin_amdgcn_ds_bpermute(lane * 4, value); }

/// The value of lane `lane ^ mask`.
__device__ __forceinline__ float from_lane_xor(float value, int mask) {
    return __builtin_bit_cast(float, from_lane(__builtin_bit_cast(int, value), lane_id() ^ mask));
}

/// Two lanes of a pair hold `first` and `second` each. Afterwards the lower lane holds both first ones, the upper lane both
/// second ones; in `first` the lower lane's, in `second` the upper lane's. Pairs are lanes 8 apart (DPP row_ror:8), or those
/// that add up to 7 in eight (DPP row_half_mirror). DPP writes selected groups of four lanes alone, so nothing is compared.
template <int Control, int UpperGroups>
__device__ __forceinline__ void swap_between_lanes(u32x4& first, u32x4& second) {
    constexpr int kAllRows = 0xf, kLowerGroups = 0xf ^ UpperGroups;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int lower = static_cast<int>(first[i]), upper = static_cast<int>(second[i]);
        first[i] =
            static_cast<uint32_t>(__builtin_amdgcn_update_dpp(lower, upper, Control, kAllRows, UpperGroups, false));
        second[i] =
            static_cast<uint32_t>(__builtin_amdgcn_update_dpp(upper, lower, Control, kAllRows, kLowerGroups, false));
    }
}

__device__ __forceinline__ void swap_8_apart(u32x4& first, u32x4& second) {
    swap_between_lanes<0x128, 0b1100>(first, second);
}

__device__ __forceinline__ void swap_mirrored(u32x4& first, u32x4& second) {
    swap_between_lanes<0x141, 0b1010>(first, second);
}

/// Sum of the values of lanes 0 to this one.
__device__ __forceinline__ int sum_up_to_lane(int value) {
#pragma unroll
    for (int step = 1; step < kWaveSize; step *= 2) {
        const int below = __builtin_amdgcn_ds_bpermute((lane_id() - step) * 4, value);
        value += lane_id() >= step ? below : 0;
    }
    return value;
}

/// How many lanes of the wave say yes.
__device__ __forceinline__ int count_lanes(bool yes) { return __builtin_popcountll(__builtin_amdgcn_ballot_w64(yes)); }

/// The value that lane `lane` holds, in a scalar register; `lane` is the same in all lanes.
__device__ __forceinline__ int read_lane(int value, int lane) { return __builtin_amdgcn_readlane(value, lane); }

/// Whether any lane of the wave says yes; a scalar, so that a branch on it is the wave's.
__device__ __forceinline__ bool any_lane(bool yes) { return __builtin_amdgcn_ballot_w64(yes) != 0; }
