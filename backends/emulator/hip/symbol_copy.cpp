// SPDX-License-Identifier: MIT
// Copies to and from device variables.

#include <cstring>

#include "hip/memory.h"
#include "hip/module.h"
#include "hip/queue.h"
#include "gfx942/recorded.h"

using namespace emu;

namespace {

char* place(const void* symbol, size_t size, size_t offset) {
    auto [begin, whole] = variable_of(symbol);
    require(offset <= whole && size <= whole - offset);
    return static_cast<char*>(begin) + offset;
}

hipError_t to_symbol(
    const char* name, const void* symbol, const void* from, size_t size, size_t offset, hipMemcpyKind kind,
    hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        require(
            kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice || kind == hipMemcpyDefault,
            hipErrorInvalidMemcpyDirection);
        char* to = place(symbol, size, offset);
        require_range(from, size, "source");
        recorded::copy(to, from, size);
        if (size) std::memmove(to, from, size);
        return hipSuccess;
    });
}

hipError_t from_symbol(
    const char* name, void* to, const void* symbol, size_t size, size_t offset, hipMemcpyKind kind, hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        require(
            kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice || kind == hipMemcpyDefault,
            hipErrorInvalidMemcpyDirection);
        const char* from = place(symbol, size, offset);
        require_range(to, size, "destination");
        recorded::copy(to, from, size);
        if (size) std::memmove(to, from, size);
        return hipSuccess;
    });
}

}  // namespace

EMU_API hipError_t
hipMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, hipMemcpyKind kind) {
    return to_symbol("hipMemcpyToSymbol", symbol, from, size, offset, kind, nullptr);
}

EMU_API hipError_t hipMemcpyToSymbolAsync(
    const void* symbol, const void* from, size_t size, size_t offset, hipMemcpyKind kind, hipStream_t queue) {
    return to_symbol("hipMemcpyToSymbolAsync", symbol, from, size, offset, kind, queue);
}

EMU_API hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset, hipMemcpyKind kind) {
    return from_symbol("hipMemcpyFromSymbol", to, symbol, size, offset, kind, nullptr);
}

EMU_API hipError_t hipMemcpyFromSymbolAsync(
    void* to, const void* symbol, size_t size, size_t offset, hipMemcpyKind kind, hipStream_t queue) {
    return from_symbol("hipMemcpyFromSymbolAsync", to, symbol, size, offset, kind, queue);
}
