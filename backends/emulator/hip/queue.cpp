// SPDX-License-Identifier: MIT
// The queue half of the API. Callbacks run at once, waits end at once: all earlier work is done by then.

#include "hip/queue.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "hip/graph.h"
#include "hip/memory.h"

struct ihipStream_t {
    unsigned long long number;
    unsigned flags;
    int priority;
    std::vector<uint32_t> units;  // compute units it may use; empty: all
    int device = emu::current_device();
};

using namespace emu;

namespace {

constexpr int kLeastPriority = 1, kGreatestPriority = -1;
constexpr uint32_t kUnits = 304;

struct Queues {
    std::mutex mutex;
    std::unordered_map<hipStream_t, std::unique_ptr<ihipStream_t>> all;
    unsigned long long next_number = 3;  // after the built-in ones
};

Queues& queues() { return immortal<Queues>(); }

bool is_builtin(hipStream_t queue) {
    return queue == nullptr || queue == hipStreamLegacy || queue == hipStreamPerThread;
}

// The queue's facts; those of a default queue for the built-in ones.
ihipStream_t facts(hipStream_t queue) {
    if (is_builtin(queue)) return {reinterpret_cast<uintptr_t>(queue), hipStreamDefault, 0, {}};
    std::lock_guard lock(queues().mutex);
    auto found = queues().all.find(queue);
    require(found != queues().all.end(), hipErrorInvalidHandle);
    return *found->second;
}

hipError_t create(
    const char* name, hipStream_t* queue, unsigned flags, int priority, std::vector<uint32_t> units = {}) {
    return device_api(name, [&] {
        require(queue != nullptr && (flags & ~hipStreamNonBlocking) == 0);
        std::lock_guard lock(queues().mutex);
        priority = std::max(kGreatestPriority, std::min(kLeastPriority, priority));
        auto created =
            std::make_unique<ihipStream_t>(ihipStream_t{queues().next_number++, flags, priority, std::move(units)});
        *queue = created.get();
        queues().all[*queue] = std::move(created);
        return hipSuccess;
    });
}

// For calls that would wait for the queue: nothing is outstanding, but the device may have failed.
hipError_t wait(const char* name, hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        return hipSuccess;
    });
}

template <class T>
bool reached(T now, T value, unsigned flags, T mask) {
    switch (flags) {
        case hipStreamWaitValueGte: return (now & mask) >= value;
        case hipStreamWaitValueEq: return (now & mask) == value;
        case hipStreamWaitValueAnd: return ((now & mask) & value) != 0;
        case hipStreamWaitValueNor: return static_cast<T>(~((now & mask) | value)) != 0;
        default: throw ApiError(hipErrorInvalidValue);
    }
}

template <class T>
hipError_t wait_value(const char* name, hipStream_t queue, void* pointer, T value, unsigned flags, T mask) {
    return device_api(name, [&] {
        require_queue(queue);
        require(pointer != nullptr);
        T now = __atomic_load_n(static_cast<T*>(pointer), __ATOMIC_ACQUIRE);
        // Blocking the host would hang the one thread that could still write it.
        if (!reached(now, value, flags, mask)) {
            throw ApiError(
                hipErrorNotSupported, "the value is not there yet, and queues of the emulated device do not wait");
        }
        return hipSuccess;
    });
}

template <class T>
hipError_t write_value(const char* name, hipStream_t queue, void* pointer, T value) {
    return device_api(name, [&] {
        require_queue(queue);
        require_range(pointer, sizeof(T), "destination");
        __atomic_store_n(static_cast<T*>(pointer), value, __ATOMIC_RELEASE);
        return hipSuccess;
    });
}

}  // namespace

namespace emu {

void require_queue(hipStream_t queue) {
    if (!is_builtin(queue)) static_cast<void>(facts(queue));
}

}  // namespace emu

EMU_API hipError_t hipStreamCreate(hipStream_t* queue) { return create("hipStreamCreate", queue, hipStreamDefault, 0); }

EMU_API hipError_t hipStreamCreateWithFlags(hipStream_t* queue, unsigned flags) {
    return create("hipStreamCreateWithFlags", queue, flags, 0);
}

EMU_API hipError_t hipStreamCreateWithPriority(hipStream_t* queue, unsigned flags, int priority) {
    return create("hipStreamCreateWithPriority", queue, flags, priority);
}

EMU_API hipError_t hipExtStreamCreateWithCUMask(hipStream_t* queue, uint32_t count, const uint32_t* units) {
    if (count == 0 || units == nullptr) return record(hipErrorInvalidValue);
    return create("hipExtStreamCreateWithCUMask", queue, hipStreamDefault, 0, {units, units + count});
}

EMU_API hipError_t hipExtStreamGetCUMask(hipStream_t queue, uint32_t count, uint32_t* units) {
    return api("hipExtStreamGetCUMask", [&] {
        require(units != nullptr && count >= (kUnits + 31) / 32);
        std::vector<uint32_t> mask = facts(queue).units;
        for (uint32_t word = 0; word < count; ++word) {
            uint32_t all = word < kUnits / 32 ? ~0u : word == kUnits / 32 ? (1u << kUnits % 32) - 1 : 0u;
            units[word] = mask.empty() ? all : word < mask.size() ? mask[word] : 0u;
        }
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamDestroy(hipStream_t queue) {
    return api("hipStreamDestroy", [&] {
        std::lock_guard lock(queues().mutex);
        require(!is_builtin(queue) && queues().all.erase(queue) == 1, hipErrorInvalidHandle);
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamQuery(hipStream_t queue) { return wait("hipStreamQuery", queue); }
EMU_API hipError_t hipStreamSynchronize(hipStream_t queue) { return wait("hipStreamSynchronize", queue); }

EMU_API hipError_t hipStreamGetFlags(hipStream_t queue, unsigned* flags) {
    return api("hipStreamGetFlags", [&] {
        require(flags != nullptr);
        *flags = facts(queue).flags;
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamGetPriority(hipStream_t queue, int* priority) {
    return api("hipStreamGetPriority", [&] {
        require(priority != nullptr);
        *priority = facts(queue).priority;
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamGetId(hipStream_t queue, unsigned long long* number) {
    return api("hipStreamGetId", [&] {
        require(number != nullptr);
        *number = facts(queue).number;
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamGetDevice(hipStream_t queue, hipDevice_t* device) {
    return api("hipStreamGetDevice", [&] {
        require(device != nullptr);
        *device = facts(queue).device;
        return hipSuccess;
    });
}

EMU_API int hipGetStreamDeviceId(hipStream_t queue) {
    int device = -1;
    return hipStreamGetDevice(queue, &device) == hipSuccess ? device : -1;
}

EMU_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api("hipDeviceGetStreamPriorityRange", [&] {
        if (least) *least = kLeastPriority;
        if (greatest) *greatest = kGreatestPriority;
        return hipSuccess;
    });
}

EMU_API hipError_t hipStreamAddCallback(hipStream_t queue, hipStreamCallback_t callback, void* data, unsigned flags) {
    return api("hipStreamAddCallback", [&] {
        require(callback != nullptr && flags == 0);
        require_queue(queue);
        callback(queue, device_fault(), data);
        return hipSuccess;
    });
}

EMU_API hipError_t hipLaunchHostFunc(hipStream_t queue, hipHostFn_t function, void* data) {
    return device_api("hipLaunchHostFunc", [&] {
        require(function != nullptr);
        require_queue(queue);
        const auto work = [=] {
            function(data);
            return hipSuccess;
        };
        return captured(queue, hipGraphNodeTypeHost, work) ? hipSuccess : work();
    });
}

EMU_API hipError_t hipStreamAttachMemAsync(hipStream_t queue, void* pointer, size_t, unsigned) {
    return device_api("hipStreamAttachMemAsync", [&] {
        require_queue(queue);
        require(pointer != nullptr);
        return hipSuccess;
    });
}

EMU_API hipError_t
hipStreamWaitValue32(hipStream_t queue, void* pointer, uint32_t value, unsigned flags, uint32_t mask) {
    return wait_value("hipStreamWaitValue32", queue, pointer, value, flags, mask);
}

EMU_API hipError_t
hipStreamWaitValue64(hipStream_t queue, void* pointer, uint64_t value, unsigned flags, uint64_t mask) {
    return wait_value("hipStreamWaitValue64", queue, pointer, value, flags, mask);
}

EMU_API hipError_t hipStreamWriteValue32(hipStream_t queue, void* pointer, uint32_t value, unsigned) {
    return write_value("hipStreamWriteValue32", queue, pointer, value);
}

EMU_API hipError_t hipStreamWriteValue64(hipStream_t queue, void* pointer, uint64_t value, unsigned) {
    return write_value("hipStreamWriteValue64", queue, pointer, value);
}
