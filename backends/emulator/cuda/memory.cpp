// SPDX-License-Identifier: MIT
// Memory. The device's is the host's, and everything has happened when a call returns, unless its stream is captured.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "api.h"
#include "device.h"
#include "graph.h"
#include "core/memory.h"

using namespace emu;
using namespace emu::cuda;

void* emu_cuda_symbol(const void* host, size_t* bytes);

namespace {

int allocate(void** pointer, size_t bytes, const char* what) {
    if (!pointer) return fail(kInvalidValue);
    if (const int error = safe_in_captures(what)) return error;
    *pointer = bytes ? device_malloc(bytes, what) : nullptr;
    return !bytes || *pointer ? kSuccess : fail(kMemoryAllocation, "no memory for " + std::to_string(bytes) + " bytes");
}
int release(void* pointer) {
    if (const int error = safe_in_captures("cudaFree")) return error;
    return !pointer || device_free(pointer) ? kSuccess
                                            : fail(kInvalidValue, "cudaFree of memory that is not the device's");
}
/// Now, or as a node if the stream is captured.
int done(void* stream, Work work) {
    return is_capturing(stream) ? capture(stream, std::move(work)) : carry_out(work, stream);
}
int copied(void* to, const void* from, size_t bytes, void* stream) {
    if (bytes && (!to || !from)) return fail(kInvalidValue);
    return done(stream, CopyWork{to, from, bytes});
}
int filled(void* to, int value, size_t bytes, void* stream) {
    if (bytes && !to) return fail(kInvalidValue);
    return done(stream, FillWork{to, static_cast<unsigned>(value), 1, bytes});
}
int copied_rows(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, void* stream) {
    if (width > to_pitch || width > from_pitch) return fail(kInvalidPitch);
    return done(stream, CopyWork{to, from, width, height, 1, to_pitch, from_pitch});
}
int to_symbol(const void* symbol, const void* from, size_t bytes, size_t offset, void* stream) {
    size_t size = 0;
    void* const to = emu_cuda_symbol(symbol, &size);
    if (!to) return fail(kInvalidSymbol, "no variable is registered at that address");
    if (offset + bytes > size) return fail(kInvalidValue, "a copy behind the end of the variable");
    return copied(static_cast<char*>(to) + offset, from, bytes, stream);
}
int from_symbol(void* to, const void* symbol, size_t bytes, size_t offset, void* stream) {
    size_t size = 0;
    const void* const from = emu_cuda_symbol(symbol, &size);
    if (!from) return fail(kInvalidSymbol, "no variable is registered at that address");
    if (offset + bytes > size) return fail(kInvalidValue, "a copy behind the end of the variable");
    return copied(to, static_cast<const char*>(from) + offset, bytes, stream);
}

}  // namespace

API int cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes, "cudaMalloc"); }
API int cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
    return allocate(pointer, bytes, "cudaMallocManaged");
}
API int cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes, "cudaMallocHost"); }
API int cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes, "cudaHostAlloc"); }
API int cudaMallocAsync(void** pointer, size_t bytes, void* stream) {
    if (const int error = not_captured(stream, "cudaMallocAsync")) return error;
    return allocate(pointer, bytes, "cudaMallocAsync");
}
API int cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = round_up(width, 512);
    return allocate(pointer, *pitch * height, "cudaMallocPitch");
}
API int cudaFree(void* pointer) { return release(pointer); }
API int cudaFreeHost(void* pointer) { return release(pointer); }
API int cudaFreeAsync(void* pointer, void* stream) {
    if (const int error = not_captured(stream, "cudaFreeAsync")) return error;
    return release(pointer);
}
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

API int cudaMemcpy(void* to, const void* from, size_t bytes, int) { return copied(to, from, bytes, nullptr); }
API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
    return copied(to, from, bytes, stream);
}
API int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int) {
    return copied_rows(to, to_pitch, from, from_pitch, width, height, nullptr);
}
API int cudaMemcpy2DAsync(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int, void* stream) {
    return copied_rows(to, to_pitch, from, from_pitch, width, height, stream);
}
API int cudaMemset(void* to, int value, size_t bytes) { return filled(to, value, bytes, nullptr); }
API int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) { return filled(to, value, bytes, stream); }
API int cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, void* stream) {
    if (width > pitch) return fail(kInvalidPitch);
    if (width && height && !to) return fail(kInvalidValue);
    return done(stream, FillWork{to, static_cast<unsigned>(value), 1, width, height, pitch});
}
API int cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}
/// cudaPointerAttributes: what kind of memory, device, and its address there and here.
struct PointerAttributes {
    int type, device;
    void *on_device, *on_host;
    char rest[64];
};
API int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
    constexpr int kUnregistered = 0, kDevice = 2;
    const Allocation* const known = find_allocation(reinterpret_cast<uintptr_t>(pointer));
    void* const there = const_cast<void*>(pointer);
    *attributes = {
        known ? kDevice : kUnregistered, known ? 0 : -2, known ? there : nullptr, known ? nullptr : there, {}};
    return kSuccess;
}
API int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, int) {
    return to_symbol(symbol, from, bytes, offset, nullptr);
}
API int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, int, void* stream) {
    return to_symbol(symbol, from, bytes, offset, stream);
}
API int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, int) {
    return from_symbol(to, symbol, bytes, offset, nullptr);
}
API int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, int, void* stream) {
    return from_symbol(to, symbol, bytes, offset, stream);
}
API int cudaGetSymbolAddress(void** pointer, const void* symbol) {
    *pointer = emu_cuda_symbol(symbol, nullptr);
    return *pointer ? kSuccess : fail(kInvalidSymbol);
}
