// SPDX-License-Identifier: MIT
// What functions of the CUDA runtime take, with the layouts of NVIDIA's headers, none of which is needed to build.
// Source: CUDA Runtime API 13.0, modules "Execution Control", "Memory Management".
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/control.h"

#define API EXPORTED

#ifndef WARPWAVE_CUDA_MAJOR
#define WARPWAVE_CUDA_MAJOR 13
#endif

namespace emu::cuda {

struct Dim3 {
    unsigned x, y, z;
};

struct LaunchAttribute {
    int id;
    char pad[4];
    unsigned value[16];
};
constexpr int kAttributeClusterDimension = 4, kAttributeProgrammaticStream = 6;

struct LaunchConfig {
    Dim3 grid, block;
    size_t dynamic_shared;
    void* stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};

}  // namespace emu::cuda
