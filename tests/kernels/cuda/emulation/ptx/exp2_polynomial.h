// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstring>

struct Exp2Polynomial {
    float operator()(float x) const {
        const float bounded = x < -126.0f ? -126.0f : x, whole = std::nearbyint(bounded), rest = bounded - whole;
        const float cubic = ((0.0551716689f * rest + 0.2426111222f) * rest + 0.6932609855f) * rest + 0.9999280735f;
        return std::ldexp(cubic, static_cast<int>(whole));
    }
};
