// SPDX-License-Identifier: MIT
#pragma once

inline int warp_uniform(int value) { return value; }
