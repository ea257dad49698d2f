// SPDX-License-Identifier: MIT
// What RadeonFlow's mixture of experts names of Composable Kernel: vectors of fp16. Its buffer accesses stand in a product that is
// compiled and not launched.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

namespace ck {

typedef _Float16 half_t;
typedef half_t half2_t __attribute__((ext_vector_type(2)));
typedef half_t half4_t __attribute__((ext_vector_type(4)));
typedef half_t half8_t __attribute__((ext_vector_type(8)));
typedef int int32x4_t __attribute__((ext_vector_type(4)));

template <class T>
struct scalar_type;
enum class AmdBufferCoherenceEnum { DefaultCoherence };
template <class T, int N, AmdBufferCoherenceEnum>
__device__ int amd_buffer_load_impl(int32x4_t, int, int);

}  // namespace ck
