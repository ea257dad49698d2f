// SPDX-License-Identifier: MIT
// Memory, streams and events. Device memory is host memory, and everything has happened when a call returns.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "api.h"
#include "device.h"
#include "gfx942/memory.h"

using namespace emu;
using namespace emu::cuda;

void* emu_cuda_symbol(const void* host, size_t* bytes);

namespace {

int allocate(void** pointer, size_t bytes, const char* what) {
    if (!pointer) return fail(kInvalidValue);
    *pointer = bytes ? device_malloc(bytes, what) : nullptr;
    return !bytes || *pointer ? kSuccess : fail(kMemoryAllocation, "no memory for " + std::to_string(bytes) + " bytes");
}
int release(void* pointer) {
    return !pointer || device_free(pointer) ? kSuccess
                                            : fail(kInvalidValue, "cudaFree of memory that is not the device's");
}
int copied(void* to, const void* from, size_t bytes) {
    if (bytes && (!to || !from)) return fail(kInvalidValue);
    if (bytes) std::memmove(to, from, bytes);
    return kSuccess;
}
int filled(void* to, int value, size_t bytes) {
    if (bytes && !to) return fail(kInvalidValue);
    if (bytes) std::memset(to, value, bytes);
    return kSuccess;
}

struct Event {
    std::chrono::steady_clock::time_point when;
};

}  // namespace

API int cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes, "cudaMalloc"); }
API int cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
    return allocate(pointer, bytes, "cudaMallocManaged");
}
API int cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes, "cudaMallocHost"); }
API int cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes, "cudaHostAlloc"); }
API int cudaMallocAsync(void** pointer, size_t bytes, void*) { return allocate(pointer, bytes, "cudaMallocAsync"); }
API int cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(pointer, *pitch * height, "cudaMallocPitch");
}
API int cudaFree(void* pointer) { return release(pointer); }
API int cudaFreeHost(void* pointer) { return release(pointer); }
API int cudaFreeAsync(void* pointer, void*) { return release(pointer); }
API int cudaHostRegister(void* pointer, size_t bytes, unsigned) {
    register_host(pointer, bytes, "cudaHostRegister");
    return kSuccess;
}
API int cudaHostUnregister(void* pointer) { return unregister_host(pointer) ? kSuccess : fail(kInvalidValue); }
API int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return kSuccess;
}
API int cudaMemGetInfo(size_t* free, size_t* total) {
    *total = options().gpu->memory;
    *free = *total - std::min(*total, device_bytes());
    return kSuccess;
}

API int cudaMemcpy(void* to, const void* from, size_t bytes, int) { return copied(to, from, bytes); }
API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) { return copied(to, from, bytes); }
API int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int) {
    if (width > to_pitch || width > from_pitch) return fail(kInvalidPitch);
    for (size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    return kSuccess;
}
API int cudaMemcpy2DAsync(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind, void*) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
API int cudaMemset(void* to, int value, size_t bytes) { return filled(to, value, bytes); }
API int cudaMemsetAsync(void* to, int value, size_t bytes, void*) { return filled(to, value, bytes); }
API int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, int) {
    size_t size = 0;
    void* const to = emu_cuda_symbol(symbol, &size);
    if (!to) return fail(kInvalidSymbol, "no variable is registered at that address");
    if (offset + bytes > size) return fail(kInvalidValue, "a copy behind the end of the variable");
    return copied(static_cast<char*>(to) + offset, from, bytes);
}
API int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, int kind, void*) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
API int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, int) {
    size_t size = 0;
    const void* const from = emu_cuda_symbol(symbol, &size);
    if (!from) return fail(kInvalidSymbol, "no variable is registered at that address");
    if (offset + bytes > size) return fail(kInvalidValue, "a copy behind the end of the variable");
    return copied(to, static_cast<const char*>(from) + offset, bytes);
}
API int cudaGetSymbolAddress(void** pointer, const void* symbol) {
    *pointer = emu_cuda_symbol(symbol, nullptr);
    return *pointer ? kSuccess : fail(kInvalidSymbol);
}

API int cudaStreamCreate(void** stream) {
    *stream = std::malloc(1);
    return kSuccess;
}
API int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
API int cudaStreamCreateWithPriority(void** stream, unsigned, int) { return cudaStreamCreate(stream); }
API int cudaStreamDestroy(void* stream) {
    std::free(stream);
    return kSuccess;
}
API int cudaStreamSynchronize(void*) { return launch_failed(); }
API int cudaStreamQuery(void*) { return kSuccess; }
API int cudaStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
API int cudaStreamIsCapturing(void*, int* status) {
    *status = 0;
    return kSuccess;
}

API int cudaEventCreate(void** event) {
    *event = new Event{std::chrono::steady_clock::now()};
    return kSuccess;
}
API int cudaEventCreateWithFlags(void** event, unsigned) { return cudaEventCreate(event); }
API int cudaEventDestroy(void* event) {
    delete static_cast<Event*>(event);
    return kSuccess;
}
API int cudaEventRecord(void* event, void*) {
    static_cast<Event*>(event)->when = std::chrono::steady_clock::now();
    return kSuccess;
}
API int cudaEventSynchronize(void*) { return kSuccess; }
API int cudaEventQuery(void*) { return kSuccess; }
/// Of the emulation on this CPU: it says nothing about a GPU.
API int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
    const auto span = static_cast<Event*>(end)->when - static_cast<Event*>(begin)->when;
    *milliseconds = std::chrono::duration<float, std::milli>(span).count();
    return kSuccess;
}
