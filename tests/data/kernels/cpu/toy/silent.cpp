// SPDX-License-Identifier: MIT
//!KERNEL summary exports another symbol
#include "kernel.h"

extern "C" int silent() { return 0; }
