// SPDX-License-Identifier: MIT
// Modules: loading, finding kernels and variables, and what HIP tells about a function.

#include "hip/module.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <shared_mutex>
#include <vector>

#include "hip/properties.h"
#include "loader/bundle.h"

using namespace emu;
using namespace emu::mi300x;

namespace {

struct Handles {
    std::shared_mutex mutex;
    std::set<ihipModule_t*> modules;  // made by the calls below, not by compiled host code
    std::set<const void*> functions;  // of any module
};

Handles& handles() { return immortal<Handles>(); }

constexpr size_t kUnknownSize = SIZE_MAX;

// Whether the bytes are code for some device at all; find_code_object has refused them then.
bool is_device_code(const void* image, size_t limit) {
    for (const char* magic : {"\177ELF", "__CLANG_OFFLOAD_BUNDLE__", "CCOB"}) {
        size_t length = std::strlen(magic);
        if (length <= limit && std::strncmp(static_cast<const char*>(image), magic, length) == 0) return true;
    }
    return false;
}

Module* load(const void* image, size_t limit) {
    std::pair<const uint8_t*, size_t> code;
    try {
        code = loader::find_code_object(image, loader::kDevice, limit);
    } catch (const loader::LoadError& error) {
        throw ApiError(is_device_code(image, limit) ? hipErrorNoBinaryForGpu : hipErrorInvalidImage, error.what());
    }
    return load_module(code.first, code.second);
}

ihipModule_t& checked(hipModule_t module) {
    std::shared_lock lock(handles().mutex);
    require(module != nullptr && handles().modules.contains(module), hipErrorInvalidHandle);
    return *module;
}

ihipModuleSymbol_t& checked_function(hipFunction_t function) {
    require(is_function(function), hipErrorInvalidHandle);
    return *function;
}

hipError_t load_into(const char* name, hipModule_t* module, const void* image, size_t limit) {
    return device_api(name, [&] {
        require(module != nullptr && image != nullptr);
        auto loaded = std::make_unique<ihipModule_t>(image, limit);
        std::unique_lock lock(handles().mutex);
        handles().modules.insert(loaded.get());
        *module = loaded.release();
        return hipSuccess;
    });
}

// The bytes of a file. Throws ApiError(hipErrorFileNotFound).
std::vector<char> contents(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw ApiError(hipErrorFileNotFound, std::string(path) + " cannot be opened");
    return {std::istreambuf_iterator<char>(file), {}};
}

hipFuncAttributes attributes_of(const loader::KernelInfo& info) {
    hipFuncAttributes attributes{};
    attributes.binaryVersion = attributes.ptxVersion = 10 * kMajor + kMinor;
    attributes.localSizeBytes = info.scratch_bytes;
    attributes.sharedSizeBytes = info.lds_bytes;
    attributes.maxDynamicSharedSizeBytes = kLdsBytes - static_cast<int>(info.lds_bytes);
    attributes.maxThreadsPerBlock = static_cast<int>(info.max_threads);
    attributes.numRegs = static_cast<int>(vector_registers(info));
    return attributes;
}

int attribute_of(const loader::KernelInfo& info, hipFunction_attribute which) {
    hipFuncAttributes all = attributes_of(info);
    switch (which) {
        case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return all.maxThreadsPerBlock;
        case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return static_cast<int>(all.sharedSizeBytes);
        case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: return 0;
        case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return static_cast<int>(all.localSizeBytes);
        case HIP_FUNC_ATTRIBUTE_NUM_REGS: return all.numRegs;
        case HIP_FUNC_ATTRIBUTE_PTX_VERSION: return all.ptxVersion;
        case HIP_FUNC_ATTRIBUTE_BINARY_VERSION: return all.binaryVersion;
        case HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA: return 0;
        case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return all.maxDynamicSharedSizeBytes;
        case HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return 0;
        default: throw ApiError(hipErrorInvalidValue);
    }
}

}  // namespace

ihipModule_t::ihipModule_t(const void* image, size_t limit) : module_(load(image, limit)) {}

ihipModule_t::~ihipModule_t() {
    {
        std::unique_lock lock(handles().mutex);
        for (const auto& [name, function] : functions_) handles().functions.erase(function.get());
    }
    unload_module(module_);
}

ihipModuleSymbol_t* ihipModule_t::function(const std::string& name) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<ihipModuleSymbol_t>& known = functions_[name];
    if (!known) {
        const Kernel* kernel = find_kernel(module_, name);
        if (!kernel) {
            functions_.erase(name);
            return nullptr;
        }
        known = std::make_unique<ihipModuleSymbol_t>(ihipModuleSymbol_t{name, kernel, this});
        std::unique_lock global(handles().mutex);
        handles().functions.insert(known.get());
    }
    return known.get();
}

std::optional<std::pair<void*, size_t>> ihipModule_t::global(const std::string& name) const {
    return find_global(module_, name);
}

bool emu::is_function(const void* function) {
    std::shared_lock lock(handles().mutex);
    return handles().functions.contains(function);
}

EMU_API hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
    std::vector<char> image;
    hipError_t read = api("hipModuleLoad", [&] {
        require(module != nullptr && path != nullptr);
        image = contents(path);
        return hipSuccess;
    });
    return read != hipSuccess ? read : load_into("hipModuleLoad", module, image.data(), image.size());
}

EMU_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
    return load_into("hipModuleLoadData", module, image, kUnknownSize);
}

EMU_API hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned, hipJitOption*, void**) {
    return load_into("hipModuleLoadDataEx", module, image, kUnknownSize);  // the options are about compiling PTX
}

EMU_API hipError_t hipModuleLoadFatBinary(hipModule_t* module, const void* image) {
    return load_into("hipModuleLoadFatBinary", module, image, kUnknownSize);
}

EMU_API hipError_t hipModuleUnload(hipModule_t module) {
    return api("hipModuleUnload", [&] {
        {
            std::unique_lock lock(handles().mutex);
            require(handles().modules.erase(module) == 1, hipErrorInvalidHandle);
        }
        delete module;
        return hipSuccess;
    });
}

EMU_API hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    return api("hipModuleGetFunction", [&] {
        require(function != nullptr && name != nullptr);
        *function = checked(module).function(name);
        return *function ? hipSuccess : hipErrorNotFound;
    });
}

EMU_API hipError_t hipModuleGetGlobal(hipDeviceptr_t* pointer, size_t* size, hipModule_t module, const char* name) {
    return api("hipModuleGetGlobal", [&] {
        require(name != nullptr);
        auto found = checked(module).global(name);
        require(found.has_value(), hipErrorNotFound);
        if (pointer) *pointer = found->first;
        if (size) *size = found->second;
        return hipSuccess;
    });
}

EMU_API const char* hipKernelNameRef(const hipFunction_t function) {
    return is_function(function) ? function->name.c_str() : nullptr;
}

EMU_API const char* hipKernelNameRefByPtr(const void* host, hipStream_t) {
    const char* name = nullptr;
    hipError_t status = api("hipKernelNameRefByPtr", [&] {
        name = function_of(host).name.c_str();
        return hipSuccess;
    });
    return status == hipSuccess ? name : nullptr;
}

EMU_API hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* host) {
    return api("hipFuncGetAttributes", [&] {
        require(attributes != nullptr);
        *attributes = attributes_of(function_of(host).info());
        return hipSuccess;
    });
}

EMU_API hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute which, hipFunction_t function) {
    return api("hipFuncGetAttribute", [&] {
        require(value != nullptr);
        *value = attribute_of(checked_function(function).info(), which);
        return hipSuccess;
    });
}

EMU_API hipError_t hipFuncSetAttribute(const void* host, hipFuncAttribute which, int value) {
    return api("hipFuncSetAttribute", [&] {
        const loader::KernelInfo& info = function_of(host).info();
        if (which == hipFuncAttributeMaxDynamicSharedMemorySize) {
            int most = kLdsBytes - static_cast<int>(info.lds_bytes);
            if (value < 0 || value > most) {
                throw ApiError(
                    hipErrorInvalidValue, info.name + ": " + std::to_string(value) + " bytes of dynamic LDS; " +
                                              std::to_string(most) + " are left of 64 KB");
            }
            return hipSuccess;  // no opt-in is needed below that
        }
        require(which == hipFuncAttributePreferredSharedMemoryCarveout && value >= -1 && value <= 100);
        return hipSuccess;  // LDS is not carved out of a cache
    });
}

EMU_API hipError_t hipFuncSetCacheConfig(const void* host, hipFuncCache_t) {
    return api("hipFuncSetCacheConfig", [&] {
        static_cast<void>(function_of(host));
        return hipSuccess;  // likewise
    });
}

EMU_API hipError_t hipFuncSetSharedMemConfig(const void* host, hipSharedMemConfig) {
    return api("hipFuncSetSharedMemConfig", [&] {
        static_cast<void>(function_of(host));
        return hipSuccess;  // LDS has one bank width
    });
}

EMU_API hipError_t hipGetFuncBySymbol(hipFunction_t* function, const void* host) {
    return api("hipGetFuncBySymbol", [&] {
        require(function != nullptr);
        *function = &function_of(host);
        return hipSuccess;
    });
}
