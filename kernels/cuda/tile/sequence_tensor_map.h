// SPDX-License-Identifier: MIT
// Host side: tensor maps of packed sequences, whose boxes end where a sequence ends.
#pragma once

#include "tile/tensor_map.h"

/// A contiguous tensor [positions, heads, head_dim] of 16-bit elements, of any number of sequences one behind the other.
struct SequenceTensor {
    const void* start;
    int positions, heads, head_dim;
};

/// Encode boxes of `box` positions of `box_heads` heads, which in shared memory are [head_dim / 64][box][box_heads] rows of 128
/// bytes in the 128-byte swizzle. For position i of a sequence that ends before position `end` of the tensor and has `length`
/// of them the coordinates are {0, head, positions - length + i, 0, end}: the map has two dimensions of the same pitch for
/// positions, of which the first ends for i >= length, and starts `positions` positions before the tensor to make up for both.
/// So a box reads zeros behind its own sequence, whatever lies there. (The idea of two dimensions that add up is Triton's, for
/// ragged tensors.) A box must begin within its sequence: one that lies wholly behind it reads zeros, too, but an H200 was seen to
/// fail on it where no memory is mapped behind the tensor. Returns 0 or an error code of the runtime or the driver.
inline int encode_sequence_tensor_map(TensorMap* map, const SequenceTensor& tensor, int box, int box_heads) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const auto dim = static_cast<cuuint64_t>(tensor.head_dim), heads = static_cast<cuuint64_t>(tensor.heads);
    const auto positions = static_cast<cuuint64_t>(tensor.positions);
    const cuuint64_t pitch_of_position = heads * dim * 2;
    const cuuint64_t sizes[5] = {64, heads, positions, dim / 64, positions + 1};
    const cuuint64_t pitch[4] = {dim * 2, pitch_of_position, 128, pitch_of_position};
    const cuuint32_t boxes[5] = {
        64, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box), static_cast<cuuint32_t>(dim / 64), 1};
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    auto* const origin =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(tensor.start) - positions * pitch_of_position);
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, origin, sizes, pitch, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
