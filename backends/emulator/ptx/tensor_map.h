// SPDX-License-Identifier: MIT
// Tensor maps: what the tensor memory accelerator is told of a tensor and of the boxes to move. NVIDIA's 128 bytes are opaque;
// these are our own. Source of the rules: CUDA Driver API, cuTensorMapEncodeTiled; PTX ISA 9.0, section 5.5.
#pragma once

#include <string>

#include "types.h"

namespace emu::ptx {

struct TensorMap {
    char magic[8];
    u64 base;
    u8 element_bytes, rank, swizzle, fill_nan;  // swizzle: bytes of the pattern's rows, 0 (none), 32, 64 or 128
    u32 dims[5];
    u16 box[5];
    u16 type;        // CUtensorMapDataType
    u64 strides[4];  // bytes, of dimensions 1 to 4
    u64 pad[5];
};
static_assert(sizeof(TensorMap) == 128);

constexpr char kTensorMapMagic[8] = {'w', 'a', 'r', 'p', 'w', 'a', 'v', 'e'};

/// An address of shared memory after the swizzle of rows of `row_bytes`.
inline u32 swizzled(u32 address, u32 row_bytes) {
    switch (row_bytes) {
        case 128: return address ^ ((address >> 7 & 7) << 4);
        case 64: return address ^ ((address >> 7 & 3) << 4);
        case 32: return address ^ ((address >> 7 & 1) << 4);
        default: return address;
    }
}

/// As cuTensorMapEncodeTiled takes them. Returns why the arguments are refused, "" if they are not.
std::string encode_tiled(
    TensorMap& map, int type, u32 rank, const void* base, const u64* dims, const u64* strides, const u32* box,
    const u32* steps, int interleave, int swizzle, int fill);

}  // namespace emu::ptx
