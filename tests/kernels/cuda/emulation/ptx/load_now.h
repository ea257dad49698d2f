// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline float4 load_now(const float4* from) { return *from; }
inline float load_now(const float* from) { return *from; }
