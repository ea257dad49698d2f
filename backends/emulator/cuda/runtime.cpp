// SPDX-License-Identifier: MIT
// Programs register fat binaries, kernels and variables when they are loaded; launches find them by a host function's address.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/immortal.h"
#include "device.h"
#include "graph.h"
#include "library.h"

namespace emu::cuda {
namespace {

constexpr int kMaxDynamicSharedMemorySize = 8;

struct Known {
    Library* library = nullptr;
    std::string name;
};

struct Registry {
    std::mutex mutex;
    std::set<std::unique_ptr<Library>> libraries;
    std::map<const void*, Known> kernels, variables;
};

Registry& registry() { return immortal<Registry>(); }

Known* kernel_at(const void* function) {
    const std::lock_guard lock(registry().mutex);
    const auto known = registry().kernels.find(function);
    return known == registry().kernels.end() ? nullptr : &known->second;
}

int launched(const void* function, const Geometry& geometry, void** arguments) {
    const Known* const known = kernel_at(function);
    if (!known) return fail(kInvalidDeviceFunction, "no kernel is registered at that address");
    int error = kSuccess;
    const auto work = [&] {
        KernelWork each(*known->library, known->name, geometry, arguments, nullptr);
        each.function = function;
        return each;
    };
    if (captured(geometry.stream, work, error)) return error;
    return launch(*known->library, known->name, geometry, arguments);
}

// <<<…>>> leaves its configuration for the stub of the kernel.
struct Configuration {
    Dim3 grid, block;
    size_t shared;
    void* stream;
};
thread_local Configuration g_configuration;

}  // namespace

Library* kernel_at(const void* function, std::string& name) {
    const Known* const known = kernel_at(function);
    if (!known) return nullptr;
    name = known->name;
    return known->library;
}

}  // namespace emu::cuda

using namespace emu::cuda;

API void** __cudaRegisterFatBinary(void* fat_binary) {
    auto library = std::make_unique<Library>();
    library->fat_binary = fat_binary;
    Library* const raw = library.get();
    const std::lock_guard lock(registry().mutex);
    registry().libraries.insert(std::move(library));
    return reinterpret_cast<void**>(raw);
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void** handle) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto* const library = reinterpret_cast<Library*>(handle);
    std::erase_if(all.kernels, [&](const auto& each) { return each.second.library == library; });
    std::erase_if(all.variables, [&](const auto& each) { return each.second.library == library; });
    std::erase_if(all.libraries, [&](const auto& each) { return each.get() == library; });
}
API void __cudaRegisterFunction(
    void** handle, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
    const std::lock_guard lock(registry().mutex);
    registry().kernels[host] = {reinterpret_cast<Library*>(handle), name};
}
API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
    const std::lock_guard lock(registry().mutex);
    registry().variables[host] = {reinterpret_cast<Library*>(handle), name};
}
API char __cudaInitModule(void**) { return 1; }

API int __cudaGetKernel(const void** kernel, const void* function) {
    *kernel = function;
    return kSuccess;
}
API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void* stream) {
    g_configuration = {grid, block, shared, stream};
    return 0;
}
API int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, void** stream) {
    *grid = g_configuration.grid;
    *block = g_configuration.block;
    *shared = g_configuration.shared;
    *stream = g_configuration.stream;
    return kSuccess;
}
API int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launched(function, {grid, block, {1, 1, 1}, shared, stream}, arguments);
}
API int __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launched(kernel, {grid, block, {1, 1, 1}, shared, stream}, arguments);
}
API int cudaLaunchKernelExC(const LaunchConfig* config, const void* function, void** arguments) {
    Geometry geometry{config->grid, config->block, {1, 1, 1}, config->dynamic_shared};
    geometry.stream = config->stream;
    take(geometry, config->attributes, config->attribute_count);
    return launched(function, geometry, arguments);
}
API int cudaLaunchCooperativeKernel(
    const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launched(function, {grid, block, {1, 1, 1}, shared, stream}, arguments);
}
API int cudaFuncSetAttribute(const void* function, int attribute, int value) {
    const Known* const known = kernel_at(function);
    if (!known) return fail(kInvalidDeviceFunction);
    return attribute == kMaxDynamicSharedMemorySize ? set_shared_limit(*known->library, known->name, value) : kSuccess;
}
API int cudaOccupancyMaxActiveClusters(int* count, const void*, const LaunchConfig* config) {
    *count = most_clusters(config->attributes, config->attribute_count);
    return kSuccess;
}
/// cudaFuncAttributes. Source: driver_types.h of CUDA 13.0.
struct FunctionAttributes {
    size_t static_shared, constant, local;
    int threads, registers, ptx_version, binary_version, cache_mode, dynamic_shared;
    int rest[24];
};
static_assert(sizeof(FunctionAttributes) == 144);
API int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function) {
    const Known* const known = kernel_at(function);
    if (!known) return fail(kInvalidDeviceFunction);
    Facts facts;
    if (const int error = facts_of(*known->library, known->name, facts)) return error;
    const int threads = facts.max_threads ? static_cast<int>(facts.max_threads) : 1024;
    *attributes = {facts.static_shared, 0, 0, threads, 0, facts.arch, facts.arch, 0, facts.shared_limit, {}};
    return kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void* function, int threads, size_t shared) {
    const Gpu& gpu = *options().gpu;
    if (const Known* const known = kernel_at(function)) {
        Facts facts;
        if (const int error = facts_of(*known->library, known->name, facts)) return error;
        shared += facts.static_shared;
    }
    const int by_threads = gpu.threads_per_multiprocessor / std::max(1, threads);
    const int by_shared =
        shared ? gpu.shared_per_multiprocessor / static_cast<int>(shared + 1024) : gpu.blocks_per_multiprocessor;
    *count = std::min({by_threads, by_shared, gpu.blocks_per_multiprocessor});
    return kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* count, const void* function, int threads, size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(count, function, threads, shared);
}
API int cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }

/// The device's address of a variable; loads its PTX if need be.
void* emu_cuda_symbol(const void* host, size_t* bytes) {
    Known known;
    {
        const std::lock_guard lock(registry().mutex);
        const auto found = registry().variables.find(host);
        if (found == registry().variables.end()) return nullptr;
        known = found->second;
    }
    const std::lock_guard lock(known.library->mutex);
    try {
        known.library->load();
    } catch (const LaunchError&) {
        return nullptr;
    } catch (const std::exception&) {
        return nullptr;
    }
    const auto variable = known.library->variables.find(known.name);
    if (variable == known.library->variables.end()) return nullptr;
    if (const emu::ptx::Variable* const declared = known.library->module->variable(known.name); declared && bytes)
        *bytes = declared->bytes;
    return variable->second;
}
