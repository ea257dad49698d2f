// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

struct Exp2 {
    float operator()(float x) const {
        const float result = std::exp2(x);
        return std::fabs(result) < 0x1p-126f ? 0.0f : result;
    }
};
