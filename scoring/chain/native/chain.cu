// SPDX-License-Identifier: MIT
//!KERNEL summary the commit chain's seal, mix, commit, and its doorbells
//!KERNEL arch sm_89 sm_90a
#include <cuda_runtime.h>
#define CHAIN_QUEUE cudaStream_t
#define CHAIN_ERROR cudaGetLastError
#define CHAIN_REGISTER(host, nbytes) cudaHostRegister(host, nbytes, cudaHostRegisterMapped)
#define CHAIN_UNREGISTER cudaHostUnregister
#define CHAIN_DEVICE_POINTER cudaHostGetDevicePointer
#include "chain_entry.h"
