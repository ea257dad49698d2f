// SPDX-License-Identifier: MIT
// Host side: tensor maps, which tell the tensor memory accelerator of a tensor and of the boxes to move (ptx/tma.h): of matrices,
// of attention's heads, and of packed sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>

// Host side: tensor maps, which tell the tensor memory accelerator of a matrix and of the boxes to move (ptx/tma.h).
//
// The driver encodes them. Its function is looked up through the runtime, so nothing links against the driver's library.
// A map is 128 bytes, made per call in well under a microsecond, and passed to the kernel by value as __grid_constant__.

using TensorMap = CUtensorMap;

/// A row-major matrix. Its start is a multiple of 16 bytes, and so is its row pitch unless it has one row.
struct Matrix {
    const void* start;
    int rows, columns;
    int element_bytes;  // 1 (fp8) or 2 (bf16)
};

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// Look up the driver's function. Returns 0 or an error code of the runtime.
inline int find_encoder(EncodeTiled* encode) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess) return static_cast<int>(error);
    if (found != cudaDriverEntryPointSuccess) return static_cast<int>(cudaErrorSymbolNotFound);
    *encode = reinterpret_cast<EncodeTiled>(function);
    return 0;
}

/// Encode boxes of box_rows x box_columns elements of `matrix`. Rows of a box are 32, 64 or 128 bytes long in shared memory, one
/// after the other, and their 16-byte chunks are swizzled as Swizzle<2>, <4> and <8> (common/swizzle.h) say. What L2 lacks it
/// fetches in `fetched` bytes, 128 or 256. Returns 0 or an error code of the runtime or the driver.
inline int encode_tensor_map(TensorMap* map, const Matrix& matrix, int box_rows, int box_columns, int fetched = 256) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const int box_bytes = box_columns * matrix.element_bytes;
    const CUtensorMapSwizzle swizzle = box_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                         : CU_TENSOR_MAP_SWIZZLE_32B;
    const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)};
    const cuuint64_t pitch[1] = {static_cast<cuuint64_t>(matrix.columns) * matrix.element_bytes};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t steps[2] = {1, 1};
    return static_cast<int>(encode(
        map, matrix.element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        const_cast<void*>(matrix.start), sizes, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        fetched == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

/// The same of 16-bit elements for boxes of box_rows rows and `panels` neighbouring panels of 64 columns: in shared memory
/// [panels][box_rows] rows of 128 bytes, as so many boxes of 64 columns one after the other. Coordinates: {0, row, panel}.
inline int encode_panel_map(TensorMap* map, const Matrix& matrix, int box_rows, int panels, int fetched = 256) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const cuuint64_t pitch = static_cast<cuuint64_t>(matrix.columns) * 2;
    const cuuint64_t sizes[3] = {
        64, static_cast<cuuint64_t>(matrix.rows), static_cast<cuuint64_t>(matrix.columns / 64)};
    const cuuint64_t pitches[2] = {pitch, 128};
    const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(panels)};
    const cuuint32_t steps[3] = {1, 1, 1};
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(matrix.start), sizes, pitches, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        fetched == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

// Host side: tensor maps of attention's operands, whose boxes hold consecutive positions of one head.

/// A contiguous tensor [batch, positions, heads, head_dim] of 16-bit elements that starts at a multiple of 16 bytes.
/// head_dim is a multiple of 64, or 32. Bytes go in pairs, as half as many elements.
struct HeadTensor {
    const void* start;
    int batch, positions, heads, head_dim;
};

/// Encode boxes of `box` positions of one head. In shared memory a box is [head_dim / 64][box] rows of 128 bytes in the
/// 128-byte swizzle; with head_dim 32 it is [box] rows of 64 bytes in the 64-byte swizzle. Coordinates: {0, position, 0, head,
/// batch}; positions past the end read as zero, also where another batch follows. With `panels` a box has only so many panels
/// of 64 columns, and the third coordinate is the first of them. With `columns` 32 rows have so many in place of 64, whatever
/// head_dim is. Returns 0 or an error code of the runtime or the driver.
inline int encode_head_tensor_map(TensorMap* map, const HeadTensor& tensor, int box, int panels = 0, int columns = 64) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const auto dim = static_cast<cuuint64_t>(tensor.head_dim), heads = static_cast<cuuint64_t>(tensor.heads);
    const auto positions = static_cast<cuuint64_t>(tensor.positions);
    const cuuint64_t row = std::min(dim, static_cast<cuuint64_t>(columns));
    const cuuint64_t sizes[5] = {row, positions, dim / row, heads, static_cast<cuuint64_t>(tensor.batch)};
    const cuuint64_t pitch[4] = {heads * dim * 2, row * 2, dim * 2, positions * heads * dim * 2};
    const cuuint32_t boxes[5] = {
        static_cast<cuuint32_t>(row), static_cast<cuuint32_t>(box),
        panels == 0 ? static_cast<cuuint32_t>(dim / row) : static_cast<cuuint32_t>(panels), 1, 1};
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, const_cast<void*>(tensor.start), sizes, pitch, boxes, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, row == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

// Host side: tensor maps of packed sequences, whose boxes end where a sequence ends.

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
/// fail on it where no memory is mapped behind the tensor. With `panels` a box has only so many panels of 64 columns, and the
/// fourth coordinate is the first of them. Returns 0 or an error code of the runtime or the driver.
inline int encode_sequence_tensor_map(
    TensorMap* map, const SequenceTensor& tensor, int box, int box_heads, int panels = 0) {
    EncodeTiled encode = nullptr;
    const int error = find_encoder(&encode);
    if (error != 0) return error;
    const auto dim = static_cast<cuuint64_t>(tensor.head_dim), heads = static_cast<cuuint64_t>(tensor.heads);
    const auto positions = static_cast<cuuint64_t>(tensor.positions);
    const cuuint64_t pitch_of_position = heads * dim * 2;
    const cuuint64_t sizes[5] = {64, heads, positions, dim / 64, positions + 1};
    const cuuint64_t pitch[4] = {dim * 2, pitch_of_position, 128, pitch_of_position};
    const cuuint32_t boxes[5] = {
        64, static_cast<cuuint32_t>(box_heads), static_cast<cuuint32_t>(box),
        panels == 0 ? static_cast<cuuint32_t>(dim / 64) : static_cast<cuuint32_t>(panels), 1};
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    auto* const origin =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(tensor.start) - positions * pitch_of_position);
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, origin, sizes, pitch, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
