// SPDX-License-Identifier: MIT
// What compiled host code registers when its library is loaded: device code, kernels and variables. The code itself
// is read at the first use of something in it, so that loading a library costs nothing and cannot fail.

#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hip/memory.h"
#include "hip/module.h"

using namespace emu;

namespace {

struct Managed {
    std::string name;
    void* memory;
    size_t size;
};

struct FatBinary {
    const void* wrapper;
    std::mutex mutex;  // guards all below
    std::unique_ptr<ihipModule_t> module;
    std::vector<Managed> managed;

    // The loaded module. Throws ApiError.
    ihipModule_t& load() {
        std::lock_guard lock(mutex);
        if (!module) {
            auto loaded = std::make_unique<ihipModule_t>(wrapper, SIZE_MAX);
            // Device code reaches a managed variable through a pointer of the same name.
            for (const Managed& variable : managed) {
                if (auto slot = loaded->global(variable.name); slot && slot->second == sizeof(void*)) {
                    std::memcpy(slot->first, &variable.memory, sizeof(void*));
                }
            }
            module = std::move(loaded);
        }
        return *module;
    }
};

struct Name {
    std::shared_ptr<FatBinary> binary;
    std::string name;
    void* managed = nullptr;  // where a managed variable lies
    size_t size = 0;
};

using Names = std::unordered_map<const void*, Name>;  // by the host's address

struct Registered {
    std::shared_mutex mutex;
    std::unordered_map<const void*, std::shared_ptr<FatBinary>> binaries;  // by handle
    Names kernels, variables;
};

Registered& registered() { return immortal<Registered>(); }

std::shared_ptr<FatBinary> binary_of(const void* handle) {
    std::shared_lock lock(registered().mutex);
    auto found = registered().binaries.find(handle);
    return found == registered().binaries.end() ? nullptr : found->second;
}

void forget(Names& names, const FatBinary* binary) {
    std::erase_if(names, [&](const auto& entry) { return entry.second.binary.get() == binary; });
}

// What `host` is registered as. Throws ApiError.
Name look_up(const Names& names, const void* host, hipError_t missing) {
    std::shared_lock lock(registered().mutex);
    auto found = names.find(host);
    require(found != names.end(), missing);
    return found->second;
}

}  // namespace

namespace emu {

ihipModuleSymbol_t& function_of(const void* host) {
    require(host != nullptr, hipErrorInvalidDeviceFunction);
    if (is_function(host)) return *static_cast<ihipModuleSymbol_t*>(const_cast<void*>(host));
    Name entry = look_up(registered().kernels, host, hipErrorInvalidDeviceFunction);
    ihipModuleSymbol_t* function = entry.binary->load().function(entry.name);
    if (!function) {
        throw ApiError(hipErrorInvalidDeviceFunction, "the device code has no kernel " + entry.name);
    }
    return *function;
}

std::pair<void*, size_t> variable_of(const void* host) {
    require(host != nullptr, hipErrorInvalidSymbol);
    Name entry = look_up(registered().variables, host, hipErrorInvalidSymbol);
    if (entry.managed) return {entry.managed, entry.size};
    auto found = entry.binary->load().global(entry.name);
    if (!found) throw ApiError(hipErrorInvalidSymbol, "the device code has no variable " + entry.name);
    return *found;
}

}  // namespace emu

// The registration functions, as clang calls them; they are not declared in the API's header.

EMU_API void** __hipRegisterFatBinary(const void* wrapper) {
    auto binary = std::make_shared<FatBinary>();
    binary->wrapper = wrapper;
    std::unique_lock lock(registered().mutex);
    registered().binaries[binary.get()] = binary;
    return reinterpret_cast<void**>(binary.get());
}

EMU_API void __hipRegisterFunction(
    void** handle, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*) {
    if (auto binary = binary_of(handle)) {
        std::unique_lock lock(registered().mutex);
        registered().kernels[host] = Name{binary, name};
    }
}

EMU_API void __hipRegisterVar(void** handle, void* host, char*, char* name, int, size_t size, int, int) {
    if (auto binary = binary_of(handle)) {
        std::unique_lock lock(registered().mutex);
        registered().variables[host] = Name{binary, name, nullptr, size};
    }
}

EMU_API void __hipRegisterManagedVar(
    void* handle, void** pointer, void* initial, const char* name, size_t size, unsigned) {
    auto binary = binary_of(handle);
    if (!binary) return;
    // The host may use the variable before it calls anything of HIP.
    hipError_t status = api("__hipRegisterManagedVar", [&] {
        void* memory = allocate(size, MemoryKind::kManaged, hipMemAttachGlobal, name);
        if (initial) std::memcpy(memory, initial, size);
        *pointer = memory;
        {
            std::lock_guard lock(binary->mutex);
            binary->managed.push_back({name, memory, size});
        }
        std::unique_lock lock(registered().mutex);
        registered().variables[pointer] = Name{binary, name, memory, size};
        return hipSuccess;
    });
    static_cast<void>(status);  // kept as the last error
}

EMU_API void __hipUnregisterFatBinary(void** handle) {
    auto binary = binary_of(handle);
    if (!binary) return;
    {
        std::unique_lock lock(registered().mutex);
        registered().binaries.erase(handle);
        forget(registered().kernels, binary.get());
        forget(registered().variables, binary.get());
    }
    for (const Managed& variable : binary->managed) release(variable.memory);
}

EMU_API hipError_t hipGetSymbolAddress(void** pointer, const void* symbol) {
    return api("hipGetSymbolAddress", [&] {
        require(pointer != nullptr);
        *pointer = variable_of(symbol).first;
        return hipSuccess;
    });
}

EMU_API hipError_t hipGetSymbolSize(size_t* size, const void* symbol) {
    return api("hipGetSymbolSize", [&] {
        require(size != nullptr);
        *size = variable_of(symbol).second;
        return hipSuccess;
    });
}
