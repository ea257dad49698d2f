// SPDX-License-Identifier: MIT
// A value that all lanes of a warp agree on, in a form that shows the compiler so: it can then live in uniform registers.
#pragma once

__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }
