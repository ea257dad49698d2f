// SPDX-License-Identifier: MIT
#pragma once

inline void grid_dependency_wait() {}
inline void grid_dependency_release() {}
