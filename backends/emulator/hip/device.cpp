// SPDX-License-Identifier: MIT
// The devices, which differ in their numbers alone.

#include <cstdio>
#include <cstring>

#include "hip/api.h"
#include "hip/memory.h"
#include "hip/properties.h"

#undef hipGetDeviceProperties
#undef hipChooseDevice
#undef hipDeviceProp_t

#include <hip/hip_deprecated.h>

using namespace emu;
using namespace emu::mi300x;

namespace {

constexpr char kUuid[16 + 1] = "warpwave-mi300x";  // the device's number follows

thread_local int current = 0;

std::string pci_address(int device) {
    char text[16];
    std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device));
    return text;
}

void put_uuid(char* bytes, int device) {
    std::memcpy(bytes, kUuid, 16);
    bytes[15] = static_cast<char>(device < 10 ? '0' + device : 'a' + device - 10);
}

// Members that the legacy structure shares with the current one, by name.
template <class Properties>
void fill_common(Properties& p, int device) {
    p = {};
    std::snprintf(p.name, sizeof p.name, "%s", kName);
    std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s", kTarget);
    p.totalGlobalMem = kDeviceBytes;
    p.sharedMemPerBlock = kLdsBytes;
    p.maxSharedMemoryPerMultiProcessor = kLdsBytes;
    p.regsPerBlock = kRegistersPerBlock;
    p.warpSize = kWave;
    p.maxThreadsPerBlock = kThreadsPerBlock;
    for (int& size : p.maxThreadsDim) size = kThreadsPerBlock;
    p.maxGridSize[0] = kGridX;
    p.maxGridSize[1] = p.maxGridSize[2] = kGridYZ;
    p.clockRate = kClockKilohertz;
    p.memoryClockRate = kMemoryClockKilohertz;
    p.memoryBusWidth = kMemoryBusBits;
    p.totalConstMem = 0x7fffffff;
    p.major = kMajor;
    p.minor = kMinor;
    p.multiProcessorCount = kUnits;
    p.l2CacheSize = kL2Bytes;
    p.maxThreadsPerMultiProcessor = kThreadsPerUnit;
    p.computeMode = hipComputeModeDefault;
    p.clockInstructionRate = kWallClockKilohertz;
    p.concurrentKernels = 1;
    p.canMapHostMemory = 1;
    p.cooperativeLaunch = 1;
    p.memPitch = 0x7fffffff;
    p.textureAlignment = 256;
    p.texturePitchAlignment = 256;
    p.ECCEnabled = 1;
    p.isLargeBar = 1;
    p.pciBusID = device;
    p.managedMemory = 1;
    p.concurrentManagedAccess = 1;
    hipDeviceArch_t& has = p.arch;
    has.hasGlobalInt32Atomics = has.hasGlobalFloatAtomicExch = has.hasSharedInt32Atomics = 1;
    has.hasSharedFloatAtomicExch = has.hasFloatAtomicAdd = has.hasGlobalInt64Atomics = 1;
    has.hasSharedInt64Atomics = has.hasDoubles = has.hasWarpVote = has.hasWarpBallot = 1;
    has.hasWarpShuffle = has.hasThreadFenceSystem = has.has3dGrid = 1;
}

}  // namespace

int emu::current_device() noexcept { return current; }
void emu::set_current_device(int device) noexcept { current = device; }

EMU_API hipError_t hipInit(unsigned flags) {
    return api("hipInit", [&] { return flags == 0 ? hipSuccess : hipErrorInvalidValue; });
}

EMU_API hipError_t hipDriverGetVersion(int* version) {
    return api("hipDriverGetVersion", [&] {
        require(version != nullptr);
        *version = HIP_VERSION;
        return hipSuccess;
    });
}

EMU_API hipError_t hipRuntimeGetVersion(int* version) {
    return api("hipRuntimeGetVersion", [&] {
        require(version != nullptr);
        *version = HIP_VERSION;
        return hipSuccess;
    });
}

EMU_API hipError_t hipGetDeviceCount(int* count) {
    return api("hipGetDeviceCount", [&] {
        require(count != nullptr);
        *count = device_count();
        return hipSuccess;
    });
}

EMU_API hipError_t hipGetDevice(int* device) {
    return api("hipGetDevice", [&] {
        require(device != nullptr);
        *device = current;
        return hipSuccess;
    });
}

EMU_API hipError_t hipSetDevice(int device) {
    return api("hipSetDevice", [&] {
        require_device(device);
        current = device;
        return hipSuccess;
    });
}

EMU_API hipError_t hipSetValidDevices(int* devices, int count) {
    return api("hipSetValidDevices", [&] {
        require(count >= 0 && (devices != nullptr || count == 0));
        for (int i = 0; i < count; ++i) require_device(devices[i]);
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGet(hipDevice_t* device, int ordinal) {
    return api("hipDeviceGet", [&] {
        require(device != nullptr);
        require_device(ordinal);
        *device = ordinal;
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device) {
    return api("hipDeviceComputeCapability", [&] {
        require(major != nullptr && minor != nullptr);
        require_device(device);
        *major = kMajor;
        *minor = kMinor;
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
    return api("hipDeviceGetName", [&] {
        require(name != nullptr && length > 0);
        require_device(device);
        std::snprintf(name, static_cast<size_t>(length), "%s", kName);
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
    return api("hipDeviceGetUuid", [&] {
        require(uuid != nullptr);
        require_device(device);
        put_uuid(uuid->bytes, device);
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGetPCIBusId(char* address, int length, int device) {
    return api("hipDeviceGetPCIBusId", [&] {
        require_device(device);
        const std::string text = pci_address(device);
        require(address != nullptr && length > static_cast<int>(text.size()));
        std::memcpy(address, text.c_str(), text.size() + 1);
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceGetByPCIBusId(int* device, const char* address) {
    return api("hipDeviceGetByPCIBusId", [&] {
        require(device != nullptr && address != nullptr);
        for (int i = 0; i < device_count(); ++i) {
            if (pci_address(i) != address) continue;
            *device = i;
            return hipSuccess;
        }
        return hipErrorInvalidValue;
    });
}

EMU_API hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
    return api("hipDeviceTotalMem", [&] {
        require(bytes != nullptr);
        require_device(device);
        *bytes = kDeviceBytes;
        return hipSuccess;
    });
}

EMU_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device) {
    return api("hipGetDeviceProperties", [&] {
        require(properties != nullptr);
        require_device(device);
        hipDeviceProp_tR0600& p = *properties;
        fill_common(p, device);
        put_uuid(p.uuid.bytes, device);
        p.deviceOverlap = 1;
        p.asyncEngineCount = 8;
        p.unifiedAddressing = 1;
        p.streamPrioritiesSupported = 1;
        p.globalL1CacheSupported = 1;
        p.localL1CacheSupported = 1;
        p.sharedMemPerMultiprocessor = kLdsBytes;
        p.regsPerMultiprocessor = kRegistersPerBlock;
        p.hostNativeAtomicSupported = 1;
        p.canUseHostPointerForRegisteredMem = 1;
        p.sharedMemPerBlockOptin = kLdsBytes;
        p.maxBlocksPerMultiProcessor = kSimds * kWavesPerSimd;
        p.hostRegisterSupported = 1;
        p.memoryPoolsSupported = 1;
        return hipSuccess;
    });
}

EMU_API hipError_t hipGetDevicePropertiesR0000(hipDeviceProp_tR0000* properties, int device) {
    return api("hipGetDeviceProperties", [&] {
        require(properties != nullptr);
        require_device(device);
        fill_common(*properties, device);
        properties->gcnArch = 942;
        return hipSuccess;
    });
}

// Programs compiled before ROCm 6 call the plain names with the legacy structure.
EMU_API hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000* properties, int device) {
    return hipGetDevicePropertiesR0000(properties, device);
}

EMU_API hipError_t hipChooseDeviceR0600(int* device, const hipDeviceProp_tR0600* wanted) {
    return api("hipChooseDevice", [&] {
        require(device != nullptr && wanted != nullptr);
        *device = 0;  // all alike: the best match for anything
        return hipSuccess;
    });
}

EMU_API hipError_t hipChooseDeviceR0000(int* device, const hipDeviceProp_tR0000* wanted) {
    return api("hipChooseDevice", [&] {
        require(device != nullptr && wanted != nullptr);
        *device = 0;  // all alike: the best match for anything
        return hipSuccess;
    });
}

EMU_API hipError_t hipChooseDevice(int* device, const hipDeviceProp_tR0000* wanted) {
    return hipChooseDeviceR0000(device, wanted);
}
