// SPDX-License-Identifier: MIT
// hipDeviceGetAttribute, limits and the other settings of the device.

#include <atomic>
#include <mutex>
#include <set>

#include "hip/api.h"
#include "hip/memory.h"
#include "hip/properties.h"

using namespace emu;
using namespace emu::mi300x;

namespace {

// Images are absent from CDNA3, so all of their limits are 0.
int attribute(hipDeviceAttribute_t which) {
    switch (which) {
        case hipDeviceAttributeEccEnabled: return 1;
        case hipDeviceAttributeAsyncEngineCount: return 8;
        case hipDeviceAttributeCanMapHostMemory: return 1;
        case hipDeviceAttributeCanUseHostPointerForRegisteredMem: return 1;
        case hipDeviceAttributeClockRate: return kClockKilohertz;
        case hipDeviceAttributeComputeMode: return hipComputeModeDefault;
        case hipDeviceAttributeConcurrentKernels: return 1;
        case hipDeviceAttributeConcurrentManagedAccess: return 1;
        case hipDeviceAttributeCooperativeLaunch: return 1;
        case hipDeviceAttributeDeviceOverlap: return 1;
        case hipDeviceAttributeGlobalL1CacheSupported: return 1;
        case hipDeviceAttributeHostNativeAtomicSupported: return 1;
        case hipDeviceAttributeL2CacheSize: return kL2Bytes;
        case hipDeviceAttributeLocalL1CacheSupported: return 1;
        case hipDeviceAttributeComputeCapabilityMajor: return kMajor;
        case hipDeviceAttributeComputeCapabilityMinor: return kMinor;
        case hipDeviceAttributeManagedMemory: return 1;
        case hipDeviceAttributeMaxBlocksPerMultiProcessor: return kSimds * kWavesPerSimd;
        case hipDeviceAttributeMaxBlockDimX:
        case hipDeviceAttributeMaxBlockDimY:
        case hipDeviceAttributeMaxBlockDimZ:
        case hipDeviceAttributeMaxThreadsDim:
        case hipDeviceAttributeMaxThreadsPerBlock: return kThreadsPerBlock;
        case hipDeviceAttributeMaxGridDimX: return kGridX;
        case hipDeviceAttributeMaxGridDimY:
        case hipDeviceAttributeMaxGridDimZ: return kGridYZ;
        case hipDeviceAttributeMaxThreadsPerMultiProcessor: return kThreadsPerUnit;
        case hipDeviceAttributeMaxPitch: return 0x7fffffff;
        case hipDeviceAttributeMemoryBusWidth: return kMemoryBusBits;
        case hipDeviceAttributeMemoryClockRate: return kMemoryClockKilohertz;
        case hipDeviceAttributeMultiprocessorCount:
        case hipDeviceAttributePhysicalMultiProcessorCount: return kUnits;
        case hipDeviceAttributeMaxRegistersPerBlock:
        case hipDeviceAttributeMaxRegistersPerMultiprocessor: return kRegistersPerBlock;
        case hipDeviceAttributeMaxSharedMemoryPerBlock:
        case hipDeviceAttributeSharedMemPerBlockOptin:
        case hipDeviceAttributeSharedMemPerMultiprocessor:
        case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: return kLdsBytes;
        case hipDeviceAttributeStreamPrioritiesSupported: return 1;
        case hipDeviceAttributeTextureAlignment:
        case hipDeviceAttributeTexturePitchAlignment: return 256;
        case hipDeviceAttributeTotalConstantMemory: return 0x7fffffff;
        case hipDeviceAttributeUnifiedAddressing: return 1;
        case hipDeviceAttributeWarpSize: return kWave;
        case hipDeviceAttributeMemoryPoolsSupported: return 1;
        case hipDeviceAttributeHostRegisterSupported: return 1;
        case hipDeviceAttributeClockInstructionRate:
        case hipDeviceAttributeWallClockRate: return kWallClockKilohertz;
        case hipDeviceAttributeIsLargeBar: return 1;
        case hipDeviceAttributeFineGrainSupport: return 1;
        case hipDeviceAttributeNumberOfXccs: return kDies;
        case hipDeviceAttributeMaxAvailableVgprsPerThread: return kVectorRegisters;
        case hipDeviceAttributePciChipId: return kPciChip;
        default: break;
    }
    bool portable =
        which >= hipDeviceAttributeCudaCompatibleBegin && which <= hipDeviceAttributeMemoryPoolSupportedHandleTypes;
    bool amd = which >= hipDeviceAttributeAmdSpecificBegin && which < hipDeviceAttributeAmdSpecificEnd &&
               which <= hipDeviceAttributeNumberOfXccs + 2;
    bool unused = which == hipDeviceAttributeUnused1 || which == hipDeviceAttributeUnused2 ||
                  which == hipDeviceAttributeUnused3 || which == hipDeviceAttributeUnused4 ||
                  which == hipDeviceAttributeUnused5;
    require((portable || amd) && !unused);
    return 0;  // a feature that the device lacks
}

// Settings that HIP keeps and that change nothing on CDNA: they read back as they were set.
std::atomic<hipFuncCache_t> cache_config{hipFuncCachePreferNone};
std::atomic<hipSharedMemConfig> bank_config{hipSharedMemBankSizeFourByte};
std::atomic<unsigned> device_flags{hipDeviceScheduleAuto};

template <class T, class Stored>
hipError_t get(const char* name, T* value, const Stored& stored) {
    return api(name, [&] {
        require(value != nullptr);
        *value = stored;
        return hipSuccess;
    });
}

template <class T>
hipError_t set(const char* name, std::atomic<T>& stored, T value) {
    return api(name, [&] {
        stored = value;
        return hipSuccess;
    });
}

}  // namespace

EMU_API hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device) {
    return api("hipDeviceGetAttribute", [&] {
        require(value != nullptr);
        require_device(device);
        *value = attribute(which);
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceSynchronize(void) {
    return device_api("hipDeviceSynchronize", [] { return hipSuccess; });
}

EMU_API hipError_t hipDeviceReset(void) {
    return api("hipDeviceReset", [] {
        set_device_fault(hipSuccess);  // memory and modules stay: other code of this process may hold them
        return hipSuccess;
    });
}

namespace {

// Kept to be told again: nothing here runs out before the host does.
struct Limits {
    std::atomic<size_t> stack{16 * 1024}, heap{8 << 20}, printf{1 << 20};
};
Limits limits;

}  // namespace

EMU_API hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t value) {
    return api("hipDeviceSetLimit", [&] {
        switch (limit) {
            case hipLimitStackSize: limits.stack = value; return hipSuccess;
            case hipLimitMallocHeapSize: limits.heap = value; return hipSuccess;
            case hipLimitPrintfFifoSize: limits.printf = value; return hipSuccess;
            default: return hipErrorUnsupportedLimit;
        }
    });
}

EMU_API hipError_t hipDeviceGetLimit(size_t* value, hipLimit_t limit) {
    return api("hipDeviceGetLimit", [&] {
        require(value != nullptr);
        switch (limit) {
            case hipLimitStackSize: *value = limits.stack; return hipSuccess;
            case hipLimitMallocHeapSize: *value = limits.heap; return hipSuccess;
            case hipLimitPrintfFifoSize: *value = limits.printf; return hipSuccess;
            default: return hipErrorUnsupportedLimit;
        }
    });
}

EMU_API hipError_t hipDeviceSetCacheConfig(hipFuncCache_t config) {
    return set("hipDeviceSetCacheConfig", cache_config, config);
}

EMU_API hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* config) {
    return get("hipDeviceGetCacheConfig", config, cache_config);
}

EMU_API hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig config) {
    return set("hipDeviceSetSharedMemConfig", bank_config, config);
}

EMU_API hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig* config) {
    return get("hipDeviceGetSharedMemConfig", config, bank_config);
}

EMU_API hipError_t hipSetDeviceFlags(unsigned flags) {
    constexpr unsigned kKnown = hipDeviceScheduleMask | hipDeviceMapHost | hipDeviceLmemResizeToMax;
    if (flags & ~kKnown) return record(hipErrorInvalidValue);
    return set("hipSetDeviceFlags", device_flags, flags);
}

EMU_API hipError_t hipGetDeviceFlags(unsigned* flags) { return get("hipGetDeviceFlags", flags, device_flags); }

// Peers: each device reaches the memory of all others, whether it was enabled or not. A device is not its own.

namespace {

struct Peers {
    std::mutex mutex;
    std::set<std::pair<int, int>> enabled;  // whose access, to whom
};

}  // namespace

EMU_API hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
    return api("hipDeviceCanAccessPeer", [&] {
        require(can != nullptr);
        require_device(device);
        require_device(peer);
        *can = device != peer;
        return hipSuccess;
    });
}

EMU_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    return api("hipDeviceEnablePeerAccess", [&] {
        require(flags == 0);
        require_device(peer);
        require(peer != current_device(), hipErrorInvalidDevice);
        std::lock_guard lock(immortal<Peers>().mutex);
        const bool fresh = immortal<Peers>().enabled.insert({current_device(), peer}).second;
        return fresh ? hipSuccess : hipErrorPeerAccessAlreadyEnabled;
    });
}

EMU_API hipError_t hipDeviceDisablePeerAccess(int peer) {
    return api("hipDeviceDisablePeerAccess", [&] {
        require_device(peer);
        std::lock_guard lock(immortal<Peers>().mutex);
        return immortal<Peers>().enabled.erase({current_device(), peer}) ? hipSuccess : hipErrorPeerAccessNotEnabled;
    });
}

EMU_API hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr which, int from, int to) {
    return api("hipDeviceGetP2PAttribute", [&] {
        require(value != nullptr);
        require_device(from);
        require_device(to);
        require(from != to, hipErrorInvalidDevice);
        *value = which == hipDevP2PAttrAccessSupported || which == hipDevP2PAttrNativeAtomicSupported;
        return hipSuccess;
    });
}

// Nothing uses the result here, but hosts build descriptors with it before they ask for an image.
EMU_API hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, hipChannelFormatKind kind) {
    return {x, y, z, w, kind};
}
