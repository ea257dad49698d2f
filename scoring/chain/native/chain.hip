// SPDX-License-Identifier: MIT
//!KERNEL summary the commit chain's seal, mix and commit
//!KERNEL arch gfx942
#include <hip/hip_runtime.h>
#define CHAIN_QUEUE hipStream_t
#define CHAIN_ERROR hipGetLastError
#include "chain_entry.h"
