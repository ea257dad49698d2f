// SPDX-License-Identifier: MIT
// Memory pools. Freed memory goes back at once, so a pool holds nothing between calls: it is a handle with the
// settings that were made.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "hip/memory.h"
#include "hip/queue.h"

struct ihipMemPoolHandle_t {
    std::map<int, uint64_t> settings{
        {hipMemPoolReuseFollowEventDependencies, 1},
        {hipMemPoolReuseAllowOpportunistic, 1},
        {hipMemPoolReuseAllowInternalDependencies, 1},
        {hipMemPoolAttrReleaseThreshold, 0}};
};

using namespace emu;

namespace {

struct Pools {
    std::mutex mutex;
    ihipMemPoolHandle_t standard;
    hipMemPool_t current = &standard;
    std::set<std::unique_ptr<ihipMemPoolHandle_t>> created;
};

Pools& pools() { return immortal<Pools>(); }

// Call with the mutex held.
void require_pool(hipMemPool_t pool) {
    bool known = pool == &pools().standard;
    for (const auto& each : pools().created) known |= each.get() == pool;
    require(pool != nullptr && known);
}

bool is_wide(hipMemPoolAttr which) { return which >= hipMemPoolAttrReleaseThreshold; }

}  // namespace

EMU_API hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device) {
    return api("hipDeviceGetDefaultMemPool", [&] {
        require(pool != nullptr);
        require_device(device);
        *pool = &pools().standard;
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device) {
    return api("hipDeviceGetMemPool", [&] {
        require(pool != nullptr);
        require_device(device);
        std::lock_guard lock(pools().mutex);
        *pool = pools().current;
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool) {
    return api("hipDeviceSetMemPool", [&] {
        require_device(device);
        std::lock_guard lock(pools().mutex);
        require_pool(pool);
        pools().current = pool;
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties) {
    return api("hipMemPoolCreate", [&] {
        require(pool != nullptr && properties != nullptr);
        require(
            properties->allocType == hipMemAllocationTypePinned &&
            properties->location.type == hipMemLocationTypeDevice && properties->location.id == 0);
        if (properties->handleTypes != hipMemHandleTypeNone) {
            throw ApiError(hipErrorNotSupported, "memory of the emulated device cannot be shared with other processes");
        }
        std::lock_guard lock(pools().mutex);
        *pool = pools().created.insert(std::make_unique<ihipMemPoolHandle_t>()).first->get();
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
    return api("hipMemPoolDestroy", [&] {
        std::lock_guard lock(pools().mutex);
        require_pool(pool);
        require(pool != &pools().standard);
        if (pools().current == pool) pools().current = &pools().standard;
        std::erase_if(pools().created, [&](const auto& each) { return each.get() == pool; });
        return hipSuccess;
    });
}

EMU_API hipError_t hipMallocFromPoolAsync(void** pointer, size_t size, hipMemPool_t pool, hipStream_t queue) {
    return device_api("hipMallocFromPoolAsync", [&] {
        require(pointer != nullptr);
        require_queue(queue);
        {
            std::lock_guard lock(pools().mutex);
            require_pool(pool);
        }
        *pointer = allocate(size, MemoryKind::kDevice, 0, "hipMallocFromPoolAsync");
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t) {
    return api("hipMemPoolTrimTo", [&] {
        std::lock_guard lock(pools().mutex);
        require_pool(pool);
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr which, void* value) {
    return api("hipMemPoolSetAttribute", [&] {
        require(value != nullptr);
        std::lock_guard lock(pools().mutex);
        require_pool(pool);
        require(pool->settings.contains(which));
        pool->settings[which] =
            is_wide(which) ? *static_cast<uint64_t*>(value) : static_cast<uint64_t>(*static_cast<int*>(value));
        return hipSuccess;
    });
}

EMU_API hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr which, void* value) {
    return api("hipMemPoolGetAttribute", [&] {
        require(value != nullptr);
        std::lock_guard lock(pools().mutex);
        require_pool(pool);
        if (auto found = pool->settings.find(which); found != pool->settings.end()) {
            if (is_wide(which)) {
                *static_cast<uint64_t*>(value) = found->second;
            } else {
                *static_cast<int*>(value) = static_cast<int>(found->second);
            }
            return hipSuccess;
        }
        throw ApiError(hipErrorNotSupported, "pools do not count what they hand out");
    });
}
