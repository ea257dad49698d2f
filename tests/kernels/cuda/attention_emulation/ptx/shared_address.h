// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/shared_address.h.
#pragma once

inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - emulated::shared_bytes);
}
inline uint8_t* dynamic_shared() { return emulated::shared_bytes; }
