// SPDX-License-Identifier: MIT
// Overlap with the launches before and after (griddepcontrol, sm_90). Both do nothing in a plain launch.
//
// A kernel launched as dependent (common/launch_cluster.h) may start while its predecessor still runs; it must not touch
// global memory before grid_dependency_wait. The wait ends when the predecessor is complete and its writes are visible.
#pragma once

/// Wait for all work this launch depends on.
__device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;\n" ::: "memory"); }

/// Let dependent launches start once every block has said so or ended.
__device__ __forceinline__ void grid_dependency_release() {
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}
