// SPDX-License-Identifier: MIT
// Transcendental instructions: about one unit in the last place, denormal results flushed to zero.
#pragma once

#include "isa/types.h"

/// 2^x; 0 for -inf.
__device__ __forceinline__ float exp2_approx(float x) { return __builtin_amdgcn_exp2f(x); }

/// Cosine and sine of `turns` whole turns, |turns| up to 256; off by about 2^-21.
__device__ __forceinline__ float cos_of_turns(float turns) { return __builtin_amdgcn_cosf(turns); }
__device__ __forceinline__ float sin_of_turns(float turns) { return __builtin_amdgcn_sinf(turns); }
