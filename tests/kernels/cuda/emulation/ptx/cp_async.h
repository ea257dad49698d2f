// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"
#include "ptx/ldst.h"

inline void cp_async_16(uint32_t shared, const void* global, bool valid) {
    emulation::copy({shared, global, valid ? 16 : 0, 16});
}
inline void cp_async_4(uint32_t shared, const void* global, bool valid) {
    emulation::copy({shared, global, valid ? 4 : 0, 4});
}
inline void cp_async_commit() { emulation::commit(); }
template <int kPending>
void cp_async_wait() {
    emulation::wait(kPending);
}
