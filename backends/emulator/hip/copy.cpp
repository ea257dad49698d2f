// SPDX-License-Identifier: MIT
// Copies of linear memory. They are complete on return, the asynchronous ones, too.

#include <cstring>

#include "hip/graph.h"
#include "hip/memory.h"
#include "hip/queue.h"
#include "gfx942/recorded.h"

using namespace emu;

namespace {

void require_kind(hipMemcpyKind kind) {
    bool known = kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault;
    require(known || kind == hipMemcpyDeviceToDeviceNoCU, hipErrorInvalidMemcpyDirection);
}

hipError_t copy(
    const char* name, void* to, const void* from, size_t size, hipMemcpyKind kind = hipMemcpyDefault,
    hipStream_t queue = nullptr) {
    return device_api(name, [&] {
        require_queue(queue);
        require_kind(kind);
        if (captured(queue, hipGraphNodeTypeMemcpy, [=] { return copy(name, to, from, size, kind); }))
            return hipSuccess;
        require_range(to, size, "destination");
        require_range(from, size, "source");
        recorded::copy(to, from, size);
        if (size) std::memmove(to, from, size);
        if (kind != hipMemcpyHostToDevice && kind != hipMemcpyDeviceToHost) count_move(name, from, to, size);
        return hipSuccess;
    });
}

// A box of `width` bytes, `height` rows and `depth` slices inside memory of `pitch` bytes a row, `rows` a slice.
struct Box {
    const char* base;
    size_t pitch, rows;

    char* row(size_t y, size_t z) const { return const_cast<char*>(base) + (z * rows + y) * pitch; }
};

void copy_box(const Box& to, const Box& from, size_t width, size_t height, size_t depth) {
    if (width == 0 || height == 0 || depth == 0) return;
    require(to.base != nullptr && from.base != nullptr);
    bool many_rows = height > 1 || depth > 1;
    require(!many_rows || (to.pitch >= width && from.pitch >= width), hipErrorInvalidPitchValue);
    require(depth == 1 || (to.rows >= height && from.rows >= height));
    size_t last = height - 1, last_slice = depth - 1;
    require_range(to.base, static_cast<size_t>(to.row(last, last_slice) - to.base) + width, "destination");
    require_range(from.base, static_cast<size_t>(from.row(last, last_slice) - from.base) + width, "source");
    for (size_t z = 0; z < depth; ++z) {
        for (size_t y = 0; y < height; ++y) {
            recorded::copy(to.row(y, z), from.row(y, z), width);
            std::memmove(to.row(y, z), from.row(y, z), width);
        }
    }
}

hipError_t copy_2d(
    const char* name, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
    hipMemcpyKind kind, hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        require_kind(kind);
        const auto later = [=] { return copy_2d(name, to, to_pitch, from, from_pitch, width, height, kind, nullptr); };
        if (captured(queue, hipGraphNodeTypeMemcpy, later)) return hipSuccess;
        copy_box(
            {static_cast<char*>(to), to_pitch, height}, {static_cast<const char*>(from), from_pitch, height}, width,
            height, 1);
        if (kind != hipMemcpyHostToDevice && kind != hipMemcpyDeviceToHost) count_move(name, from, to, width * height);
        return hipSuccess;
    });
}

[[noreturn]] void refuse_array() { throw ApiError(hipErrorNotSupported, "arrays: CDNA3 has no image hardware"); }

hipError_t copy_3d(const char* name, const hipMemcpy3DParms* p, hipStream_t queue) {
    return device_api(name, [&] {
        require(p != nullptr);
        require_queue(queue);
        if (captured(queue, hipGraphNodeTypeMemcpy, [name, p = *p] { return copy_3d(name, &p, nullptr); }))
            return hipSuccess;
        if (p->srcArray || p->dstArray) refuse_array();
        require_kind(p->kind);
        auto box = [](const hipPitchedPtr& memory, const hipPos& at) {
            Box all{static_cast<char*>(memory.ptr), memory.pitch, memory.ysize};
            return memory.ptr ? Box{all.row(at.y, at.z) + at.x, memory.pitch, memory.ysize} : all;
        };
        copy_box(
            box(p->dstPtr, p->dstPos), box(p->srcPtr, p->srcPos), p->extent.width, p->extent.height, p->extent.depth);
        return hipSuccess;
    });
}

// The side of a driver-style copy that the memory type names.
Box driver_side(
    hipMemoryType type, const void* host, hipDeviceptr_t device, size_t pitch, size_t rows, size_t x, size_t y,
    size_t z, size_t width) {
    if (type == hipMemoryTypeArray) refuse_array();
    const void* base = type == hipMemoryTypeHost ? host : device;
    Box all{static_cast<const char*>(base), pitch ? pitch : width + x, rows};
    return base ? Box{all.row(y, z) + x, all.pitch, rows} : all;
}

hipError_t copy_driver_2d(const char* name, const hip_Memcpy2D* p, hipStream_t queue) {
    return device_api(name, [&] {
        require(p != nullptr);
        require_queue(queue);
        copy_box(
            driver_side(
                p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, p->Height, p->dstXInBytes, p->dstY, 0,
                p->WidthInBytes),
            driver_side(
                p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, p->Height, p->srcXInBytes, p->srcY, 0,
                p->WidthInBytes),
            p->WidthInBytes, p->Height, 1);
        return hipSuccess;
    });
}

hipError_t copy_driver_3d(const char* name, const HIP_MEMCPY3D* p, hipStream_t queue) {
    return device_api(name, [&] {
        require(p != nullptr);
        require_queue(queue);
        copy_box(
            driver_side(
                p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, p->dstHeight ? p->dstHeight : p->Height,
                p->dstXInBytes, p->dstY, p->dstZ, p->WidthInBytes),
            driver_side(
                p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, p->srcHeight ? p->srcHeight : p->Height,
                p->srcXInBytes, p->srcY, p->srcZ, p->WidthInBytes),
            p->WidthInBytes, p->Height, p->Depth);
        return hipSuccess;
    });
}

}  // namespace

EMU_API hipError_t hipMemcpy(void* to, const void* from, size_t size, hipMemcpyKind kind) {
    return copy("hipMemcpy", to, from, size, kind);
}

EMU_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t queue) {
    return copy("hipMemcpyAsync", to, from, size, kind, queue);
}

EMU_API hipError_t hipMemcpyWithStream(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t queue) {
    return copy("hipMemcpyWithStream", to, from, size, kind, queue);
}

EMU_API hipError_t hipMemcpyHtoD(hipDeviceptr_t to, const void* from, size_t size) {
    return copy("hipMemcpyHtoD", to, from, size);
}

EMU_API hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t size) {
    return copy("hipMemcpyDtoH", to, from, size);
}

EMU_API hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t size) {
    return copy("hipMemcpyDtoD", to, from, size);
}

EMU_API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void* from, size_t size, hipStream_t queue) {
    return copy("hipMemcpyHtoDAsync", to, from, size, hipMemcpyDefault, queue);
}

EMU_API hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t size, hipStream_t queue) {
    return copy("hipMemcpyDtoHAsync", to, from, size, hipMemcpyDefault, queue);
}

EMU_API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t queue) {
    return copy("hipMemcpyDtoDAsync", to, from, size, hipMemcpyDefault, queue);
}

EMU_API hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t size) {
    if (!is_device(to_device) || !is_device(from_device)) return record(hipErrorInvalidDevice);
    return copy("hipMemcpyPeer", to, from, size);
}

EMU_API hipError_t
hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t size, hipStream_t queue) {
    if (!is_device(to_device) || !is_device(from_device)) return record(hipErrorInvalidDevice);
    return copy("hipMemcpyPeerAsync", to, from, size, hipMemcpyDefault, queue);
}

EMU_API hipError_t hipMemcpy2D(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, hipMemcpyKind kind) {
    return copy_2d("hipMemcpy2D", to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}

EMU_API hipError_t hipMemcpy2DAsync(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, hipMemcpyKind kind,
    hipStream_t queue) {
    return copy_2d("hipMemcpy2DAsync", to, to_pitch, from, from_pitch, width, height, kind, queue);
}

EMU_API hipError_t hipMemcpyParam2D(const hip_Memcpy2D* p) { return copy_driver_2d("hipMemcpyParam2D", p, nullptr); }

EMU_API hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D* p, hipStream_t queue) {
    return copy_driver_2d("hipMemcpyParam2DAsync", p, queue);
}

EMU_API hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D* p) {
    return copy_driver_2d("hipDrvMemcpy2DUnaligned", p, nullptr);
}

EMU_API hipError_t hipMemcpy3D(const hipMemcpy3DParms* p) { return copy_3d("hipMemcpy3D", p, nullptr); }

EMU_API hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* p, hipStream_t queue) {
    return copy_3d("hipMemcpy3DAsync", p, queue);
}

EMU_API hipError_t hipDrvMemcpy3D(const HIP_MEMCPY3D* p) { return copy_driver_3d("hipDrvMemcpy3D", p, nullptr); }

EMU_API hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D* p, hipStream_t queue) {
    return copy_driver_3d("hipDrvMemcpy3DAsync", p, queue);
}
