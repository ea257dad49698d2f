// SPDX-License-Identifier: MIT
// Occupancy: how many workgroups of a kernel one compute unit holds. The rules are those of backends/_occupancy.py.

#include <algorithm>

#include "core/scalars.h"
#include "hip/module.h"
#include "hip/properties.h"

using namespace emu;
using namespace emu::mi300x;

namespace {

hipError_t blocks_per_unit(const char* name, int* blocks, const void* function, int threads, size_t dynamic) {
    return api(name, [&] {
        require(blocks != nullptr && threads > 0);
        *blocks = resident_groups(function_of(function).info(), static_cast<size_t>(threads), dynamic);
        return hipSuccess;
    });
}

// The size of block that fills a compute unit best (the largest of equals), and the grid that fills the device.
hipError_t best_block(const char* name, int* grid, int* block, const void* function, size_t dynamic, int limit) {
    return api(name, [&] {
        require(grid != nullptr && block != nullptr && limit >= 0);
        const loader::KernelInfo& info = function_of(function).info();
        int most = static_cast<int>(info.max_threads);
        most = limit ? std::min(most, limit) : most;
        int best = 0, best_threads = 0, best_groups = 0;
        for (int threads = most; threads > 0; threads = (threads - 1) / kWave * kWave) {
            int groups = resident_groups(info, static_cast<size_t>(threads), dynamic);
            if (groups * threads > best_threads) {
                best = threads;
                best_groups = groups;
                best_threads = groups * threads;
            }
        }
        require(best > 0, hipErrorInvalidValue);  // the LDS alone is too much
        *block = best;
        *grid = best_groups * kUnits;
        return hipSuccess;
    });
}

}  // namespace

int emu::resident_groups(const loader::KernelInfo& info, size_t threads, size_t dynamic) {
    size_t lds = info.lds_bytes + dynamic;
    if (threads == 0 || threads > std::min<size_t>(info.max_threads, kThreadsPerBlock) || lds > kLdsBytes) return 0;
    size_t waves = (threads + kWave - 1) / kWave;
    size_t registers = round_up(std::max<size_t>(vector_registers(info), 1), kVectorGranule);
    size_t per_simd = std::min<size_t>(kVectorRegisters / registers, kWavesPerSimd - (info.sgprs > kScalarLimit));
    size_t groups = per_simd * kSimds / waves;
    if (waves > 1) groups = std::min<size_t>(groups, kGroupsPerUnit);
    if (lds) groups = std::min(groups, kLdsBytes / round_up(lds, kLdsGranule));
    return static_cast<int>(groups);
}

EMU_API hipError_t
hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads, size_t dynamic) {
    return blocks_per_unit("hipOccupancyMaxActiveBlocksPerMultiprocessor", blocks, function, threads, dynamic);
}

EMU_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t dynamic, unsigned) {
    return blocks_per_unit("hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks, function, threads, dynamic);
}

EMU_API hipError_t
hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, size_t dynamic, int limit) {
    return best_block("hipOccupancyMaxPotentialBlockSize", grid, block, function, dynamic, limit);
}

EMU_API hipError_t
hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t function, int threads, size_t dynamic) {
    return blocks_per_unit("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", blocks, function, threads, dynamic);
}

EMU_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, hipFunction_t function, int threads, size_t dynamic, unsigned) {
    return blocks_per_unit(
        "hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks, function, threads, dynamic);
}

EMU_API hipError_t
hipModuleOccupancyMaxPotentialBlockSize(int* grid, int* block, hipFunction_t function, size_t dynamic, int limit) {
    return best_block("hipModuleOccupancyMaxPotentialBlockSize", grid, block, function, dynamic, limit);
}

EMU_API hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
    int* grid, int* block, hipFunction_t function, size_t dynamic, int limit, unsigned) {
    return best_block("hipModuleOccupancyMaxPotentialBlockSizeWithFlags", grid, block, function, dynamic, limit);
}

EMU_API hipError_t
hipOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int threads) {
    return api("hipOccupancyAvailableDynamicSMemPerBlock", [&] {
        require(bytes != nullptr && blocks > 0 && threads > 0);
        const loader::KernelInfo& info = function_of(function).info();
        size_t share = kLdsBytes / static_cast<size_t>(blocks) / kLdsGranule * kLdsGranule;
        size_t dynamic = share > info.lds_bytes ? share - info.lds_bytes : 0;
        bool fits = resident_groups(info, static_cast<size_t>(threads), dynamic) >= blocks;
        require(fits, hipErrorInvalidValue);  // registers or waves are the limit, however little LDS it takes
        *bytes = dynamic;
        return hipSuccess;
    });
}
