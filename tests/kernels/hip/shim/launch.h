// SPDX-License-Identifier: MIT
// Stands in for kernels/common/launch.h: a launch runs the kernel to its end on the host.
#pragma once

#include <hip/hip_runtime.h>

#define LAUNCH(kernel, grid, block, shared_bytes, queue) \
    (static_cast<void>(queue), simt::launch(kernel, (grid), (block), (shared_bytes)))
#define LAUNCH_STATUS() simt::take_error()

#include "status.h"
