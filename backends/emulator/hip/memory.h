// SPDX-License-Identifier: MIT
// Allocations made through the HIP API and the rules for ranges that copies and fills touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "hip/api.h"

namespace emu {

enum class MemoryKind { kDevice, kHost, kManaged, kRegistered };

struct Block {
    uintptr_t begin;
    size_t size;
    MemoryKind kind;
    unsigned flags;
    uint64_t number;  // unique, in the order of the allocations
    int device = current_device();
};

// Allocates memory that host and device address alike; nullptr for size 0.
// Throws ApiError(hipErrorOutOfMemory).
void* allocate(size_t size, MemoryKind kind, unsigned flags, const char* what);

// Frees the block that begins at `pointer`; false if there is none that `allocate` made.
bool release(void* pointer);

// The block that contains `pointer`.
std::optional<Block> find_block(const void* pointer);

// Throws ApiError unless [pointer, pointer + size) may be touched: not null and, where it begins inside a block, not
// beyond its end. Memory that HIP did not allocate is the host's and taken as it is.
void require_range(const void* pointer, size_t size, const char* role);

// A fill (`from` is null) or copy of that call is done. Where it stays in device memory, it is a launch to the counters.
void count_move(const char* call, const void* from, const void* to, size_t bytes);

// Bytes allocated now, and the device's memory as hipMemGetInfo reports it.
size_t allocated_bytes();
size_t free_bytes();
constexpr size_t kDeviceBytes = size_t{192} << 30;

}  // namespace emu
