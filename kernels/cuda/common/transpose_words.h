// SPDX-License-Identifier: MIT
// A 4 x 4 transposition of bytes in registers.
#pragma once

#include <cstdint>

#include "ptx/convert.h"

/// Word j of the result holds byte j of the four words.
__device__ __forceinline__ void transpose_words(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    const uint32_t low_ab = permute_bytes<0x5140>(a, b), high_ab = permute_bytes<0x7362>(a, b);
    const uint32_t low_cd = permute_bytes<0x5140>(c, d), high_cd = permute_bytes<0x7362>(c, d);
    a = permute_bytes<0x5410>(low_ab, low_cd);
    b = permute_bytes<0x7632>(low_ab, low_cd);
    c = permute_bytes<0x5410>(high_ab, high_cd);
    d = permute_bytes<0x7632>(high_ab, high_cd);
}
