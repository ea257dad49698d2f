// SPDX-License-Identifier: MIT
// Buffer accesses: a resource descriptor in scalar registers says where a buffer begins and how long it is; a load beyond it
// returns zero, a store beyond it does nothing. That is how tails are masked: no branch, no lane-mask juggling.
#pragma once

#include "isa/lanes.h"
#include "isa/types.h"

typedef __amdgpu_buffer_rsrc_t BufferResource;

/// An offset that is beyond every buffer: a lane that passes it reads zero and writes nothing.
constexpr int kOutside = 0x7ffffff0;

/// Descriptor of `bytes` (0 .. 2^31 - 16) bytes at `base`; both must be the same in all lanes of the wave. Says so to the
/// compiler: one that doubts it wraps every access into a loop over the lanes.
__device__ __forceinline__ BufferResource make_buffer(const void* base, int bytes) {
    constexpr int kRawDwords = 0x00020000;  // word 3: 32-bit data format, no stride, no swizzle
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(uniform(base)), 0, uniform(bytes), kRawDwords);
}

/// 16 bytes at `offset + scalar_offset` (multiples of 4) per lane; `scalar_offset` is the same in all lanes. Only `offset`
/// is compared with the buffer's length: dwords beyond it read as zero.
__device__ __forceinline__ u32x4 buffer_load_16(BufferResource buffer, int offset, int scalar_offset = 0) {
    return __builtin_bit_cast(u32x4, __builtin_amdgcn_raw_buffer_load_b128(buffer, offset, scalar_offset, 0));
}

/// A float at `offset`, a multiple of 4; 0 beyond the buffer.
__device__ __forceinline__ float buffer_load_float(BufferResource buffer, int offset) {
    return __builtin_bit_cast(float, __builtin_amdgcn_raw_buffer_load_b32(buffer, offset, 0, 0));
}

/// Stores per lane at `offset`: 16, 4 and 2 bytes. What lies beyond the buffer is dropped.
__device__ __forceinline__ void buffer_store_16(BufferResource buffer, int offset, u32x4 value) {
    __builtin_amdgcn_raw_buffer_store_b128(value, buffer, offset, 0, 0);
}

__device__ __forceinline__ void buffer_store_4(BufferResource buffer, int offset, uint32_t value) {
    __builtin_amdgcn_raw_buffer_store_b32(value, buffer, offset, 0, 0);
}

__device__ __forceinline__ void buffer_store_2(BufferResource buffer, int offset, uint16_t value) {
    __builtin_amdgcn_raw_buffer_store_b16(value, buffer, offset, 0, 0);
}
