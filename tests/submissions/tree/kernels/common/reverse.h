// SPDX-License-Identifier: MIT
// Index from the end: i ↦ n − 1 − i. (Not ASCII, so that the packer has something to do.)
#ifndef REVERSE_H
#define REVERSE_H
#include "status.h"

#if defined(__HIP__) || defined(__CUDACC__)
__host__ __device__
#endif
constexpr int reverse_index(int i, int n) { return n - 1 - i; }

#endif  // REVERSE_H
