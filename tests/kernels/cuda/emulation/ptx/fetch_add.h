// SPDX-License-Identifier: MIT
#pragma once

/// Blocks run one cluster after the other, so that an ordinary addition does.
inline unsigned fetch_add(unsigned* number, unsigned value) {
    const unsigned before = *number;
    *number += value;
    return before;
}
