// SPDX-License-Identifier: MIT
// Fills of linear memory with a byte, a half word or a word. They are complete on return.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hip/graph.h"
#include "hip/memory.h"
#include "hip/queue.h"
#include "gfx942/recorded.h"

using namespace emu;

namespace {

template <class T>
void fill_row(void* to, T value, size_t count) {
    recorded::fill(to, static_cast<std::make_unsigned_t<T>>(value), sizeof(T), count);
    if constexpr (sizeof(T) == 1) {
        std::memset(to, value, count);
    } else {
        require(reinterpret_cast<uintptr_t>(to) % sizeof(T) == 0);
        std::fill_n(static_cast<T*>(to), count, value);
    }
}

template <class T>
hipError_t fill(const char* name, void* to, T value, size_t count, hipStream_t queue = nullptr) {
    return device_api(name, [&] {
        require_queue(queue);
        if (captured(queue, hipGraphNodeTypeMemset, [=] { return fill(name, to, value, count); })) return hipSuccess;
        require(count <= SIZE_MAX / sizeof(T));
        require_range(to, count * sizeof(T), "destination");
        if (count) fill_row(to, value, count);
        count_move(name, nullptr, to, count * sizeof(T));
        return hipSuccess;
    });
}

// `width` elements in each of `height` rows of each of `depth` slices of `rows` rows.
template <class T>
hipError_t fill_box(
    const char* name, void* to, size_t pitch, size_t rows, T value, size_t width, size_t height, size_t depth,
    hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        const auto later = [=] { return fill_box(name, to, pitch, rows, value, width, height, depth, nullptr); };
        if (captured(queue, hipGraphNodeTypeMemset, later)) return hipSuccess;
        if (width == 0 || height == 0 || depth == 0) return hipSuccess;
        size_t bytes = width * sizeof(T);
        require((height == 1 && depth == 1) || pitch >= bytes, hipErrorInvalidPitchValue);
        require(depth == 1 || rows >= height);
        require_range(to, ((depth - 1) * rows + height - 1) * pitch + bytes, "destination");
        for (size_t z = 0; z < depth; ++z) {
            for (size_t y = 0; y < height; ++y) fill_row(static_cast<char*>(to) + (z * rows + y) * pitch, value, width);
        }
        count_move(name, nullptr, to, bytes * height * depth);
        return hipSuccess;
    });
}

hipError_t fill_3d(const char* name, const hipPitchedPtr& to, int value, const hipExtent& extent, hipStream_t queue) {
    return fill_box(
        name, to.ptr, to.pitch, to.ysize, static_cast<uint8_t>(value), extent.width, extent.height, extent.depth,
        queue);
}

}  // namespace

EMU_API hipError_t hipMemset(void* to, int value, size_t size) {
    return fill("hipMemset", to, static_cast<uint8_t>(value), size);
}

EMU_API hipError_t hipMemsetAsync(void* to, int value, size_t size, hipStream_t queue) {
    return fill("hipMemsetAsync", to, static_cast<uint8_t>(value), size, queue);
}

EMU_API hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count) {
    return fill("hipMemsetD8", to, value, count);
}

EMU_API hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t queue) {
    return fill("hipMemsetD8Async", to, value, count, queue);
}

EMU_API hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count) {
    return fill("hipMemsetD16", to, value, count);
}

EMU_API hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t queue) {
    return fill("hipMemsetD16Async", to, value, count, queue);
}

EMU_API hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count) {
    return fill("hipMemsetD32", to, value, count);
}

EMU_API hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t queue) {
    return fill("hipMemsetD32Async", to, value, count, queue);
}

EMU_API hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return fill_box("hipMemset2D", to, pitch, height, static_cast<uint8_t>(value), width, height, 1, nullptr);
}

EMU_API hipError_t hipMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t queue) {
    return fill_box("hipMemset2DAsync", to, pitch, height, static_cast<uint8_t>(value), width, height, 1, queue);
}

EMU_API hipError_t hipMemset3D(hipPitchedPtr to, int value, hipExtent extent) {
    return fill_3d("hipMemset3D", to, value, extent, nullptr);
}

EMU_API hipError_t hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, hipStream_t queue) {
    return fill_3d("hipMemset3DAsync", to, value, extent, queue);
}

// The same for elements of a size, row by row.

EMU_API hipError_t hipMemsetD2D8(hipDeviceptr_t to, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill_box("hipMemsetD2D8", to, pitch, height, value, width, height, 1, nullptr);
}

EMU_API hipError_t hipMemsetD2D8Async(
    hipDeviceptr_t to, size_t pitch, unsigned char value, size_t width, size_t height, hipStream_t queue) {
    return fill_box("hipMemsetD2D8Async", to, pitch, height, value, width, height, 1, queue);
}

EMU_API hipError_t hipMemsetD2D16(hipDeviceptr_t to, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill_box("hipMemsetD2D16", to, pitch, height, value, width, height, 1, nullptr);
}

EMU_API hipError_t hipMemsetD2D16Async(
    hipDeviceptr_t to, size_t pitch, unsigned short value, size_t width, size_t height, hipStream_t queue) {
    return fill_box("hipMemsetD2D16Async", to, pitch, height, value, width, height, 1, queue);
}

EMU_API hipError_t hipMemsetD2D32(hipDeviceptr_t to, size_t pitch, unsigned value, size_t width, size_t height) {
    return fill_box("hipMemsetD2D32", to, pitch, height, value, width, height, 1, nullptr);
}

EMU_API hipError_t
hipMemsetD2D32Async(hipDeviceptr_t to, size_t pitch, unsigned value, size_t width, size_t height, hipStream_t queue) {
    return fill_box("hipMemsetD2D32Async", to, pitch, height, value, width, height, 1, queue);
}
