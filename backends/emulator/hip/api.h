// SPDX-License-Identifier: MIT
// What every file of the HIP API shares: how an entry point is declared, how its result is remembered and how it
// speaks to the user.
//
// An entry point is one function marked EMU_API whose body runs inside `api` or, where it uses the device,
// `device_api`. build.py finds the marked names in the sources: what AMD's header declares beyond them is generated
// as a function that says it is not supported.
#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif
#include <hip/hip_runtime_api.h>

#include <exception>
#include <new>
#include <string>

#include "core/immortal.h"

#define EMU_API extern "C" __attribute__((visibility("default")))

namespace emu {

// An error that an entry point returns, with an explanation for stderr where the code alone would not tell.
struct ApiError : std::exception {
    hipError_t code;
    std::string message;
    explicit ApiError(hipError_t code_, std::string message_ = {}) : code(code_), message(std::move(message_)) {}
    const char* what() const noexcept override { return message.c_str(); }
};

// Keeps `code` as this thread's last result and, unless it is a success or "not ready", as its last error.
hipError_t record(hipError_t code) noexcept;

// Writes "warpwave emulator: <api>: <message>" to stderr.
void complain(const char* api, const std::string& message) noexcept;

// Says once per process and name that `api` is not supported.
hipError_t unsupported(const char* api) noexcept;

// The error of a kernel that went wrong on the device, or hipSuccess. Like on silicon, the device is unusable after
// it: every later call that needs the device returns it, until hipDeviceReset.
hipError_t device_fault() noexcept;
void set_device_fault(hipError_t code) noexcept;

// `code` of the current exception, which gets printed if it has something to say.
hipError_t explain_exception(const char* name) noexcept;

template <class Body>
hipError_t api(const char* name, Body body) noexcept {
    try {
        return record(body());
    } catch (...) {
        return record(explain_exception(name));
    }
}

template <class Body>
hipError_t device_api(const char* name, Body body) noexcept {
    if (hipError_t fault = device_fault(); fault != hipSuccess) return record(fault);
    return api(name, body);
}

inline void require(bool condition, hipError_t code = hipErrorInvalidValue) {
    if (!condition) throw ApiError(code);
}

constexpr int kMostDevices = 16;

// Of devices there are as many as the option `devices` says, all alike; each thread has one of them as its current one.
int device_count();  // at most kMostDevices
int current_device() noexcept;
void set_current_device(int device) noexcept;

inline bool is_device(int device) { return device >= 0 && device < device_count(); }
inline void require_device(int device) { require(is_device(device), hipErrorInvalidDevice); }

}  // namespace emu
