// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

/// Blocks run one cluster after the other, so that an ordinary addition does.
inline unsigned fetch_add(unsigned* number, unsigned value) {
    ::emulation::touch_global();
    const unsigned before = *number;
    *number += value;
    return before;
}
