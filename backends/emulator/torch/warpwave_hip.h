// SPDX-License-Identifier: MIT
// What torch's ROCm headers declare for extensions, for a torch without ROCm: queues, guards, device facts, checks of
// error codes. Each has its name from CUDA and from HIP, because torch's translation of CUDA sources has used both.
// There is one device, its memory is the host's, and each launch is over when it returns.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <hip/hip_runtime_api.h>

#include <optional>

namespace warpwave {

class Queue {
public:
    Queue() = default;
    Queue(hipStream_t handle) : handle_(handle) {}
    template <class Kind>
    Queue(Kind, c10::Stream) {}

    operator hipStream_t() const { return handle_; }
    hipStream_t stream() const { return handle_; }
    void synchronize() const { TORCH_CHECK(hipStreamSynchronize(handle_) == hipSuccess); }
    bool query() const { return hipStreamQuery(handle_) == hipSuccess; }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return c10::Device(c10::kCPU); }
    bool operator==(const Queue& other) const { return handle_ == other.handle_; }
    bool operator!=(const Queue& other) const { return handle_ != other.handle_; }

private:
    hipStream_t handle_ = nullptr;
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
    Event(unsigned flags = hipEventDefault) { TORCH_CHECK(hipEventCreateWithFlags(&handle_, flags) == hipSuccess); }
    ~Event() { (void)hipEventDestroy(handle_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator hipEvent_t() const { return handle_; }
    hipEvent_t event() const { return handle_; }
    void record(const Queue& queue = {}) { TORCH_CHECK(hipEventRecord(handle_, queue) == hipSuccess); }
    void block(const Queue&) {}
    void synchronize() const { TORCH_CHECK(hipEventSynchronize(handle_) == hipSuccess); }
    bool query() const { return hipEventQuery(handle_) == hipSuccess; }

private:
    hipEvent_t handle_ = nullptr;
};

inline Queue queue_of_pool(bool = false, int = -1) { return {}; }
inline Queue queue_of_pool(int, int) { return {}; }
inline Queue current_queue(int = -1) { return {}; }
inline Queue given_queue(hipStream_t handle, int = -1) { return handle; }
inline void choose_queue(const Queue&) {}
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(int, bool = false) {}
inline void device_synchronize() {
    TORCH_CHECK(hipDeviceSynchronize() == hipSuccess, hipGetErrorString(hipGetLastError()));
}
inline bool is_available() { return true; }

inline hipDeviceProp_t* properties(int = 0) {
    static hipDeviceProp_t found = [] {
        hipDeviceProp_t filled{};
        TORCH_CHECK(hipGetDeviceProperties(&filled, 0) == hipSuccess);
        return filled;
    }();
    return &found;
}

inline void check(hipError_t code, const char* what, const char* file, int line) {
    if (code == hipSuccess) return;
    (void)hipGetLastError();
    TORCH_CHECK(false, file, ":", line, ": ", what, ": ", hipGetErrorString(code));
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
    inline auto getStreamFromExternal = [](hipStream_t handle, int device = -1) {                            \
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
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_HIP_CHECK(hipGetLastError())
#define C10_HIP_KERNEL_LAUNCH_CHECK() C10_HIP_CHECK(hipGetLastError())
