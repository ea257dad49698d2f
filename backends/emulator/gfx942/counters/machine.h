// SPDX-License-Identifier: MIT
// The MI300X that times are modelled for. docs/emulator_model.md says where each number comes from, which are assumptions and
// which were fitted to what.
#pragma once

#include <string>
#include <string_view>

#include "../types.h"

namespace emu::counters::machine {

constexpr double kClock = 2.1e9;  // Hz, peak engine clock
constexpr u32 kUnits = 304, kDies = 8, kSimds = 4;
constexpr u32 kWavesPerSimd = 8, kVectorRegisters = 512, kVectorGranule = 8, kScalarLimit = 100;
constexpr u32 kLdsBytes = 64 * 1024, kLdsGranule = 512, kGroupsPerUnit = 16;
constexpr u32 kL2CacheBytes = 4 << 20, kMallCacheBytes = 256 << 20;  // of a die, of the chip
constexpr double kL1Bytes = 64;                                      // L1 to registers, a CU, a cycle
constexpr double kL2UnitBytes = 64;                                  // L2 to one CU, a cycle
constexpr u32 kInstructionLine = 64, kInstructionBytes = 64 * 1024;  // a cache of that size for two CUs

/// Numbers that are assumed, fitted or of others' measurements, so that it can be tried how much they matter.
struct Numbers {
    double l2_bytes = 8095;        // L2 to CUs, all dies, a cycle of the engine clock: 17 TB/s at 2.1 GHz
    double mall_read = 7.3e12;     // Infinity Cache to the dies, bytes a second
    double mall_write = 3.1e12;    // and back: fitted to every second of RadeonFlow's transposes
    double hbm = 4.3e12;           // reached by copies, of 5.3e12
    double units_for_memory = 67;  // busy compute units that can use all of these three rates
    double launch = 1.5e-6;        // seconds: a launch that does nothing, behind another one
    // Latencies. Cycles of the engine clock, but for what lies on other dies: seconds.
    double lds_latency = 64, scalar_latency = 64, l1_latency = 120, l2_latency = 254;
    double mall_latency = 240e-9, hbm_latency = 380e-9;
    double branch_taken = 16;
    double backlog = 64;  // cycles of address or LDS work that wait in a queue before a wave cannot issue
};
const Numbers& numbers();

/// While it lives, some numbers are others: "hbm=4e12 launch=2e-6". Throws std::invalid_argument.
class Changed {
public:
    explicit Changed(const std::string& changes);
    ~Changed();
    Changed(const Changed&) = delete;
    Changed& operator=(const Changed&) = delete;

private:
    Numbers before_;
};

/// Matrix instructions draw so much power that the clock falls. AMD measured large products (max achievable FLOPs, part 2):
/// the clock they ran at, and from their rate the part of the cycles in which they multiplied. i8 is taken to be like fp8.
struct Sustained {
    double clock, use;  // Hz; 0: no figure is known
};
constexpr Sustained sustained(std::string_view type) {
    if (type == "fp8" || type == "i8") return {1.230e9, 0.831};
    if (type == "bf16") return {1.207e9, 0.942};
    if (type == "f16") return {1.115e9, 0.942};
    return {0, 0};
}
constexpr double peak_flops(std::string_view type) { return type == "fp8" || type == "i8" ? 2614.9e12 : 1307.4e12; }

/// By how much modelled times differ from published ones of the same sources, as a fraction either way that nine in ten keep
/// (docs/emulator_model.md): of kernels that only move data, of products that fill the chip, of products that leave units idle.
constexpr double kBandMoves = 0.25, kBandProducts = 0.6, kBandIdle = 1.0;

}  // namespace emu::counters::machine
