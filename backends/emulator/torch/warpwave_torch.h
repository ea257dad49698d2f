// SPDX-License-Identifier: MIT
// What torch's CUDA and ROCm headers declare for extensions, for a torch without either: queues, guards, device facts,
// checks of error codes. Each has its name from CUDA and from HIP, because torch's translation of CUDA sources has used
// both. There is one device, its memory is the host's, and each launch is over when it returns.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <optional>

#ifdef __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#define WARPWAVE_GPU(NAME) hip##NAME
#else
#include <cuda_runtime_api.h>
#define WARPWAVE_GPU(NAME) cuda##NAME
#endif

namespace warpwave {

using Stream = WARPWAVE_GPU(Stream_t);
using EventHandle = WARPWAVE_GPU(Event_t);
using Error = WARPWAVE_GPU(Error_t);
#ifdef __HIP_PLATFORM_AMD__
using Properties = hipDeviceProp_t;
#else
using Properties = cudaDeviceProp;
#endif
constexpr Error kSuccess = WARPWAVE_GPU(Success);

class Queue {
public:
    Queue() = default;
    Queue(Stream handle) : handle_(handle) {}
    template <class Kind>
    Queue(Kind, c10::Stream) {}

    operator Stream() const { return handle_; }
    Stream stream() const { return handle_; }
    void synchronize() const { TORCH_CHECK(WARPWAVE_GPU(StreamSynchronize)(handle_) == kSuccess); }
    bool query() const { return WARPWAVE_GPU(StreamQuery)(handle_) == kSuccess; }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return c10::Device(c10::kCPU); }
    bool operator==(const Queue& other) const { return handle_ == other.handle_; }
    bool operator!=(const Queue& other) const { return handle_ != other.handle_; }

private:
    Stream handle_ = nullptr;
};

// There is no other device to change to.
class Guard {
public:
    template <class... Arguments>
    Guard(const Arguments&...) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    template <class Place>
    void set_device(const Place&) {}
    template <class Place>
    void set_index(const Place&) {}
    c10::Device current_device() const { return c10::Device(c10::kCPU); }
};

class Event {
public:
    Event(unsigned flags = WARPWAVE_GPU(EventDefault)) {
        TORCH_CHECK(WARPWAVE_GPU(EventCreateWithFlags)(&handle_, flags) == kSuccess);
    }
    ~Event() { (void)WARPWAVE_GPU(EventDestroy)(handle_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator EventHandle() const { return handle_; }
    EventHandle event() const { return handle_; }
    void record(const Queue& queue = {}) { TORCH_CHECK(WARPWAVE_GPU(EventRecord)(handle_, queue) == kSuccess); }
    void block(const Queue&) {}
    void synchronize() const { TORCH_CHECK(WARPWAVE_GPU(EventSynchronize)(handle_) == kSuccess); }
    bool query() const { return WARPWAVE_GPU(EventQuery)(handle_) == kSuccess; }

private:
    EventHandle handle_ = nullptr;
};

inline Queue queue_of_pool(bool = false, int = -1) { return {}; }
inline Queue queue_of_pool(int, int) { return {}; }
inline Queue current_queue(int = -1) { return {}; }
inline Queue given_queue(Stream handle, int = -1) { return handle; }
inline void choose_queue(const Queue&) {}
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(int, bool = false) {}
inline void device_synchronize() {
    TORCH_CHECK(
        WARPWAVE_GPU(DeviceSynchronize)() == kSuccess, WARPWAVE_GPU(GetErrorString)(WARPWAVE_GPU(GetLastError)()));
}
inline bool is_available() { return true; }

inline Properties* properties(int = 0) {
    static Properties found = [] {
        Properties filled{};
        TORCH_CHECK(WARPWAVE_GPU(GetDeviceProperties)(&filled, 0) == kSuccess);
        return filled;
    }();
    return &found;
}

inline void check(Error code, const char* what, const char* file, int line) {
    if (code == kSuccess) return;
    (void)WARPWAVE_GPU(GetLastError)();
    TORCH_CHECK(false, file, ":", line, ": ", what, ": ", WARPWAVE_GPU(GetErrorString)(code));
}

}  // namespace warpwave

#define WARPWAVE_NAMES                                                                                       \
    using CUDAStream = warpwave::Queue;                                                                      \
    using HIPStream = warpwave::Queue;                                                                       \
    using HIPStreamMasqueradingAsCUDA = warpwave::Queue;                                                     \
    using CUDAGuard = warpwave::Guard;                                                                       \
    using OptionalCUDAGuard = warpwave::Guard;                                                               \
    using CUDAStreamGuard = warpwave::Guard;                                                                 \
    using OptionalCUDAStreamGuard = warpwave::Guard;                                                         \
    using HIPGuard = warpwave::Guard;                                                                        \
    using OptionalHIPGuard = warpwave::Guard;                                                                \
    using HIPStreamGuard = warpwave::Guard;                                                                  \
    using HIPGuardMasqueradingAsCUDA = warpwave::Guard;                                                      \
    using OptionalHIPGuardMasqueradingAsCUDA = warpwave::Guard;                                              \
    using HIPStreamGuardMasqueradingAsCUDA = warpwave::Guard;                                                \
    using CUDAEvent = warpwave::Event;                                                                       \
    using HIPEvent = warpwave::Event;                                                                        \
    inline auto getCurrentCUDAStream = [](int device = -1) { return warpwave::current_queue(device); };      \
    inline auto getCurrentHIPStream = getCurrentCUDAStream;                                                  \
    inline auto getCurrentHIPStreamMasqueradingAsCUDA = getCurrentCUDAStream;                                \
    inline auto getDefaultCUDAStream = getCurrentCUDAStream;                                                 \
    inline auto getDefaultHIPStream = getCurrentCUDAStream;                                                  \
    inline auto getDefaultHIPStreamMasqueradingAsCUDA = getCurrentCUDAStream;                                \
    inline auto setCurrentCUDAStream = warpwave::choose_queue;                                               \
    inline auto setCurrentHIPStream = warpwave::choose_queue;                                                \
    using warpwave::current_device;                                                                          \
    using warpwave::device_count;                                                                            \
    using warpwave::device_synchronize;                                                                      \
    using warpwave::is_available;                                                                            \
    using warpwave::set_device;                                                                              \
    inline auto getStreamFromExternal = [](warpwave::Stream handle, int device = -1) {                       \
        return warpwave::given_queue(handle, device);                                                        \
    };                                                                                                       \
    inline auto getStreamFromPool = [](auto... arguments) { return warpwave::queue_of_pool(arguments...); }; \
    inline auto getCurrentDeviceProperties = [] { return warpwave::properties(); };                          \
    inline auto getDeviceProperties = [](int device) { return warpwave::properties(device); };

namespace c10::cuda {
WARPWAVE_NAMES
}
namespace c10::hip {
WARPWAVE_NAMES
}
namespace at::cuda {
WARPWAVE_NAMES
inline int warp_size() { return warpwave::properties()->warpSize; }  // which torch's own headers declare
}  // namespace at::cuda
namespace at::hip {
WARPWAVE_NAMES
}
#undef WARPWAVE_NAMES

#define C10_HIP_CHECK(CALL) warpwave::check((CALL), #CALL, __FILE__, __LINE__)
#define C10_CUDA_CHECK(CALL) C10_HIP_CHECK(CALL)
#define AT_CUDA_CHECK(CALL) C10_HIP_CHECK(CALL)
#define AT_HIP_CHECK(CALL) C10_HIP_CHECK(CALL)
#define C10_CUDA_CHECK_WARN(CALL) C10_HIP_CHECK(CALL)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_HIP_CHECK(WARPWAVE_GPU(GetLastError)())
#define C10_HIP_KERNEL_LAUNCH_CHECK() C10_HIP_CHECK(WARPWAVE_GPU(GetLastError)())
