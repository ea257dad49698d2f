// SPDX-License-Identifier: MIT
// The driver API's way to kernels: PTX text as a module. Source: CUDA Driver API 13.0.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/immortal.h"
#include "core/memory.h"
#include "device.h"
#include "graph.h"
#include "library.h"
#include "ptx/tensor_map.h"

namespace emu::cuda {
namespace {

struct Function {
    Library* library;
    std::string name;
};

struct Modules {
    std::mutex mutex;
    std::set<std::unique_ptr<Library>> libraries;
    std::set<std::unique_ptr<Function>> functions;
};

Modules& modules() { return immortal<Modules>(); }

/// Now, or as a node if the stream is captured.
int launched(const Function& kernel, const Geometry& geometry, void** arguments, void** extra) {
    // CU_LAUNCH_PARAM_BUFFER_POINTER is 1, _SIZE 2, _END 0.
    const void* packed = nullptr;
    for (; extra && *extra; extra += 2)
        if (*extra == reinterpret_cast<void*>(1)) packed = extra[1];
    int error = kSuccess;
    const auto work = [&] { return KernelWork(*kernel.library, kernel.name, geometry, arguments, packed); };
    if (captured(geometry.stream, work, error)) return error;
    return launch(*kernel.library, kernel.name, geometry, arguments, packed);
}

// CUfunction_attribute.
constexpr int kMaxThreads = 0, kSharedBytes = 1, kMaxDynamicSharedBytes = 8, kLastAttribute = 15;

constexpr uint32_t kFatBinary = 0x466243b1;
int g_context;  // there is one; its address is its handle

}  // namespace
}  // namespace emu::cuda

using namespace emu;
using namespace emu::cuda;

API int cudaDeviceGetAttribute(int*, int, int);
API int cudaDeviceGetLimit(size_t*, int);
API int cudaDeviceSetLimit(int, size_t);
API int cudaStreamIsCapturing(void*, int*);
API const char* cudaGetErrorName(int);
API const char* cudaGetErrorString(int);

API int cuInit(unsigned) { return kSuccess; }
API int cuDriverGetVersion(int* version) {
    *version = WARPWAVE_CUDA_MAJOR * 1000;
    return kSuccess;
}
API int cuDeviceGet(int* device, int number) {
    *device = number;
    return number == 0 ? kSuccess : fail(101);
}
API int cuDeviceGetCount(int* count) {
    *count = 1;
    return kSuccess;
}
API int cuDeviceGetName(char* name, int size, int) {
    std::strncpy(name, options().gpu->name, static_cast<size_t>(size));
    return kSuccess;
}
API int cuDeviceGetAttribute(int* value, int which, int device) { return cudaDeviceGetAttribute(value, which, device); }
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = options().gpu->memory;
    return kSuccess;
}
API int cuCtxGetCurrent(void** context) {
    *context = &g_context;
    return kSuccess;
}
API int cuCtxSetCurrent(void*) { return kSuccess; }
API int cuCtxGetDevice(int* device) {
    *device = 0;
    return kSuccess;
}
API int cuCtxSynchronize() { return kSuccess; }
API int cuDevicePrimaryCtxRetain(void** context, int) { return cuCtxGetCurrent(context); }
API int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
API int cuCtxGetLimit(size_t* bytes, int limit) { return cudaDeviceGetLimit(bytes, limit); }
API int cuCtxSetLimit(int limit, size_t bytes) { return cudaDeviceSetLimit(limit, bytes); }
API int cuStreamSynchronize(void*) { return kSuccess; }
API int cuStreamIsCapturing(void* stream, int* status) { return cudaStreamIsCapturing(stream, status); }
/// The host's memory is the device's.
API int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
    constexpr int kDevicePointer = 3;
    if (attribute != kDevicePointer || !pointer) return kInvalidValue;
    std::memcpy(value, &pointer, sizeof pointer);
    return kSuccess;
}
API int cuGetErrorString(int error, const char** text) {
    *text = cudaGetErrorString(error);
    return kSuccess;
}
API int cuGetErrorName(int error, const char** text) {
    *text = cudaGetErrorName(error);
    return kSuccess;
}

API int cuModuleLoadData(void** module, const void* image) {
    auto library = std::make_unique<Library>();
    uint32_t magic = 0;
    std::memcpy(&magic, image, sizeof magic);
    if (magic == 0x464c457f) return fail(kNoKernelImageForDevice, "a module of machine code; the emulator runs PTX");
    if (magic == kFatBinary) library->fat_binary = image;
    else library->text = static_cast<const char*>(image);
    try {
        library->load();
    } catch (const LaunchError& error) {
        return fail(error.error, error.message);
    } catch (const std::exception& error) {
        return fail(kInvalidPtx, error.what());
    }
    *module = library.get();
    const std::lock_guard lock(modules().mutex);
    modules().libraries.insert(std::move(library));
    return kSuccess;
}
API int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(module, image);
}
API int cuModuleUnload(void* module) {
    const std::lock_guard lock(modules().mutex);
    std::erase_if(modules().functions, [&](const auto& each) { return each->library == module; });
    std::erase_if(modules().libraries, [&](const auto& each) { return each.get() == module; });
    return kSuccess;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
    auto* const library = static_cast<Library*>(module);
    if (!library->module->bodies.contains(name))
        return fail(kSymbolNotFound, std::string("the module has no kernel ") + name);
    auto found = std::make_unique<Function>(Function{library, name});
    *function = found.get();
    const std::lock_guard lock(modules().mutex);
    modules().functions.insert(std::move(found));
    return kSuccess;
}
API int cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
    const auto* const library = static_cast<const Library*>(module);
    const auto variable = library->variables.find(name);
    if (variable == library->variables.end()) return fail(kSymbolNotFound);
    if (address) *address = reinterpret_cast<uint64_t>(variable->second);
    if (bytes) *bytes = library->module->variable(name)->bytes;
    return kSuccess;
}
API int cuFuncSetAttribute(void* function, int attribute, int value) {
    const auto& kernel = *static_cast<const Function*>(function);
    if (attribute < kMaxDynamicSharedBytes || attribute > kLastAttribute)
        return kInvalidValue;  // not the runtime's error
    return attribute == kMaxDynamicSharedBytes ? set_shared_limit(*kernel.library, kernel.name, value) : kSuccess;
}
API int cuFuncGetAttribute(int* value, int attribute, void* function) {
    const auto& kernel = *static_cast<const Function*>(function);
    *value = 0;  // registers and spills, which PTX does not tell, too
    if (attribute != kMaxThreads && attribute != kSharedBytes) return kSuccess;
    Facts facts;
    const int error = facts_of(*kernel.library, kernel.name, facts);
    const u32 threads = facts.max_threads ? facts.max_threads : 1024;
    *value = static_cast<int>(attribute == kMaxThreads ? threads : facts.static_shared);
    return error;
}
API int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
API int cuLaunchKernel(
    void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    void* stream, void** arguments, void** extra) {
    return launched(
        *static_cast<const Function*>(function), {{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, stream}, arguments,
        extra);
}

/// CUlaunchConfig.
struct DriverConfig {
    Dim3 grid, block;
    unsigned shared;
    void* stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};
API int cuLaunchKernelEx(const DriverConfig* config, void* function, void** arguments, void** extra) {
    Geometry geometry{config->grid, config->block, {1, 1, 1}, config->shared, config->stream};
    take(geometry, config->attributes, config->attribute_count);
    return launched(*static_cast<const Function*>(function), geometry, arguments, extra);
}

API int cuOccupancyMaxActiveClusters(int* count, void*, const DriverConfig* config) {
    *count = most_clusters(config->attributes, config->attribute_count);
    return kSuccess;
}

API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    void* const memory = device_malloc(bytes, "cuMemAlloc");
    *address = reinterpret_cast<uint64_t>(memory);
    return memory ? kSuccess : fail(kMemoryAllocation);
}
API int cuMemFree_v2(uint64_t address) {
    return device_free(reinterpret_cast<void*>(address)) ? kSuccess : fail(kInvalidValue);
}
API int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return kSuccess;
}
API int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
}
API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return kSuccess;
}

API int cuTensorMapEncodeTiled(
    void* map, int type, uint32_t rank, void* base, const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
    const uint32_t* steps, int interleave, int swizzle, int, int fill) {
    const std::string why = ptx::encode_tiled(
        *static_cast<ptx::TensorMap*>(map), type, rank, base, dims, strides, box, steps, interleave, swizzle, fill);
    return why.empty() ? kSuccess : fail(kInvalidValue, "cuTensorMapEncodeTiled: " + why);
}

/// A function of the driver by its name, whose newest version has a number behind it. Programs that load the driver take all
/// of its functions so; `found`: CU_GET_PROC_ADDRESS_SUCCESS, or _SYMBOL_NOT_FOUND.
API int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* found) {
    Dl_info here{};
    dladdr(reinterpret_cast<void*>(&cuInit), &here);
    void* const library = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = library ? dlsym(library, (std::string(name) + "_v2").c_str()) : nullptr;
    if (library && !*function) *function = dlsym(library, name);
    if (library) dlclose(library);
    if (found) *found = *function ? 0 : 1;
    return *function ? kSuccess : kSymbolNotFound;
}
API int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// Functions of the driver by their names, for programs that link the runtime alone.
API int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long, int* found) {
    const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *function = known ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
    if (found) *found = known ? 0 : 1;
    return known ? kSuccess : fail(kSymbolNotFound, std::string("the emulated driver has no ") + name);
}
API int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* found) {
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, found);
}
