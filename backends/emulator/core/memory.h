// SPDX-License-Identifier: MIT
// What memory a kernel may touch: allocations of the emulated device and host ranges that were registered with it.
//
// Device addresses are host addresses. All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {

struct Allocation {
    uintptr_t begin = 0;
    size_t size = 0;
    std::string name;     // how reports call it
    bool device = false;  // ours; otherwise registered by its owner
    uint64_t serial = 0;  // unique over the process, in the order of allocation

    uintptr_t end() const { return begin + size; }
    bool contains(uintptr_t address, size_t bytes) const {
        return address >= begin && address - begin < size && bytes <= size - (address - begin);
    }
};

/// `size` bytes (at least 1), 4 KB aligned, with guard bytes before and after. Null when there is no memory.
void* device_malloc(size_t size, const char* what);

/// False for an address that device_malloc did not return. The addresses are not given to anybody else while 4096 more frees
/// take place, and any access to them faults. Overwritten guard bytes are reported on stderr: something wrote
/// outside the allocation while the bounds check was off.
bool device_free(void*);

/// A host range becomes known to the checks. The same address may be registered more than once: the largest size counts, and
/// as many unregister calls are needed.
void register_host(const void*, size_t, const char* name);
bool unregister_host(const void*);

/// The allocation that contains the address, or null; the innermost one where registered ranges overlap. The record stays
/// readable after the allocation is freed, for as long as another 4096 frees take.
const Allocation* find_allocation(uintptr_t);

/// For reports: the live allocation that lies nearest to an address outside all of them (null: there is none), and the most
/// recently freed one that contained it.
const Allocation* nearest_allocation(uintptr_t);
const Allocation* find_freed(uintptr_t);

/// For reports: the allocation that the address is in or near to, and how far: "4 bytes behind 'out' (0x…, 64 bytes)".
std::string neighbourhood(uintptr_t);
/// The same of an allocation that is called `what`.
std::string beside(uintptr_t begin, size_t size, const std::string& what, uintptr_t address);

/// Whether the address is one of the guard bytes before or behind device memory.
bool in_guard(uintptr_t);

/// All live ones, by address.
std::vector<Allocation> allocations();

/// Bytes that device_malloc has handed out and not taken back.
size_t device_bytes();

/// The library's option `tensors`: torch's CPU tensors are device memory, see tensors.cpp.
bool tensors_are_device_memory();

}  // namespace emu
