// SPDX-License-Identifier: MIT
// Devices, errors, and the library's C functions beside those of core/control.cpp.
#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "api.h"
#include "core/control.h"
#include "core/immortal.h"
#include "core/memory.h"
#include "graph.h"
#include "ptx/checks/checks.h"
#include "ptx/heap.h"

namespace emu::cuda {
namespace {

constexpr size_t kGiB = size_t{1} << 30;
constexpr int kMallocHeapSize = 2;  // cudaLimit

constexpr Gpu kGpus[] = {
    {"L4", "NVIDIA L4 (emulated)", 8, 9, 58, 101376, 102400, 1536, 24, 48 << 20, 24 * kGiB, 2040000, 6251000, 192,
     false},
    {"H100", "NVIDIA H100 80GB HBM3 (emulated)", 9, 0, 132, 232448, 233472, 2048, 32, 50 << 20, 80 * kGiB, 1980000,
     2619000, 5120, true},
    {"H200", "NVIDIA H200 (emulated)", 9, 0, 132, 232448, 233472, 2048, 32, 60 << 20, 141 * kGiB, 1980000, 3201000,
     6144, true},
};

Options initial();

struct State {
    std::mutex mutex;
    Options options = initial();
    control::Kept findings, counters;
    std::string message;
};
State& state() { return immortal<State>(); }

/// A list that begins with what is taken away is of all others. Faults such as bounds are always found.
u32 checks_of(const std::string& value) {
    std::vector<std::pair<const char*, u32>> names(std::begin(ptx::kCheckNames), std::end(ptx::kCheckNames));
    for (const char* always : {"bounds", "misaligned", "barrier", "mbarrier"}) names.push_back({always, 0});
    return control::checks(value, names, ptx::kAllChecks, value.starts_with("-") ? u32{ptx::kAllChecks} : 0);
}

/// "eager", "late", "random:7".
ptx::Schedule schedule_of(const std::string& value) {
    if (value == "eager") return {ptx::Order::Eager, 0};
    if (value == "late") return {ptx::Order::Late, 0};
    const std::string digits = value.starts_with("random:") ? value.substr(7) : "";
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
        throw std::invalid_argument("no schedule '" + value + "'; there are eager, late, random:SEED");
    return {ptx::Order::Random, std::strtoull(digits.c_str(), nullptr, 10)};
}

void apply(Options& options, const std::string& option, const std::string& value) {
    if (option == "gpu") {
        const auto* const known =
            std::find_if(std::begin(kGpus), std::end(kGpus), [&](const Gpu& gpu) { return value == gpu.label; });
        if (known == std::end(kGpus))
            throw std::invalid_argument("no emulated GPU '" + value + "'; there are L4, H100, H200");
        options.gpu = known;
    } else if (option == "threads") {
        options.threads = control::threads(control::number(option, value));
    } else if (option == "multiprocessors") {
        const u64 number = control::number(option, value);
        if (number > 1024)
            throw std::invalid_argument("multiprocessors is 1 to 1024, or 0 for the GPU's own, not '" + value + "'");
        options.told_multiprocessors = static_cast<int>(number);
    } else if (option == "schedule") {
        options.schedule = schedule_of(value);
    } else if (option == "counters") {
        options.counters = control::truth(option, value);
    } else if (option == "tensors") {
        options.tensors = control::truth(option, value);
    } else if (option == "report") {
        options.report = control::truth(option, value);
    } else if (option == "log") {
        options.log = value;
    } else if (option == "checks") {
        options.checks = checks_of(value);
    } else if (option != "strict") {
        throw std::invalid_argument(
            "no option '" + option +
            "'; there are gpu, multiprocessors, threads, schedule, counters, tensors, report, log, checks, strict");
    }
}

Options initial() {
    Options options;
    options.gpu = &kGpus[1];
    options.threads = control::threads(0);
    // WARPWAVE_CUDA_EMULATOR="gpu=L4,threads=2"
    control::from_environment("WARPWAVE_CUDA_EMULATOR", [&](const std::string& option, const std::string& value) {
        apply(options, option, value);
    });
    return options;
}

thread_local int g_error = kSuccess;

}  // namespace

const Options& options() { return state().options; }

int fail(int error, const std::string& message) {
    if (error != kSuccess) {
        g_error = error;
        const std::lock_guard lock(state().mutex);
        if (!message.empty()) state().message = message;
    }
    return error;
}

int launch_failed() {
    const bool failed =
        g_error == kIllegalAddress || g_error == kAssert || g_error == kMisalignedAddress || g_error == kLaunchFailure;
    return failed ? g_error : kSuccess;
}

int last_error(bool reset) {
    const int error = g_error;
    if (reset) g_error = kSuccess;
    return error;
}

void keep_finding(std::string json, const std::string& text) {
    control::tell(options().report, options().log, text, json);
    state().findings.keep(std::move(json));
}
void keep_counters(std::string json) { state().counters.keep(std::move(json)); }

namespace {

struct Name {
    int error;
    const char *name, *text;
};

constexpr Name kNames[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {kInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {kInvalidPitch, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {kInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {kInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {kInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {kInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {kNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {kInvalidPtx, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
    {kUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion",
     "the provided PTX was compiled with an unsupported toolchain"},
    {kInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {kSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {kNotReady, "cudaErrorNotReady", "device not ready"},
    {kIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {kAssert, "cudaErrorAssert", "device-side assert triggered"},
    {kMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {kLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {kNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {kCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {kCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {kCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kGraphUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints"},
};

const Name* named(int error) {
    const auto* const found =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& each) { return each.error == error; });
    return found == std::end(kNames) ? nullptr : found;
}

// Attributes by number. Source: CUDA Runtime API, cudaDeviceAttr.
int attribute(const Options& options, int which) {
    const Gpu& gpu = *options.gpu;
    switch (which) {
        case 1: return 1024;  // MaxThreadsPerBlock
        case 2:
        case 3: return 1024;        // MaxBlockDimX, Y
        case 4: return 64;          // MaxBlockDimZ
        case 5: return 2147483647;  // MaxGridDimX
        case 6:
        case 7: return 65535;                            // MaxGridDimY, Z
        case 8: return 49152;                            // MaxSharedMemoryPerBlock
        case 9: return 65536;                            // TotalConstantMemory
        case 10: return 32;                              // WarpSize
        case 11: return 2147483647;                      // MaxPitch
        case 12: return 65536;                           // MaxRegistersPerBlock
        case 13: return gpu.clock_khz;                   // ClockRate
        case 16: return options.multiprocessors();       // MultiProcessorCount
        case 31: return 1;                               // ConcurrentKernels
        case 36: return gpu.memory_clock_khz;            // MemoryClockRate
        case 37: return gpu.bus_bits;                    // GlobalMemoryBusWidth
        case 38: return gpu.l2_bytes;                    // L2CacheSize
        case 39: return gpu.threads_per_multiprocessor;  // MaxThreadsPerMultiProcessor
        case 41: return 1;                               // UnifiedAddressing
        case 75: return gpu.major;                       // ComputeCapabilityMajor
        case 76: return gpu.minor;                       // ComputeCapabilityMinor
        case 81: return gpu.shared_per_multiprocessor;   // MaxSharedMemoryPerMultiprocessor
        case 82: return 65536;                           // MaxRegistersPerMultiprocessor
        case 83: return 1;                               // ManagedMemory
        case 89: return 1;                               // ConcurrentManagedAccess
        case 95: return 1;                               // CooperativeLaunch
        case 97: return gpu.shared_per_block;            // MaxSharedMemoryPerBlockOptin
        case 106: return gpu.blocks_per_multiprocessor;  // MaxBlocksPerMultiprocessor
        case 111: return 1024;                           // ReservedSharedMemoryPerBlock
        case 115: return 1;                              // MemoryPoolsSupported
        case 120: return gpu.major >= 9;                 // ClusterLaunch
        default: return 0;
    }
}

// Members of cudaDeviceProp that are attributes, too: where they lie, their bytes, and the attribute. Source: driver_types.h
// of CUDA 13.0.
struct Member {
    size_t offset, bytes;
    int attribute;
};
constexpr size_t kPropertiesBytes = 1008, kTotalMemory = 288;
constexpr Member kMembers[] = {
    {296, 8, 8},    // sharedMemPerBlock
    {304, 4, 12},   // regsPerBlock
    {308, 4, 10},   // warpSize
    {312, 8, 11},   // memPitch
    {320, 4, 1},    // maxThreadsPerBlock
    {324, 4, 2},    // maxThreadsDim
    {328, 4, 3},    //
    {332, 4, 4},    //
    {336, 4, 5},    // maxGridSize
    {340, 4, 6},    //
    {344, 4, 7},    //
    {352, 8, 9},    // totalConstMem
    {360, 4, 75},   // major
    {364, 4, 76},   // minor
    {384, 4, 16},   // multiProcessorCount
    {560, 4, 31},   // concurrentKernels
    {588, 4, 41},   // unifiedAddressing
    {592, 4, 37},   // memoryBusWidth
    {596, 4, 38},   // l2CacheSize
    {604, 4, 39},   // maxThreadsPerMultiProcessor
    {624, 8, 81},   // sharedMemPerMultiprocessor
    {632, 4, 82},   // regsPerMultiprocessor
    {636, 4, 83},   // managedMemory
    {656, 4, 89},   // concurrentManagedAccess
    {668, 4, 95},   // cooperativeLaunch
    {672, 8, 97},   // sharedMemPerBlockOptin
    {688, 4, 106},  // maxBlocksPerMultiProcessor
    {696, 8, 111},  // reservedSharedMemPerBlock
    {720, 4, 115},  // memoryPoolsSupported
    {748, 4, 120},  // clusterLaunch
};

void write_properties(char* to, const Options& options) {
    std::memset(to, 0, kPropertiesBytes);
    std::snprintf(to, 256, "%s", options.gpu->name);
    std::memcpy(to + kTotalMemory, &options.gpu->memory, sizeof options.gpu->memory);
    for (const Member& member : kMembers) {
        const auto value = static_cast<int64_t>(attribute(options, member.attribute));
        std::memcpy(to + member.offset, &value, member.bytes);  // little endian
    }
}

}  // namespace
}  // namespace emu::cuda

bool emu::tensors_are_device_memory() { return cuda::options().tensors; }

using namespace emu;
using namespace emu::cuda;

API int cudaGetDevice(int* device) {
    *device = 0;
    return kSuccess;
}
API int cudaSetDevice(int device) {
    return device == 0 ? kSuccess : fail(101, "there is one emulated device, number 0");
}
API int cudaGetDeviceCount(int* count) {
    *count = 1;
    return kSuccess;
}
API int cudaDeviceGetAttribute(int* value, int which, int device) {
    if (device != 0) return fail(101);
    *value = attribute(options(), which);
    return kSuccess;
}
#if WARPWAVE_CUDA_MAJOR >= 13  // before, the structure was another one
API int cudaGetDeviceProperties(void* properties, int device) {
    if (device != 0) return fail(101);
    write_properties(static_cast<char*>(properties), options());
    return kSuccess;
}
#endif
API int cudaDeviceSynchronize() {
    if (const int error = none_captured("cudaDeviceSynchronize")) return error;
    return launch_failed();
}
API int cudaDeviceReset() {
    ptx::Heap::instance().reset();
    return kSuccess;
}
// Stacks and buffers of printf have no limit here.
API int cudaDeviceSetLimit(int limit, size_t bytes) {
    if (limit != kMallocHeapSize || ptx::Heap::instance().set_limit(bytes)) return kSuccess;
    return fail(kInvalidValue, "the size of the heap is set after the launch of a kernel that allocates");
}
API int cudaDeviceGetLimit(size_t* bytes, int limit) {
    *bytes = limit == kMallocHeapSize ? ptx::Heap::instance().limit() : size_t{1} << 20;
    return kSuccess;
}
API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return kSuccess;
}
API int cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return kSuccess;
}
API int cudaSetDeviceFlags(unsigned) { return kSuccess; }
API int cudaCtxResetPersistingL2Cache() { return kSuccess; }
API int cudaStreamSetAttribute(void*, int, const void*) { return kSuccess; }
API int cudaRuntimeGetVersion(int* version) {
    *version = WARPWAVE_CUDA_MAJOR * 1000;
    return kSuccess;
}
API int cudaDriverGetVersion(int* version) {
    *version = WARPWAVE_CUDA_MAJOR * 1000;
    return kSuccess;
}
API int cudaGetLastError() { return last_error(true); }
API int cudaPeekAtLastError() { return last_error(false); }
API const char* cudaGetErrorName(int error) {
    const Name* const known = named(error);
    return known ? known->name : "cudaErrorUnknown";
}
API const char* cudaGetErrorString(int error) {
    const Name* const known = named(error);
    return known ? known->text : "unknown error";
}

void emu::control::set(const std::string& option, const std::string& value) { apply(state().options, option, value); }

EXPORTED char* warpwave_emulator_take_findings() { return control::copied(state().findings.take()); }
EXPORTED char* warpwave_emulator_take_counters() { return control::copied(state().counters.take()); }
EXPORTED char* warpwave_emulator_take_message() {
    const std::lock_guard lock(state().mutex);
    return control::copied(std::exchange(state().message, ""));
}
