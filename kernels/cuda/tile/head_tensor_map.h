// SPDX-License-Identifier: MIT
// Host side: tensor maps of attention's operands, whose boxes hold consecutive positions of one head.
#pragma once

#include "tile/tensor_map.h"

/// A contiguous tensor [batch, positions, heads, head_dim] of 16-bit elements that starts at a multiple of 16 bytes.
/// head_dim is a multiple of 64, or 32. Bytes go in pairs, as half as many elements.
struct HeadTensor {
    const void* start;
    int batch, positions, heads, head_dim;
};

/// Encode boxes of `box` positions of one head. In shared memory a box is [head_dim / 64][box] rows of 128 bytes in the
/// 128-byte swizzle; with head_dim 32 it is [box] rows of 64 bytes in the 64-byte swizzle. Coordinates: {0, position, 0, head, batch}; positions past the end read as zero, also where another
/// batch follows. Returns 0 or an error code of the runtime or the driver.
inline int encode_head_tensor_map(TensorMap* map, const HeadTensor& tensor, int box) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const auto dim = static_cast<cuuint64_t>(tensor.head_dim), heads = static_cast<cuuint64_t>(tensor.heads);
    const auto positions = static_cast<cuuint64_t>(tensor.positions);
    const cuuint64_t row = dim < 64 ? dim : 64;
    const cuuint64_t sizes[5] = {row, positions, dim / row, heads, static_cast<cuuint64_t>(tensor.batch)};
    const cuuint64_t pitch[4] = {heads * dim * 2, 128, dim * 2, positions * heads * dim * 2};
    const cuuint32_t boxes[5] = {
        static_cast<cuuint32_t>(row), static_cast<cuuint32_t>(box), static_cast<cuuint32_t>(dim / row), 1, 1};
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, const_cast<void*>(tensor.start), sizes, pitch, boxes, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, row == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
