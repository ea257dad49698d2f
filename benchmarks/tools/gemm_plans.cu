// SPDX-License-Identifier: MIT
//!KERNEL summary an FP8 GEMM with entry points that force a plan; WARPWAVE_KERNEL_FILE names it (race.py plans)
//!KERNEL arch sm_89 sm_90a
#include "gemm/plan_entries.h"
