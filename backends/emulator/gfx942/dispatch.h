// SPDX-License-Identifier: MIT
// What the HIP API needs of the device: modules in, launches done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "wave.h"

namespace emu {

struct Module;
struct Kernel;

/// How many devices there are. They share code and its variables.
int device_count();

/// Loads and places a code object (a raw ELF for gfx942). Throws loader::LoadError.
Module* load_module(const void* bytes, size_t size);
/// At this address, or not at all: throws std::runtime_error if there is something already.
Module* load_module(const void* bytes, size_t size, uint64_t address);
void unload_module(Module*);

/// By its name in the source (mangled), without ".kd". Null if there is none.
const Kernel* find_kernel(const Module*, std::string_view name);

/// A device variable: its address and size in bytes.
std::optional<std::pair<void*, size_t>> find_global(const Module*, std::string_view name);

const loader::KernelInfo& info(const Kernel&);

struct LaunchResult {
    bool ok = true;
    int hip_error = 0;  // hipError_t
    std::string message;
};

/// Runs the kernel to its end. `grid` counts workgroups; `kernarg` are the explicit arguments as the metadata lays them out,
/// the hidden ones are added here. Findings and counters are kept for control.h.
LaunchResult launch(
    const Kernel&, Dim grid, Dim block, uint32_t dynamic_lds, const uint8_t* kernarg, size_t kernarg_size);

/// A fill (`from` is null) or copy within the device: with counters on it is counted as a launch is.
void moved(const char* call, const void* from, const void* to, size_t bytes);

}  // namespace emu
