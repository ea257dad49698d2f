// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void bulk_load(uint32_t shared, const void* global, int bytes, uint32_t barrier) {
    if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0) emulation::fail("a bulk copy of odd bytes");
    emulation::deliver(emulation::this_block(), {barrier, [=](emulation::Block& block) {
        std::memcpy(emulation::shared_at(block, shared, bytes, 16), global, bytes);
        emulation::extension(block).barrier(barrier).land(bytes);
    }});
}
