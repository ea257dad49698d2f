// SPDX-License-Identifier: MIT
// Graphs: work that is written down, by hand or by capturing queues, and done when the graph is launched.
#pragma once

#include <functional>

#include "hip/api.h"

namespace emu {

using Work = std::function<hipError_t()>;

bool is_captured(hipStream_t queue);

/// True if `queue` is being captured: `work` is then a node of the graph, and not to be done now.
bool captured(hipStream_t queue, hipGraphNodeType type, Work work);

/// If `queue` is being captured, `event` stands for what it has so far, and true is returned; otherwise it stands for nothing.
bool capture_event(hipStream_t queue, hipEvent_t event);

/// If `event` stands for captured work, `queue` is captured from now on, too, behind that work; true is returned.
bool capture_wait(hipStream_t queue, hipEvent_t event);

/// A launch with a copy of its arguments. Throws ApiError for one that cannot be.
Work prepare(const hipKernelNodeParams& launch);

}  // namespace emu
