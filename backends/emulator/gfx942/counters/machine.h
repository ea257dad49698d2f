// SPDX-License-Identifier: MIT
// The MI300X that times are modelled for. docs/emulator_model.md says where each number comes from and which are assumptions.
#pragma once

#include <string_view>

#include "../types.h"

namespace emu::counters::machine {

constexpr double kClock = 2.1e9;                // Hz, peak engine clock
constexpr u32 kUnits = 304, kDies = 8, kSimds = 4;
constexpr u32 kWavesPerSimd = 8, kVectorRegisters = 512, kVectorGranule = 8, kScalarLimit = 100;
constexpr u32 kLdsBytes = 64 * 1024, kLdsGranule = 512, kGroupsPerUnit = 16;

// Bytes a cycle.
constexpr double kL1Bytes = 64;                 // L1 to registers, a CU
constexpr double kL2Bytes = 2048;               // L2 to its CUs, a die: 16 channels of 128
constexpr double kL2UnitBytes = 64;             // L2 to one CU

// Bytes a second.
constexpr double kMallRate = 17.2e12;           // peak of the Infinity Cache
constexpr double kHbmRate = 4.3e12;             // reached by copies, of 5.3e12

// Cycles, at kClock.
constexpr u32 kLdsLatency = 64, kL1Latency = 120, kL2Latency = 300, kMallLatency = 500, kHbmLatency = 800;
constexpr u32 kScalarLatency = 64;              // of the scalar cache
constexpr u32 kBranchTaken = 16;

/// A launch that does nothing, from the end of the one before it to its own.
constexpr double kLaunchSeconds = 4e-6;

/// Matrix instructions draw so much power that the clock falls. What is known of it: the FLOP/s that matrix products of a type
/// sustain ("max achievable FLOPs") and the part of its cycles that such a product multiplies in, at a clock so low that power
/// does not matter. Their quotient is the clock under that load; i8 is taken to be like fp8. 0: no figure is known.
constexpr double kProductUse = 0.72;
struct Sustained {
    double flops, peak;             // a second
};
constexpr Sustained sustained(std::string_view type) {
    if (type == "fp8" || type == "i8") return {1273e12, 2614.9e12};
    if (type == "bf16") return {708e12, 1307.4e12};
    if (type == "f16") return {654e12, 1307.4e12};
    return {0, 0};
}

}  // namespace emu::counters::machine
