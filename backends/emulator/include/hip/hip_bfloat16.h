// SPDX-License-Identifier: MIT
// The older header, whose type is hip_bfloat16. For compilers without ROCm's own.
#pragma once
#include <hip/hip_bf16.h>
