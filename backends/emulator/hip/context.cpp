// SPDX-License-Identifier: MIT
// Contexts of the driver-style API. The device has one, its primary context; code written for CUDA's driver API asks
// for it or creates "another", which is the same.

#include "hip/api.h"

struct ihipCtx_t {
    unsigned flags = 0;
};

using namespace emu;

namespace {

ihipCtx_t primary;

void require_context(hipCtx_t context) { require(context == nullptr || context == &primary, hipErrorInvalidContext); }

hipError_t give(const char* name, hipCtx_t* context) {
    return api(name, [&] {
        require(context != nullptr);
        *context = &primary;
        return hipSuccess;
    });
}

hipError_t take(const char* name, hipCtx_t context) {
    return api(name, [&] {
        require_context(context);
        return hipSuccess;
    });
}

hipError_t on_device(const char* name, hipDevice_t device) {
    return api(name, [&] {
        require_device(device);
        return hipSuccess;
    });
}

}  // namespace

EMU_API hipError_t hipCtxCreate(hipCtx_t* context, unsigned flags, hipDevice_t device) {
    if (device != 0) return record(hipErrorInvalidDevice);
    primary.flags = flags;
    return give("hipCtxCreate", context);
}

EMU_API hipError_t hipCtxDestroy(hipCtx_t context) { return take("hipCtxDestroy", context); }
EMU_API hipError_t hipCtxGetCurrent(hipCtx_t* context) { return give("hipCtxGetCurrent", context); }
EMU_API hipError_t hipCtxPopCurrent(hipCtx_t* context) { return give("hipCtxPopCurrent", context); }
EMU_API hipError_t hipCtxPushCurrent(hipCtx_t context) { return take("hipCtxPushCurrent", context); }
EMU_API hipError_t hipCtxSetCurrent(hipCtx_t context) { return take("hipCtxSetCurrent", context); }

EMU_API hipError_t hipCtxGetDevice(hipDevice_t* device) {
    return api("hipCtxGetDevice", [&] {
        require(device != nullptr);
        *device = 0;
        return hipSuccess;
    });
}

EMU_API hipError_t hipCtxGetFlags(unsigned* flags) {
    return api("hipCtxGetFlags", [&] {
        require(flags != nullptr);
        *flags = primary.flags;
        return hipSuccess;
    });
}

EMU_API hipError_t hipCtxGetApiVersion(hipCtx_t context, unsigned* version) {
    return api("hipCtxGetApiVersion", [&] {
        require(version != nullptr);
        require_context(context);
        *version = HIP_VERSION_MAJOR;
        return hipSuccess;
    });
}

EMU_API hipError_t hipCtxSynchronize(void) {
    return device_api("hipCtxSynchronize", [] { return hipSuccess; });
}

EMU_API hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* context, hipDevice_t device) {
    if (device != 0) return record(hipErrorInvalidDevice);
    return give("hipDevicePrimaryCtxRetain", context);
}

EMU_API hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device) {
    return on_device("hipDevicePrimaryCtxRelease", device);
}

EMU_API hipError_t hipDevicePrimaryCtxReset(hipDevice_t device) {
    if (device == 0) set_device_fault(hipSuccess);
    return on_device("hipDevicePrimaryCtxReset", device);
}

EMU_API hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned flags) {
    if (device == 0) primary.flags = flags;
    return on_device("hipDevicePrimaryCtxSetFlags", device);
}

EMU_API hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned* flags, int* active) {
    return api("hipDevicePrimaryCtxGetState", [&] {
        require_device(device);
        if (flags) *flags = primary.flags;
        if (active) *active = 1;
        return hipSuccess;
    });
}

// Settings of the context are those of its device.

EMU_API hipError_t hipCtxSetCacheConfig(hipFuncCache_t config) { return hipDeviceSetCacheConfig(config); }
EMU_API hipError_t hipCtxGetCacheConfig(hipFuncCache_t* config) { return hipDeviceGetCacheConfig(config); }
EMU_API hipError_t hipCtxSetSharedMemConfig(hipSharedMemConfig config) { return hipDeviceSetSharedMemConfig(config); }
EMU_API hipError_t hipCtxGetSharedMemConfig(hipSharedMemConfig* config) { return hipDeviceGetSharedMemConfig(config); }
