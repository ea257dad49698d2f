// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

inline uint4 load_once(const void* global) { return *static_cast<const uint4*>(global); }
