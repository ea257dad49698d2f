// SPDX-License-Identifier: MIT
// Allocation. Device memory is host memory: every pointer means the same on both sides, so "mapped", "managed" and
// "registered" only differ in what the queries say.

#include "hip/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "core/memory.h"
#include "core/scalars.h"
#include "gfx942/dispatch.h"

namespace emu {
namespace {

struct Blocks {
    std::shared_mutex mutex;
    std::map<uintptr_t, Block> by_address;
    size_t bytes = 0;  // of the blocks that `allocate` made
    uint64_t next_number = 1;
};

Blocks& blocks() { return immortal<Blocks>(); }

// The first whole number in `file` after `key` (or at its start); unlimited if there is none.
size_t number_in(const char* file, const std::string& key) {
    std::ifstream input(file);
    std::string word;
    while (input >> word) {
        if (!key.empty() && word != key) continue;
        if (!key.empty()) input >> word;
        try {
            return std::stoull(word);
        } catch (const std::exception&) {
            break;
        }
    }
    return std::numeric_limits<size_t>::max();
}

size_t host_free_bytes() {
    size_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    size_t bytes = kilobytes > (size_t{1} << 50) ? kDeviceBytes : kilobytes * 1024;
    // A container has less than the machine.
    size_t limit = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
    if (limit != std::numeric_limits<size_t>::max() && used <= limit) bytes = std::min(bytes, limit - used);
    return bytes;
}

std::map<uintptr_t, Block>::iterator containing(uintptr_t address) {
    auto next = blocks().by_address.upper_bound(address);
    if (next == blocks().by_address.begin()) return blocks().by_address.end();
    auto found = std::prev(next);
    return address - found->second.begin < std::max<size_t>(found->second.size, 1) ? found : blocks().by_address.end();
}

constexpr size_t kPitchAlignment = 256;

}  // namespace

size_t free_bytes() {
    std::shared_lock lock(blocks().mutex);
    return std::min(kDeviceBytes - std::min(kDeviceBytes, blocks().bytes), host_free_bytes());
}

size_t allocated_bytes() {
    std::shared_lock lock(blocks().mutex);
    return blocks().bytes;
}

void* allocate(size_t size, MemoryKind kind, unsigned flags, const char* what) {
    if (size == 0) return nullptr;
    if (size > free_bytes()) {
        throw ApiError(
            hipErrorOutOfMemory,
            std::to_string(size) + " bytes asked for, " + std::to_string(free_bytes()) + " free on this host");
    }
    void* pointer = device_malloc(size, what);
    if (!pointer) throw ApiError(hipErrorOutOfMemory);
    std::unique_lock lock(blocks().mutex);
    auto begin = reinterpret_cast<uintptr_t>(pointer);
    blocks().by_address[begin] = Block{begin, size, kind, flags, blocks().next_number++};
    blocks().bytes += size;
    return pointer;
}

bool release(void* pointer) {
    {
        std::unique_lock lock(blocks().mutex);
        auto found = blocks().by_address.find(reinterpret_cast<uintptr_t>(pointer));
        if (found == blocks().by_address.end() || found->second.kind == MemoryKind::kRegistered) return false;
        blocks().bytes -= found->second.size;
        blocks().by_address.erase(found);
    }
    return device_free(pointer);
}

std::optional<Block> find_block(const void* pointer) {
    std::shared_lock lock(blocks().mutex);
    auto found = containing(reinterpret_cast<uintptr_t>(pointer));
    return found == blocks().by_address.end() ? std::nullopt : std::optional(found->second);
}

void require_range(const void* pointer, size_t size, const char* role) {
    if (size == 0) return;
    require(pointer != nullptr);
    std::optional<Block> block = find_block(pointer);
    if (!block) return;
    size_t offset = reinterpret_cast<uintptr_t>(pointer) - block->begin;
    if (size <= block->size - offset) return;
    char text[160];
    std::snprintf(
        text, sizeof text, "%s %p: %zu bytes from offset %zu of an allocation of %zu bytes", role, pointer, size,
        offset, block->size);
    throw ApiError(hipErrorInvalidValue, text);
}

void count_move(const char* call, const void* from, const void* to, size_t bytes) {
    if (bytes == 0) return;
    auto on_device = [](const void* place) {
        const std::optional<Block> block = find_block(place);
        if (block) return block->kind == MemoryKind::kDevice || block->kind == MemoryKind::kManaged;
        return find_allocation(reinterpret_cast<uintptr_t>(place)) !=
               nullptr;  // a tensor that stands for device memory
    };
    if (!on_device(to) || (from && !on_device(from))) return;
    moved(call, from, to, bytes);
}

}  // namespace emu

using namespace emu;

namespace {

hipError_t allocate_into(const char* name, void** pointer, size_t size, MemoryKind kind, unsigned flags) {
    return device_api(name, [&] {
        require(pointer != nullptr);
        *pointer = nullptr;
        *pointer = allocate(size, kind, flags, name);
        return hipSuccess;
    });
}

hipError_t free_from(const char* name, void* pointer) {
    return device_api(name, [&] {
        if (pointer && !release(pointer)) {
            throw ApiError(hipErrorInvalidValue, "not the beginning of an allocation, or freed already");
        }
        return hipSuccess;
    });
}

}  // namespace

EMU_API hipError_t hipMalloc(void** pointer, size_t size) {
    return allocate_into("hipMalloc", pointer, size, MemoryKind::kDevice, 0);
}

EMU_API hipError_t hipExtMallocWithFlags(void** pointer, size_t size, unsigned flags) {
    return allocate_into("hipExtMallocWithFlags", pointer, size, MemoryKind::kDevice, flags);
}

EMU_API hipError_t hipMallocAsync(void** pointer, size_t size, hipStream_t) {
    return allocate_into("hipMallocAsync", pointer, size, MemoryKind::kDevice, 0);
}

EMU_API hipError_t hipHostMalloc(void** pointer, size_t size, unsigned flags) {
    return allocate_into("hipHostMalloc", pointer, size, MemoryKind::kHost, flags);
}

EMU_API hipError_t hipHostAlloc(void** pointer, size_t size, unsigned flags) {
    return allocate_into("hipHostAlloc", pointer, size, MemoryKind::kHost, flags);
}

EMU_API hipError_t hipMallocHost(void** pointer, size_t size) {
    return allocate_into("hipMallocHost", pointer, size, MemoryKind::kHost, 0);
}

EMU_API hipError_t hipMemAllocHost(void** pointer, size_t size) {
    return allocate_into("hipMemAllocHost", pointer, size, MemoryKind::kHost, 0);
}

EMU_API hipError_t hipMallocManaged(void** pointer, size_t size, unsigned flags) {
    return device_api("hipMallocManaged", [&] {
        require(pointer != nullptr && size != 0);
        require(flags == hipMemAttachGlobal || flags == hipMemAttachHost);
        *pointer = allocate(size, MemoryKind::kManaged, flags, "hipMallocManaged");
        return hipSuccess;
    });
}

EMU_API hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    return device_api("hipMallocPitch", [&] {
        require(pointer != nullptr && pitch != nullptr);
        *pitch = round_up(width, kPitchAlignment);
        *pointer = allocate(*pitch * height, MemoryKind::kDevice, 0, "hipMallocPitch");
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemAllocPitch(hipDeviceptr_t* pointer, size_t* pitch, size_t width, size_t height, unsigned) {
    return hipMallocPitch(reinterpret_cast<void**>(pointer), pitch, width, height);
}

EMU_API hipError_t hipMalloc3D(hipPitchedPtr* pitched, hipExtent extent) {
    return device_api("hipMalloc3D", [&] {
        require(pitched != nullptr);
        size_t pitch = round_up(extent.width, kPitchAlignment);
        void* pointer = allocate(pitch * extent.height * extent.depth, MemoryKind::kDevice, 0, "hipMalloc3D");
        *pitched = {pointer, pitch, extent.width, extent.height};
        return hipSuccess;
    });
}

EMU_API hipError_t hipFree(void* pointer) { return free_from("hipFree", pointer); }
EMU_API hipError_t hipFreeAsync(void* pointer, hipStream_t) { return free_from("hipFreeAsync", pointer); }
EMU_API hipError_t hipHostFree(void* pointer) { return free_from("hipHostFree", pointer); }
EMU_API hipError_t hipFreeHost(void* pointer) { return free_from("hipFreeHost", pointer); }

EMU_API hipError_t hipHostRegister(void* pointer, size_t size, unsigned flags) {
    return device_api("hipHostRegister", [&] {
        require(pointer != nullptr && size != 0);
        auto begin = reinterpret_cast<uintptr_t>(pointer);
        {
            std::unique_lock lock(blocks().mutex);
            auto next = blocks().by_address.lower_bound(begin);
            bool overlaps = next != blocks().by_address.end() && next->first - begin < size;
            bool taken = overlaps || containing(begin) != blocks().by_address.end();
            require(!taken, hipErrorHostMemoryAlreadyRegistered);
            blocks().by_address[begin] = Block{begin, size, MemoryKind::kRegistered, flags, blocks().next_number++};
        }
        register_host(pointer, size, "hipHostRegister");
        return hipSuccess;
    });
}

EMU_API hipError_t hipHostUnregister(void* pointer) {
    return device_api("hipHostUnregister", [&] {
        {
            std::unique_lock lock(blocks().mutex);
            auto found = blocks().by_address.find(reinterpret_cast<uintptr_t>(pointer));
            require(
                found != blocks().by_address.end() && found->second.kind == MemoryKind::kRegistered,
                hipErrorHostMemoryNotRegistered);
            blocks().by_address.erase(found);
        }
        unregister_host(pointer);
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemGetInfo(size_t* free, size_t* total) {
    return device_api("hipMemGetInfo", [&] {
        require(free != nullptr && total != nullptr);
        *free = free_bytes();
        *total = kDeviceBytes;
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPtrGetInfo(void* pointer, size_t* size) {
    return api("hipMemPtrGetInfo", [&] {
        require(size != nullptr);
        std::optional<Block> block = find_block(pointer);
        require(pointer == nullptr || (block && block->begin == reinterpret_cast<uintptr_t>(pointer)));
        *size = block ? block->size : 0;
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t pointer) {
    return api("hipMemGetAddressRange", [&] {
        std::optional<Block> block = find_block(pointer);
        require(block.has_value(), hipErrorNotFound);
        if (base) *base = reinterpret_cast<hipDeviceptr_t>(block->begin);
        if (size) *size = block->size;
        return hipSuccess;
    });
}

EMU_API hipError_t hipExtHostAlloc(void** pointer, size_t size, unsigned flags) {
    return allocate_into("hipExtHostAlloc", pointer, size, MemoryKind::kHost, flags);
}
