// SPDX-License-Identifier: MIT
// Error codes: names and strings, the last error of each thread, and the fault that makes the device unusable.

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

#include "hip/api.h"
#include "loader/code_object.h"

namespace emu {
namespace {

struct Entry {
    hipError_t code;
    const char* name;
    const char* text;
};

#define ENTRY(code, text) {code, #code, text}
constexpr Entry kErrors[] = {
    ENTRY(hipSuccess, "no error"),
    ENTRY(hipErrorInvalidValue, "invalid argument"),
    ENTRY(hipErrorOutOfMemory, "out of memory"),
    ENTRY(hipErrorNotInitialized, "initialization error"),
    ENTRY(hipErrorDeinitialized, "the runtime is shutting down"),
    ENTRY(hipErrorProfilerDisabled, "the profiler is disabled"),
    ENTRY(hipErrorProfilerNotInitialized, "the profiler is not initialized"),
    ENTRY(hipErrorProfilerAlreadyStarted, "the profiler runs already"),
    ENTRY(hipErrorProfilerAlreadyStopped, "the profiler does not run"),
    ENTRY(hipErrorInvalidConfiguration, "invalid launch configuration"),
    ENTRY(hipErrorInvalidPitchValue, "invalid pitch"),
    ENTRY(hipErrorInvalidSymbol, "invalid device symbol"),
    ENTRY(hipErrorInvalidDevicePointer, "invalid device pointer"),
    ENTRY(hipErrorInvalidMemcpyDirection, "invalid direction of a memory copy"),
    ENTRY(hipErrorInsufficientDriver, "the driver is older than the runtime needs"),
    ENTRY(hipErrorMissingConfiguration, "a kernel was launched without a configuration"),
    ENTRY(hipErrorPriorLaunchFailure, "an earlier launch failed"),
    ENTRY(hipErrorInvalidDeviceFunction, "invalid device function"),
    ENTRY(hipErrorNoDevice, "no HIP device is there"),
    ENTRY(hipErrorInvalidDevice, "invalid device number"),
    ENTRY(hipErrorInvalidImage, "the kernel image is invalid"),
    ENTRY(hipErrorInvalidContext, "invalid device context"),
    ENTRY(hipErrorContextAlreadyCurrent, "the context is current already"),
    ENTRY(hipErrorMapFailed, "mapping failed"),
    ENTRY(hipErrorUnmapFailed, "unmapping failed"),
    ENTRY(hipErrorArrayIsMapped, "the array is mapped"),
    ENTRY(hipErrorAlreadyMapped, "the resource is mapped already"),
    ENTRY(hipErrorNoBinaryForGpu, "no kernel image for this device"),
    ENTRY(hipErrorAlreadyAcquired, "the resource is taken already"),
    ENTRY(hipErrorNotMapped, "the resource is not mapped"),
    ENTRY(hipErrorNotMappedAsArray, "the resource is not mapped as an array"),
    ENTRY(hipErrorNotMappedAsPointer, "the resource is not mapped as a pointer"),
    ENTRY(hipErrorECCNotCorrectable, "a memory error that ECC cannot correct"),
    ENTRY(hipErrorUnsupportedLimit, "the device does not support this limit"),
    ENTRY(hipErrorContextAlreadyInUse, "another thread uses the context"),
    ENTRY(hipErrorPeerAccessUnsupported, "the devices cannot access each other"),
    ENTRY(hipErrorInvalidKernelFile, "the kernel file is invalid"),
    ENTRY(hipErrorInvalidGraphicsContext, "invalid graphics context"),
    ENTRY(hipErrorInvalidSource, "invalid device source"),
    ENTRY(hipErrorFileNotFound, "file not found"),
    ENTRY(hipErrorSharedObjectSymbolNotFound, "a symbol of a shared object is missing"),
    ENTRY(hipErrorSharedObjectInitFailed, "a shared object did not initialize"),
    ENTRY(hipErrorOperatingSystem, "an operating system call failed"),
    ENTRY(hipErrorInvalidHandle, "invalid resource handle"),
    ENTRY(hipErrorIllegalState, "a resource is in the wrong state for this call"),
    ENTRY(hipErrorNotFound, "named symbol not found"),
    ENTRY(hipErrorNotReady, "device not ready"),
    ENTRY(hipErrorIllegalAddress, "a kernel accessed memory illegally"),
    ENTRY(hipErrorLaunchOutOfResources, "the launch asks for more resources than the device has"),
    ENTRY(hipErrorLaunchTimeOut, "the launch timed out and was stopped"),
    ENTRY(hipErrorPeerAccessAlreadyEnabled, "peer access is enabled already"),
    ENTRY(hipErrorPeerAccessNotEnabled, "peer access is not enabled"),
    ENTRY(hipErrorSetOnActiveProcess, "cannot be set once the device is in use"),
    ENTRY(hipErrorContextIsDestroyed, "the context is destroyed"),
    ENTRY(hipErrorAssert, "an assertion on the device failed"),
    ENTRY(hipErrorHostMemoryAlreadyRegistered, "the host memory is registered already"),
    ENTRY(hipErrorHostMemoryNotRegistered, "the host memory is not registered"),
    ENTRY(hipErrorLaunchFailure, "a kernel failed on the device"),
    ENTRY(hipErrorCooperativeLaunchTooLarge, "too many blocks for a cooperative launch"),
    ENTRY(hipErrorNotSupported, "not supported"),
    ENTRY(hipErrorStreamCaptureUnsupported, "not permitted while the stream is capturing"),
    ENTRY(hipErrorStreamCaptureInvalidated, "an earlier error ended the capture of the stream"),
    ENTRY(hipErrorStreamCaptureMerge, "the capture would merge with another one"),
    ENTRY(hipErrorStreamCaptureUnmatched, "the capture did not begin in this stream"),
    ENTRY(hipErrorStreamCaptureUnjoined, "the capture has a fork that was not joined"),
    ENTRY(hipErrorStreamCaptureIsolation, "a dependency would cross the border of the capture"),
    ENTRY(hipErrorStreamCaptureImplicit, "the capture would depend on the legacy stream"),
    ENTRY(hipErrorCapturedEvent, "not permitted on an event that a capture recorded"),
    ENTRY(hipErrorStreamCaptureWrongThread, "the capture began in another thread"),
    ENTRY(hipErrorGraphExecUpdateFailure, "the graph cannot be updated like this"),
    ENTRY(hipErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    ENTRY(hipErrorInvalidTexture, "invalid texture"),
    ENTRY(hipErrorUnknown, "unknown error"),
    ENTRY(hipErrorRuntimeMemory, "a memory call of the runtime failed"),
    ENTRY(hipErrorRuntimeOther, "a call of the runtime failed"),
    ENTRY(hipErrorTbd, "an error without a code yet"),
};
#undef ENTRY

const Entry* find(hipError_t code) {
    for (const Entry& entry : kErrors) {
        if (entry.code == code) return &entry;
    }
    return nullptr;
}

thread_local hipError_t last_result = hipSuccess;
thread_local hipError_t last_error = hipSuccess;
std::atomic<hipError_t> fault{hipSuccess};
std::mutex complaint_mutex;
std::string complaint;  // the newest, until somebody takes it

}  // namespace

hipError_t record(hipError_t code) noexcept {
    last_result = code;
    if (code != hipSuccess && code != hipErrorNotReady) last_error = code;
    return code;
}

void complain(const char* api, const std::string& message) noexcept {
    try {
        std::lock_guard lock(complaint_mutex);
        complaint = std::string(api) + ": " + message;
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): stderr gets it all the same
    }
    std::fprintf(stderr, "warpwave emulator: %s: %s\n", api, message.c_str());
}

hipError_t unsupported(const char* api) noexcept {
    struct Told {
        std::mutex mutex;
        std::set<std::string_view> names;  // literals all
    };
    Told& told = immortal<Told>();
    std::lock_guard lock(told.mutex);
    if (told.names.insert(api).second) complain(api, "not supported by the emulated device (hipErrorNotSupported)");
    return record(hipErrorNotSupported);
}

hipError_t device_fault() noexcept { return fault.load(std::memory_order_relaxed); }

void set_device_fault(hipError_t code) noexcept { fault.store(code, std::memory_order_relaxed); }

hipError_t explain_exception(const char* name) noexcept {
    try {
        throw;
    } catch (const ApiError& error) {
        if (!error.message.empty()) complain(name, error.message);
        return error.code;
    } catch (const loader::LoadError& error) {
        complain(name, error.what());
        return hipErrorInvalidImage;
    } catch (const std::bad_alloc&) {
        return hipErrorOutOfMemory;
    } catch (const std::exception& error) {
        complain(name, error.what());
        return hipErrorUnknown;
    } catch (...) {
        return hipErrorUnknown;
    }
}

}  // namespace emu

using namespace emu;

// The newest message that went to stderr, "" if none did since the last call; to be given back with
// warpwave_emulator_free.
EMU_API char* warpwave_emulator_take_message(void) {
    std::lock_guard lock(complaint_mutex);
    char* copy = strdup(complaint.c_str());
    complaint.clear();
    return copy;
}

EMU_API hipError_t hipGetLastError(void) {
    hipError_t error = last_error != hipSuccess ? last_error : device_fault();
    last_error = hipSuccess;
    return error;
}

EMU_API hipError_t hipPeekAtLastError(void) { return last_error != hipSuccess ? last_error : device_fault(); }

EMU_API hipError_t hipExtGetLastError(void) {
    hipError_t result = last_result;
    last_result = hipSuccess;
    return result;
}

EMU_API const char* hipGetErrorName(hipError_t code) {
    const Entry* entry = find(code);
    return entry ? entry->name : "hipErrorUnknown";
}

EMU_API const char* hipGetErrorString(hipError_t code) {
    const Entry* entry = find(code);
    return entry ? entry->text : "unknown error";
}

EMU_API hipError_t hipDrvGetErrorName(hipError_t code, const char** name) {
    return api("hipDrvGetErrorName", [&] {
        require(name != nullptr);
        const Entry* entry = find(code);
        *name = entry ? entry->name : nullptr;
        return entry ? hipSuccess : hipErrorInvalidValue;
    });
}

EMU_API hipError_t hipDrvGetErrorString(hipError_t code, const char** text) {
    return api("hipDrvGetErrorString", [&] {
        require(text != nullptr);
        const Entry* entry = find(code);
        *text = entry ? entry->text : nullptr;
        return entry ? hipSuccess : hipErrorInvalidValue;
    });
}
