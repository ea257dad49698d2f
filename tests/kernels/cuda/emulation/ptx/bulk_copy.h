// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    if (shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0 || bytes == 0)
        emulation::fail("a bulk copy's addresses and size are multiples of 16");
    emulation::deliver(emulation::this_block(), {barrier, [=](emulation::Block& at) {
        for (uint32_t i = 0; i < bytes; i += 16)
            emulation::perform(at, {shared + i, static_cast<const char*>(global) + i, 16, 16});
        emulation::extension(at).barrier(barrier).land(bytes);
    }});
}
