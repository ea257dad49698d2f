// SPDX-License-Identifier: MIT
// What HIP says about a pointer. Memory that HIP did not allocate is "unregistered", yet the device can use it: its
// device pointer is itself.

#include <cstdint>

#include "hip/memory.h"

using namespace emu;

namespace {

hipMemoryType type_of(const std::optional<Block>& block) {
    if (!block) return hipMemoryTypeUnregistered;
    switch (block->kind) {
        case MemoryKind::kDevice: return hipMemoryTypeDevice;
        case MemoryKind::kManaged: return hipMemoryTypeManaged;
        case MemoryKind::kHost:
        case MemoryKind::kRegistered: break;
    }
    return hipMemoryTypeHost;
}

template <class T>
void answer(void* data, T value) {
    *static_cast<T*>(data) = value;
}

hipError_t attribute(void* data, hipPointer_attribute which, void* pointer) {
    require(data != nullptr && pointer != nullptr);
    std::optional<Block> block = find_block(pointer);
    switch (which) {
        case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: answer(data, pointer); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_MAPPED: answer<unsigned>(data, block ? 1 : 0); return hipSuccess;
        default: break;
    }
    require(block.has_value());
    switch (which) {
        case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: answer<unsigned>(data, type_of(block)); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
            require(block->kind != MemoryKind::kDevice);
            answer(data, pointer);
            return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_BUFFER_ID: answer<unsigned long long>(data, block->number); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
            answer<unsigned>(data, block->kind == MemoryKind::kManaged);
            return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: answer<int>(data, block->device); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: answer(data, block->begin); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: answer(data, block->size); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS: answer<unsigned>(data, 1); return hipSuccess;
        case HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            answer<unsigned>(data, hipMemAccessFlagsProtReadWrite);
            return hipSuccess;
        default: throw ApiError(hipErrorNotSupported, "attribute " + std::to_string(which) + " of a pointer");
    }
}

}  // namespace

EMU_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
    return api("hipPointerGetAttributes", [&] {
        require(attributes != nullptr && pointer != nullptr);
        std::optional<Block> block = find_block(pointer);
        void* same = const_cast<void*>(pointer);
        *attributes = {};
        attributes->type = type_of(block);
        attributes->device = block ? block->device : hipInvalidDeviceId;
        attributes->devicePointer = same;
        attributes->hostPointer = block && block->kind == MemoryKind::kDevice ? nullptr : same;
        attributes->isManaged = block && block->kind == MemoryKind::kManaged;
        attributes->allocationFlags = block ? block->flags : 0;
        return hipSuccess;
    });
}

EMU_API hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute which, hipDeviceptr_t pointer) {
    return api("hipPointerGetAttribute", [&] { return attribute(data, which, pointer); });
}

EMU_API hipError_t
hipDrvPointerGetAttributes(unsigned count, hipPointer_attribute* which, void** data, hipDeviceptr_t pointer) {
    return api("hipDrvPointerGetAttributes", [&] {
        require(count != 0 && which != nullptr && data != nullptr);
        for (unsigned i = 0; i < count; ++i) {
            if (hipError_t error = attribute(data[i], which[i], pointer); error != hipSuccess) return error;
        }
        return hipSuccess;
    });
}

EMU_API hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned flags) {
    return api("hipHostGetDevicePointer", [&] {
        require(device != nullptr && host != nullptr && flags == 0);
        std::optional<Block> block = find_block(host);
        require(block && block->kind != MemoryKind::kDevice);
        *device = host;
        return hipSuccess;
    });
}

EMU_API hipError_t hipHostGetFlags(unsigned* flags, void* host) {
    return api("hipHostGetFlags", [&] {
        require(flags != nullptr && host != nullptr);
        std::optional<Block> block = find_block(host);
        require(block && block->kind != MemoryKind::kDevice);
        *flags = block->flags;
        return hipSuccess;
    });
}

// Hints about where memory should lie: there is one place for it, so every valid hint is followed already.

EMU_API hipError_t hipMemAdvise(const void* pointer, size_t size, hipMemoryAdvise, int device) {
    return api("hipMemAdvise", [&] {
        require(is_device(device) || device == hipCpuDeviceId, hipErrorInvalidDevice);
        require(size != 0);
        require_range(pointer, size, "memory");
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPrefetchAsync(const void* pointer, size_t size, int device, hipStream_t) {
    return api("hipMemPrefetchAsync", [&] {
        require(is_device(device) || device == hipCpuDeviceId, hipErrorInvalidDevice);
        require(size != 0);
        require_range(pointer, size, "memory");
        return hipSuccess;
    });
}
