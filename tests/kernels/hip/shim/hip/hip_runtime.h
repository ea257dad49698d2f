// SPDX-License-Identifier: MIT
// Stands in for the vendor's <hip/hip_runtime.h>, for C++ on the host: the language's keywords and coordinates.
#pragma once

#include "simt.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local

#define threadIdx (simt::machine().self->thread)
#define blockIdx (simt::machine().block_index)
#define blockDim (simt::machine().block_dim)
#define gridDim (simt::machine().grid_dim)

inline void __syncthreads() { simt::workgroup_barrier(); }

#include "intrinsics.h"
