// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/cp_async.h. Copies land when they are waited for, or at once: both are allowed.
#pragma once

#include "ptx/shared_address.h"

inline void cp_async_16(uint32_t shared, const void* global, bool valid) {
    if (valid && reinterpret_cast<uintptr_t>(global) % 16 != 0) emulated::fail("misaligned cp.async source", shared);
    const emulated::Copy copy = {shared, global, valid};
    if (!emulated::options.late_copies) emulated::land(copy);
    emulated::current->open.push_back(copy);
}
inline void cp_async_commit() {
    emulated::current->groups.push_back(std::move(emulated::current->open));
    emulated::current->open.clear();
}
template <int kPending>
void cp_async_wait() {
    auto& groups = emulated::current->groups;
    while (static_cast<int>(groups.size()) > kPending) {
        if (emulated::options.late_copies) {
            for (const emulated::Copy& copy : groups.front()) emulated::land(copy);
        }
        groups.erase(groups.begin());
    }
}
