// SPDX-License-Identifier: MIT
// Contexts of the driver-style API. Each device has one, its primary context; code written for CUDA's driver API asks
// for it or creates "another", which is the same.

#include "hip/api.h"

struct ihipCtx_t {
    unsigned flags = 0;
};

using namespace emu;

namespace {

ihipCtx_t primaries[kMostDevices];  // by device

void require_context(hipCtx_t context) {
    require(
        context == nullptr || (context >= primaries && context < primaries + device_count()), hipErrorInvalidContext);
}

hipError_t give(const char* name, hipCtx_t* context, hipDevice_t device) {
    return api(name, [&] {
        require(context != nullptr);
        require_device(device);
        *context = &primaries[device];
        return hipSuccess;
    });
}

hipError_t take(const char* name, hipCtx_t context) {
    return api(name, [&] {
        require_context(context);
        return hipSuccess;
    });
}

hipError_t make_current(const char* name, hipCtx_t context) {
    return api(name, [&] {
        require_context(context);
        if (context) set_current_device(static_cast<int>(context - primaries));
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
    if (hipError_t status = give("hipCtxCreate", context, device); status != hipSuccess) return status;
    (*context)->flags = flags;
    return make_current("hipCtxCreate", *context);
}

EMU_API hipError_t hipCtxDestroy(hipCtx_t context) { return take("hipCtxDestroy", context); }
EMU_API hipError_t hipCtxGetCurrent(hipCtx_t* context) { return give("hipCtxGetCurrent", context, current_device()); }
EMU_API hipError_t hipCtxPopCurrent(hipCtx_t* context) { return give("hipCtxPopCurrent", context, current_device()); }
EMU_API hipError_t hipCtxPushCurrent(hipCtx_t context) { return make_current("hipCtxPushCurrent", context); }
EMU_API hipError_t hipCtxSetCurrent(hipCtx_t context) { return make_current("hipCtxSetCurrent", context); }

EMU_API hipError_t hipCtxGetDevice(hipDevice_t* device) {
    return api("hipCtxGetDevice", [&] {
        require(device != nullptr);
        *device = current_device();
        return hipSuccess;
    });
}

EMU_API hipError_t hipCtxGetFlags(unsigned* flags) {
    return api("hipCtxGetFlags", [&] {
        require(flags != nullptr);
        *flags = primaries[current_device()].flags;
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
    return give("hipDevicePrimaryCtxRetain", context, device);
}

EMU_API hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device) {
    return on_device("hipDevicePrimaryCtxRelease", device);
}

EMU_API hipError_t hipDevicePrimaryCtxReset(hipDevice_t device) {
    if (is_device(device)) set_device_fault(hipSuccess);
    return on_device("hipDevicePrimaryCtxReset", device);
}

EMU_API hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned flags) {
    if (is_device(device)) primaries[device].flags = flags;
    return on_device("hipDevicePrimaryCtxSetFlags", device);
}

EMU_API hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned* flags, int* active) {
    return api("hipDevicePrimaryCtxGetState", [&] {
        require_device(device);
        if (flags) *flags = primaries[device].flags;
        if (active) *active = 1;
        return hipSuccess;
    });
}

// Settings of the context are those of its device.

EMU_API hipError_t hipCtxSetCacheConfig(hipFuncCache_t config) { return hipDeviceSetCacheConfig(config); }
EMU_API hipError_t hipCtxGetCacheConfig(hipFuncCache_t* config) { return hipDeviceGetCacheConfig(config); }
EMU_API hipError_t hipCtxSetSharedMemConfig(hipSharedMemConfig config) { return hipDeviceSetSharedMemConfig(config); }
EMU_API hipError_t hipCtxGetSharedMemConfig(hipSharedMemConfig* config) { return hipDeviceGetSharedMemConfig(config); }
