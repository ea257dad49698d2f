// SPDX-License-Identifier: MIT
// Queues (hipStream_t) and events. Every operation is complete when its call returns, so a queue holds no work: it
// carries what was asked of it at creation and tells a handle that exists from one that does not.
#pragma once

#include "hip/api.h"

namespace emu {

// Throws ApiError(hipErrorInvalidHandle) unless `queue` is one of the three built-in ones or was created and not
// destroyed.
void require_queue(hipStream_t queue);

// Stamps `event` with the time now; nullptr is ignored. Throws ApiError(hipErrorInvalidHandle).
void record_event(hipEvent_t event);

}  // namespace emu
