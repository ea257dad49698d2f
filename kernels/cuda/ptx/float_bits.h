// SPDX-License-Identifier: MIT
// Floats as their bits and back, without conversion. Those of numbers that are not negative are ordered as the numbers are.
#pragma once

__device__ __forceinline__ int float_bits(float x) { return __float_as_int(x); }
__device__ __forceinline__ float bits_float(int bits) { return __int_as_float(bits); }
