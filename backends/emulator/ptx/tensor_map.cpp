// SPDX-License-Identifier: MIT
#include "tensor_map.h"

namespace emu::ptx {

std::string encode_tiled(
    TensorMap& map, int type, u32 rank, const void* base, const u64* dims, const u64* strides, const u32* box,
    const u32* steps, int interleave, int swizzle, int fill) {
    // UINT8, UINT16, UINT32, INT32, UINT64, INT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT32_FTZ, TFLOAT32, TFLOAT32_FTZ
    constexpr u8 kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    constexpr u8 kSwizzles[] = {0, 32, 64, 128};
    if (type < 0 || type > 12) return "a data type that the emulator does not know";
    if (rank < 1 || rank > 5) return "a rank that is not 1 to 5";
    if (interleave != 0) return "interleaved layouts, which the emulator has not";
    if (swizzle < 0 || swizzle > 3) return "a swizzle that the emulator has not";
    const u64 element = kBytes[type];
    const auto address = reinterpret_cast<u64>(base);
    if (address % 16) return "a tensor that does not start at a multiple of 16 bytes";
    map = {};
    std::memcpy(map.magic, kTensorMapMagic, sizeof map.magic);
    map.base = address;
    map.element_bytes = static_cast<u8>(element);
    map.rank = static_cast<u8>(rank);
    map.type = static_cast<u16>(type);
    map.swizzle = kSwizzles[swizzle];
    map.fill_nan = static_cast<u8>(fill);
    for (u32 i = 0; i < rank; ++i) {
        if (!dims[i] || dims[i] > (u64{1} << 32)) return "a dimension of 0 or more than 2^32 elements";
        if (!box[i] || box[i] > 256) return "a box of 0 or more than 256 elements along a dimension";
        if (steps && steps[i] != 1) return "element steps other than 1, which the emulator has not";
        map.dims[i] = static_cast<u32>(dims[i] - 1);  // less one, so that 2^32 fits
        map.box[i] = static_cast<u16>(box[i]);
        if (i && (strides[i - 1] % 16 || strides[i - 1] >= (u64{1} << 40)))
            return "a stride that is no multiple of 16 bytes, or 2^40 and more";
        if (i) map.strides[i - 1] = strides[i - 1];
    }
    const u64 row = box[0] * element;
    if (row % 16) return "a box whose rows are no multiple of 16 bytes";
    if (map.swizzle && row > map.swizzle) return "a box whose rows are longer than its swizzle's";
    return "";
}

}  // namespace emu::ptx
