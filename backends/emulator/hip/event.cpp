// SPDX-License-Identifier: MIT
// Events: marks on the host's clock, since work is done when its call returns. The time between two of them is how
// long the emulation took, which says nothing about a real device.

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "hip/graph.h"
#include "hip/queue.h"

using Clock = std::chrono::steady_clock;

struct ihipEvent_t {
    unsigned flags;
    std::optional<Clock::time_point> time;
};

using namespace emu;

namespace {

constexpr unsigned kKnownFlags = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess |
                                 hipEventDisableSystemFence | hipEventReleaseToDevice | hipEventReleaseToSystem;

struct Events {
    std::mutex mutex;
    std::unordered_map<hipEvent_t, std::unique_ptr<ihipEvent_t>> all;
};

Events& events() { return immortal<Events>(); }

// Call with the mutex held.
ihipEvent_t& checked(hipEvent_t event) {
    require(event != nullptr && events().all.contains(event), hipErrorInvalidHandle);
    return *event;
}

hipError_t create(const char* name, hipEvent_t* event, unsigned flags) {
    return device_api(name, [&] {
        require(event != nullptr && (flags & ~kKnownFlags) == 0);
        require(!(flags & hipEventInterprocess) || (flags & hipEventDisableTiming));
        std::lock_guard lock(events().mutex);
        auto created = std::make_unique<ihipEvent_t>(ihipEvent_t{flags, std::nullopt});
        *event = created.get();
        events().all[*event] = std::move(created);
        return hipSuccess;
    });
}

hipError_t record_on(const char* name, hipEvent_t event, hipStream_t queue) {
    return device_api(name, [&] {
        require_queue(queue);
        require(event != nullptr, hipErrorInvalidHandle);
        if (!capture_event(queue, event)) record_event(event);
        return hipSuccess;
    });
}

hipError_t wait(const char* name, hipEvent_t event) {
    return device_api(name, [&] {
        std::lock_guard lock(events().mutex);
        static_cast<void>(checked(event));
        return hipSuccess;
    });
}

}  // namespace

namespace emu {

void record_event(hipEvent_t event) {
    if (event == nullptr) return;
    std::lock_guard lock(events().mutex);
    checked(event).time = Clock::now();
}

}  // namespace emu

EMU_API hipError_t hipEventCreate(hipEvent_t* event) { return create("hipEventCreate", event, hipEventDefault); }

EMU_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
    return create("hipEventCreateWithFlags", event, flags);
}

EMU_API hipError_t hipEventDestroy(hipEvent_t event) {
    return api("hipEventDestroy", [&] {
        std::lock_guard lock(events().mutex);
        require(events().all.erase(event) == 1, hipErrorInvalidHandle);
        return hipSuccess;
    });
}

EMU_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t queue) {
    return record_on("hipEventRecord", event, queue);
}

EMU_API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t queue, unsigned flags) {
    if (flags != 0) return unsupported("hipEventRecordWithFlags with flags");
    return record_on("hipEventRecordWithFlags", event, queue);
}

EMU_API hipError_t hipEventSynchronize(hipEvent_t event) { return wait("hipEventSynchronize", event); }
EMU_API hipError_t hipEventQuery(hipEvent_t event) { return wait("hipEventQuery", event); }

EMU_API hipError_t hipStreamWaitEvent(hipStream_t queue, hipEvent_t event, unsigned) {
    return device_api("hipStreamWaitEvent", [&] {
        require_queue(queue);
        {
            std::lock_guard lock(events().mutex);
            static_cast<void>(checked(event));
        }
        capture_wait(queue, event);
        return hipSuccess;
    });
}

EMU_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
    return device_api("hipEventElapsedTime", [&] {
        require(milliseconds != nullptr);
        std::lock_guard lock(events().mutex);
        const ihipEvent_t &from = checked(start), &to = checked(stop);
        bool timed = !((from.flags | to.flags) & hipEventDisableTiming) && from.time && to.time;
        require(timed, hipErrorInvalidHandle);
        *milliseconds = std::chrono::duration<float, std::milli>(*to.time - *from.time).count();
        return hipSuccess;
    });
}
