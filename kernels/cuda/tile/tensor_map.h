// SPDX-License-Identifier: MIT
// Host side: tensor maps, which tell the tensor memory accelerator of a matrix and of the boxes to move (ptx/tma.h).
//
// The driver encodes them. Its function is looked up through the runtime, so nothing links against the driver's library.
// A map is 128 bytes, made per call in well under a microsecond, and passed to the kernel by value as __grid_constant__.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

using TensorMap = CUtensorMap;

/// A row-major matrix. Its start is a multiple of 16 bytes, and so is its row pitch unless it has one row.
struct Matrix {
    const void* start;
    int rows, columns;
    int element_bytes;   // 1 (fp8) or 2 (bf16)
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
/// after the other, and their 16-byte chunks are swizzled as Swizzle<2>, <4> and <8> (tile/swizzle.h) say. What L2 lacks it
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
    const cuuint64_t sizes[3] = {64, static_cast<cuuint64_t>(matrix.rows), static_cast<cuuint64_t>(matrix.columns / 64)};
    const cuuint64_t pitches[2] = {pitch, 128};
    const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(panels)};
    const cuuint32_t steps[3] = {1, 1, 1};
    return static_cast<int>(encode(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(matrix.start), sizes, pitches, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        fetched == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
