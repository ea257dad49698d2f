// SPDX-License-Identifier: MIT
// What an entry point returns besides 0 (success) and the vendor's own positive error codes.
#pragma once

enum KernelStatus : int {
    kOk = 0,
    kUnsupportedShape = -1,   // this kernel does not implement the shape or dtype it was given; nothing was launched
    kWorkspaceTooSmall = -2,  // workspace_bytes is less than this kernel needs; nothing was launched
};
