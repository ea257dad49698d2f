// SPDX-License-Identifier: MIT
//!KERNEL summary the commit chain's seal, mix and commit
//!KERNEL arch sm_89 sm_90a
#include <cuda_runtime.h>
#define CHAIN_QUEUE cudaStream_t
#define CHAIN_ERROR cudaGetLastError
#include "chain_entry.h"
