// SPDX-License-Identifier: MIT
//!KERNEL summary the commit chain's seal, mix, commit, and its doorbells
//!KERNEL arch gfx942
#include <hip/hip_runtime.h>
#define CHAIN_QUEUE hipStream_t
#define CHAIN_ERROR hipGetLastError
#define CHAIN_REGISTER(host, nbytes) hipHostRegister(host, nbytes, hipHostRegisterMapped)
#define CHAIN_UNREGISTER hipHostUnregister
#define CHAIN_DEVICE_POINTER hipHostGetDevicePointer
#include "chain_entry.h"
