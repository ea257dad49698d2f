// SPDX-License-Identifier: MIT
// Scales of a block-scaled product on their way while the wave multiplies.
#pragma once

#include "tile/block_scaled_gemm.h"

/// a_scale * b_scale of the rows of c that this lane holds, like WaveScales, in fewer registers and by vector loads alone.
template <class Shape>
class BufferedScales {
    const int offset_;       // of this lane's first row in a column of a_scale, bytes from the tile's first row on
    const int first_n_;      // of the wave in the tile
    const float* b_scale_;   // of the wave's columns
    int first_row_, bytes_;  // of the tile in a column of a_scale; rows beyond the end read as zero
    float a_[Shape::kTilesM];
    float b_;

public:
    __device__ __forceinline__ BufferedScales(const BlockScaledGemm& problem, const WaveTile<Shape>& wave)
        : offset_(wave.row(0) * static_cast<int>(sizeof(float))), first_n_(wave.first_n), b_scale_(problem.b_scale) {}

    /// From now on load those of the tile at `first_row`, `first_column`. Columns beyond the end take the last ones' scales.
    __device__ __forceinline__ void turn_to(const BlockScaledGemm& problem, int first_row, int first_column) {
        first_row_ = first_row;
        bytes_ = rows_there(first_row, problem.m, Shape::kM) * static_cast<int>(sizeof(float));
        const int column = first_column + first_n_ < problem.n ? first_column + first_n_ : problem.n - 1;
        b_scale_ = problem.b_scale + static_cast<size_t>(column / kBlockK) * static_cast<size_t>(problem.b_scale_row);
    }

    __device__ __forceinline__ void load(const BlockScaledGemm& problem, int block) {
        const float* values = problem.a_scale + static_cast<size_t>(block) * static_cast<size_t>(problem.m);
        const BufferResource column = make_buffer(values + first_row_, bytes_);
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile)
            a_[tile] = buffer_load_float(column, offset_ + column_row(tile, 0) * static_cast<int>(sizeof(float)));
        // Not a scalar load: while one of those is on its way, LDS cannot be waited for in order.
        const float* of_block = b_scale_ + static_cast<size_t>(block) * static_cast<size_t>(problem.b_scale_k);
        b_ = buffer_load_float(make_buffer(of_block, sizeof(float)), 0);
    }

    __device__ __forceinline__ void products(float (&scale)[Shape::kTilesM]) const {
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile) scale[tile] = a_[tile] * b_;
    }
};
