// SPDX-License-Identifier: MIT
// What a program asks of the device, written down so that another process can do it again: launches, fills and copies in their
// order, the code objects they come from, and the device memory there was. Option `record`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wave.h"

namespace emu {
struct Kernel;
namespace counters {
class Footprint;
class Places;
}  // namespace counters

namespace recorded {

/// Whether anything is written down, and whether launches are in place of being run.
bool on();
bool instead();

void launch(const Kernel&, Dim grid, Dim block, u32 dynamic_lds, const uint8_t* kernarg, size_t kernarg_bytes);
/// Memory that a launch used though the device does not know it.
void used(const counters::Footprint&, const counters::Places&);
/// `count` elements of `width` bytes.
void fill(const void* to, uint64_t value, size_t width, size_t count);
void copy(const void* to, const void* from, size_t bytes);

}  // namespace recorded
}  // namespace emu
