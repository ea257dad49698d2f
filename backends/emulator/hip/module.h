// SPDX-License-Identifier: MIT
// Loaded code and the functions in it: what hipModule_t and hipFunction_t point to.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "gfx942/dispatch.h"
#include "hip/api.h"

// Global names, since AMD's header declares them so.
struct ihipModule_t;

struct ihipModuleSymbol_t {
    std::string name;
    const emu::Kernel* kernel;
    ihipModule_t* module;

    const emu::loader::KernelInfo& info() const { return emu::info(*kernel); }
};

struct ihipModule_t {
    // `image`: an ELF file, a bundle or clang's wrapper around either, of at most `limit` bytes. Throws ApiError.
    ihipModule_t(const void* image, size_t limit);
    ~ihipModule_t();
    ihipModule_t(const ihipModule_t&) = delete;
    ihipModule_t& operator=(const ihipModule_t&) = delete;

    // nullptr if there is no kernel of that name. Thread safe.
    ihipModuleSymbol_t* function(const std::string& name);
    // Address and size of a device variable. Thread safe.
    std::optional<std::pair<void*, size_t>> global(const std::string& name) const;

private:
    emu::Module* module_;
    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<ihipModuleSymbol_t>> functions_;
};

namespace emu {

// True if `function` was handed out by a module that is still loaded.
bool is_function(const void* function);

// The function behind what a program passes: the host's name of a kernel, registered by compiled code, or a
// hipFunction_t. Loads its module if need be. Throws ApiError(hipErrorInvalidDeviceFunction).
ihipModuleSymbol_t& function_of(const void* host);

// Address and size of the variable that compiled host code knows as `host`. Throws ApiError(hipErrorInvalidSymbol).
std::pair<void*, size_t> variable_of(const void* host);

// Workgroups of `threads` threads with `dynamic` bytes of LDS besides the kernel's own that one compute unit holds.
int resident_groups(const loader::KernelInfo& info, size_t threads, size_t dynamic);

// Vector registers a lane holds, of both files.
inline uint32_t vector_registers(const loader::KernelInfo& info) { return info.vgprs + info.agprs; }

}  // namespace emu
