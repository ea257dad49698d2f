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
inline unsigned long long fetch_add_wide(unsigned long long* number, unsigned long long value) {
    return std::exchange(*number, *number + value);
}
