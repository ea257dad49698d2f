// SPDX-License-Identifier: MIT
#pragma once
enum KernelStatus : int { kOk = 0, kUnsupportedShape = -1, kWorkspaceTooSmall = -2 };
