// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

inline float reciprocal_approximate(float x) { return 1.0f / x; }
inline float log2_approximate(float x) { return std::log2(x); }
