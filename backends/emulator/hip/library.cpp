// SPDX-License-Identifier: MIT
// Libraries and kernels: HIP's newer names of modules and functions. The handles are the same.

#include "hip/module.h"

using namespace emu;

namespace {

hipModule_t module_of(hipLibrary_t library) { return reinterpret_cast<hipModule_t>(library); }

ihipModuleSymbol_t& checked(hipKernel_t kernel) {
    require(is_function(kernel), hipErrorInvalidHandle);
    return *reinterpret_cast<ihipModuleSymbol_t*>(kernel);
}

}  // namespace

EMU_API hipError_t hipLibraryLoadData(
    hipLibrary_t* library, const void* image, hipJitOption**, void**, unsigned, hipLibraryOption**, void**, unsigned) {
    return hipModuleLoadData(reinterpret_cast<hipModule_t*>(library), image);
}

EMU_API hipError_t hipLibraryLoadFromFile(
    hipLibrary_t* library, const char* path, hipJitOption**, void**, unsigned, hipLibraryOption**, void**, unsigned) {
    return hipModuleLoad(reinterpret_cast<hipModule_t*>(library), path);
}

EMU_API hipError_t hipLibraryUnload(hipLibrary_t library) { return hipModuleUnload(module_of(library)); }

EMU_API hipError_t hipLibraryGetKernel(hipKernel_t* kernel, hipLibrary_t library, const char* name) {
    return hipModuleGetFunction(reinterpret_cast<hipFunction_t*>(kernel), module_of(library), name);
}

EMU_API hipError_t hipKernelGetFunction(hipFunction_t* function, hipKernel_t kernel) {
    return api("hipKernelGetFunction", [&] {
        require(function != nullptr);
        *function = &checked(kernel);
        return hipSuccess;
    });
}

EMU_API hipError_t hipKernelGetLibrary(hipLibrary_t* library, hipKernel_t kernel) {
    return api("hipKernelGetLibrary", [&] {
        require(library != nullptr);
        *library = reinterpret_cast<hipLibrary_t>(checked(kernel).module);
        return hipSuccess;
    });
}

EMU_API hipError_t hipKernelGetName(const char** name, hipKernel_t kernel) {
    return api("hipKernelGetName", [&] {
        require(name != nullptr);
        *name = checked(kernel).name.c_str();
        return hipSuccess;
    });
}

EMU_API hipError_t
hipKernelGetAttribute(int* value, hipFunction_attribute which, hipKernel_t kernel, hipDevice_t device) {
    if (!is_device(device)) return record(hipErrorInvalidDevice);
    return hipFuncGetAttribute(value, which, reinterpret_cast<hipFunction_t>(kernel));
}

EMU_API hipError_t hipKernelGetParamInfo(hipKernel_t kernel, size_t index, size_t* offset, size_t* size) {
    return api("hipKernelGetParamInfo", [&] {
        require(offset != nullptr);
        for (const loader::Argument& argument : checked(kernel).info().arguments) {
            if (argument.kind.starts_with("hidden_") || index-- != 0) continue;
            *offset = argument.offset;
            if (size) *size = argument.size;
            return hipSuccess;
        }
        return hipErrorInvalidValue;
    });
}
