// SPDX-License-Identifier: MIT
// Stands in for kernels/common/launch.h: LAUNCH runs the grid on the CPU.
#pragma once

#define LAUNCH(kernel, grid, block, shared_bytes, queue) emulated::launch(kernel, grid, block, shared_bytes)
#define LAUNCH_STATUS() 0

#include "status.h"
