// SPDX-License-Identifier: MIT
// Register-sized vector types: what one lane holds of an operand. Generic vector extensions, so that any C++ compiler
// that has them can read the kernels; may_alias, because LDS bytes are read as any of them.
#pragma once

#include <stdint.h>

typedef float f32x4 __attribute__((vector_size(16), may_alias));     // four accumulator registers
typedef uint32_t u32x2 __attribute__((vector_size(8), may_alias));   // 64 bits of packed fp8, bf16 or fp16
typedef uint32_t u32x4 __attribute__((vector_size(16), may_alias));  // 128 bits: the widest load and store
