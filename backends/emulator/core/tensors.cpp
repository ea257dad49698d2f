// SPDX-License-Identifier: MIT
// torch's CPU tensors as device memory: known to the checks to the byte, with guards around them.
//
// torch asks c10::alloc_cpu and c10::free_cpu for every tensor's memory. Where this library is loaded before torch's, these
// functions come first. They only pass on what they are asked unless the option `tensors` is set.
#include <dlfcn.h>

#include <cstddef>
#include <new>

#include "control.h"
#include "memory.h"

namespace emu {
namespace {

// The function of torch's own library.
template <class Function>
Function theirs(const char* name) {
    void* const library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void* const found = library ? dlsym(library, name) : nullptr;
    if (!found) throw std::bad_alloc();
    return reinterpret_cast<Function>(found);
}

}  // namespace
}  // namespace emu

using namespace emu;

EXPORTED void* emu_alloc_cpu(size_t bytes) __asm__("_ZN3c109alloc_cpuEm");
EXPORTED void emu_free_cpu(void* memory) __asm__("_ZN3c108free_cpuEPv");

EXPORTED void* emu_alloc_cpu(size_t bytes) {
    if (tensors_are_device_memory() && bytes)
        if (void* const memory = device_malloc(bytes, "a torch tensor")) return memory;
    static const auto original = theirs<void* (*)(size_t)>("_ZN3c109alloc_cpuEm");
    return original(bytes);
}

EXPORTED void emu_free_cpu(void* memory) {
    if (tensors_are_device_memory() && memory && device_free(memory)) return;
    static const auto original = theirs<void (*)(void*)>("_ZN3c108free_cpuEPv");
    original(memory);
}
