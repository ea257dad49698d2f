// SPDX-License-Identifier: MIT
// The GPU that is emulated, its options, and what the runtime keeps for whoever drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ptx/schedule.h"

namespace emu::cuda {

/// Figures of NVIDIA's data sheets and of the CUDA C++ Programming Guide, table of compute capabilities.
struct Gpu {
    const char* label;
    const char* name;
    int major, minor;
    int multiprocessors;
    int shared_per_block;  // opt-in, bytes
    int shared_per_multiprocessor;
    int threads_per_multiprocessor;
    int blocks_per_multiprocessor;
    int l2_bytes;
    size_t memory;
    int clock_khz, memory_clock_khz, bus_bits;
    bool accelerated;  // runs sm_90a code
};

struct Options {
    const Gpu* gpu = nullptr;
    int told_multiprocessors = 0;  // 0: as many as the GPU has
    unsigned threads = 1;
    ptx::Schedule schedule;
    unsigned checks = 255;  // ptx::Check: those that are no faults
    bool counters = false;
    bool tensors = false;  // torch's CPU tensors are device memory, see tensors.cpp; set before torch is loaded
    bool report = false;   // findings go to stderr
    std::string log;       // a file that gets them, too, as a JSON object a line; "": none

    int multiprocessors() const { return told_multiprocessors ? told_multiprocessors : gpu->multiprocessors; }
};

const Options& options();

/// Error numbers of the runtime that it returns here. Source: CUDA Runtime API, section "Data types used by CUDA Runtime".
enum Error : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kMemoryAllocation = 2,
    kInvalidConfiguration = 9,
    kInvalidPitch = 12,
    kInvalidSymbol = 13,
    kInvalidDevicePointer = 17,
    kInvalidMemcpyDirection = 21,
    kInvalidDeviceFunction = 98,
    kNoKernelImageForDevice = 209,
    kInvalidPtx = 218,
    kUnsupportedPtxVersion = 222,
    kInvalidResourceHandle = 400,
    kIllegalState = 401,
    kSymbolNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kLaunchOutOfResources = 701,
    kAssert = 710,
    kMisalignedAddress = 716,
    kLaunchFailure = 719,
    kNotSupported = 801,
    kCaptureUnsupported = 900,
    kCaptureInvalidated = 901,
    kCaptureMerge = 902,
    kCaptureUnmatched = 903,
    kCaptureUnjoined = 904,
    kCaptureIsolation = 905,
    kCaptureImplicit = 906,
    kCapturedEvent = 907,
    kCaptureWrongThread = 908,
    kGraphUpdateFailure = 910,
};

/// The error becomes the thread's last one; `message` is kept for warpwave_emulator_take_message.
int fail(int error, const std::string& message = "");
int last_error(bool reset);
/// The last error if a kernel ended with it, which calls that wait for kernels return; else 0.
int launch_failed();

/// A finding as JSON, and its text for people.
void keep_finding(std::string json, const std::string& text);
void keep_counters(std::string json);

}  // namespace emu::cuda
