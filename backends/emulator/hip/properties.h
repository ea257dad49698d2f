// SPDX-License-Identifier: MIT
// The emulated device: figures of the AMD Instinct MI300X. Sources: AMD's MI300X data sheet, the CDNA3 ISA guide and
// LLVM's AMDGPU usage page (limits of a compute unit); what no document says is what its role asks for.
#pragma once

#include <cstddef>

namespace emu::mi300x {

constexpr const char* kName = "AMD Instinct MI300X (emulated)";
constexpr const char* kTarget = "gfx942:sramecc+:xnack-";
constexpr int kUnits = 304, kDies = 8;
constexpr int kWave = 64;
constexpr int kSimds = 4, kWavesPerSimd = 8, kGroupsPerUnit = 16;  // groups: of more than one wave
constexpr int kThreadsPerUnit = kSimds * kWavesPerSimd * kWave;
constexpr int kThreadsPerBlock = 1024;
constexpr int kLdsBytes = 64 * 1024, kLdsGranule = 512;
constexpr int kVectorRegisters = 512, kVectorGranule = 8;  // per lane and SIMD, both files together
constexpr int kScalarLimit = 100;                          // more cost the eighth wave
constexpr int kRegistersPerBlock = 65536;
constexpr int kClockKilohertz = 2'100'000, kMemoryClockKilohertz = 1'300'000, kWallClockKilohertz = 100'000;
constexpr int kMemoryBusBits = 8192;
constexpr int kL2Bytes = 4 << 20;  // of one die
constexpr int kMajor = 9, kMinor = 4;
constexpr int kPciChip = 0x74a1;
constexpr int kGridX = 2147483647, kGridYZ = 65535;

}  // namespace emu::mi300x
