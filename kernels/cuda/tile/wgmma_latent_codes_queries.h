// SPDX-License-Identifier: MIT
// How a piece's queries come to shared memory for coded tokens (tile/wgmma_latent_codes.h): as fp16, over a power of two.
#pragma once

#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "tile/wgmma_coded_queries.h"
#include "tile/wgmma_latent_codes_shape.h"

/// A multiplying warp's share; `parity` is that of the phase in which they are full.
template <class Shape>
__device__ __forceinline__ void bring_queries(
    const LatentMemory<Shape>& memory, const LatentCodesArguments& a, int request, int parity) {
    mbarrier_wait(memory.query_empty(0), parity ^ 1);
    const int request_rows = a.seqlen_q * a.heads, first_row = static_cast<int>(blockIdx.x) % a.row_tiles * Shape::kRows;
    const size_t row = static_cast<size_t>(request) * request_rows + first_row;
    load_coded_queries<Shape, Shape::kConsumerThreads, true, 4>(
        memory, a.q + row * (CodedRow::kWidth * 2), min(Shape::kRows, request_rows - first_row), a.code_scale);
    __syncwarp();
    if (recomputed_thread() % 32 == 0) mbarrier_arrive(memory.query_full(0));
}
