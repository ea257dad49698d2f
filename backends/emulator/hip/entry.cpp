// SPDX-License-Identifier: MIT
// Entry points by name, for programs that load the API at run time.

#include <dlfcn.h>

#include <cstring>

#include "hip/api.h"

using namespace emu;

namespace {

// The function of this library that carries `name`; nullptr if there is none.
void* entry(const char* name, int version) {
    Dl_info here;
    if (dladdr(reinterpret_cast<void*>(&hipInit), &here) == 0) return nullptr;
    void* self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!self) return nullptr;
    std::string wanted = name;
    // Since ROCm 6 the plain names stand for functions with another structure.
    bool renamed = wanted == "hipGetDeviceProperties" || wanted == "hipChooseDevice";
    if (renamed && (version == 0 || version >= 600)) wanted += "R0600";
    void* found = wanted.find("hip") <= 2 ? dlsym(self, wanted.c_str()) : nullptr;
    dlclose(self);
    return found;
}

}  // namespace

EMU_API hipError_t
hipGetProcAddress(const char* name, void** function, int version, uint64_t, hipDriverProcAddressQueryResult* status) {
    return api("hipGetProcAddress", [&] {
        require(name != nullptr && function != nullptr);
        *function = entry(name, version);
        if (status) *status = *function ? HIP_GET_PROC_ADDRESS_SUCCESS : HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return *function ? hipSuccess : hipErrorNotFound;
    });
}

EMU_API hipError_t
hipGetDriverEntryPoint(const char* name, void** function, unsigned long long, hipDriverEntryPointQueryResult* status) {
    return api("hipGetDriverEntryPoint", [&] {
        require(name != nullptr && function != nullptr);
        *function = entry(name, 0);
        if (status) *status = *function ? hipDriverEntryPointSuccess : hipDriverEntryPointSymbolNotFound;
        return *function ? hipSuccess : hipErrorNotFound;
    });
}
