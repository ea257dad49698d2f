// SPDX-License-Identifier: MIT
// Launches. A launch is checked, its arguments are laid out as the kernel's metadata says, and it is complete on
// return; so what goes wrong in a kernel is the result of its launch, and of every later call (see device_fault).

#include <algorithm>
#include <cstring>
#include <vector>

#include "hip/graph.h"
#include "hip/module.h"
#include "hip/properties.h"
#include "hip/queue.h"

using namespace emu;
using namespace emu::mi300x;

namespace {

struct Shape {
    Dim grid, block;  // workgroups, threads
    size_t dynamic_lds;
    bool cooperative = false;
};

bool is_explicit(const loader::Argument& argument) { return !argument.kind.starts_with("hidden_"); }

size_t threads_of(const Dim& block) { return size_t{block.x} * block.y * block.z; }

void check(const ihipModuleSymbol_t& function, const Shape& shape) {
    const loader::KernelInfo& info = function.info();
    const Dim &grid = shape.grid, &block = shape.block;
    size_t threads = threads_of(block);
    require(grid.x && grid.y && grid.z && threads, hipErrorInvalidConfiguration);
    std::string size = info.name + ": blocks of " + std::to_string(block.x) + " x " + std::to_string(block.y) + " x " +
                       std::to_string(block.z) + " threads";
    bool fits = block.x <= kThreadsPerBlock && block.y <= kThreadsPerBlock && block.z <= kThreadsPerBlock;
    if (!fits || threads > kThreadsPerBlock) {
        throw ApiError(hipErrorInvalidConfiguration, size + "; the device takes 1024");
    }
    if (threads > info.max_threads) {
        throw ApiError(
            hipErrorLaunchFailure,
            size + ", but it is compiled for " + std::to_string(info.max_threads) + " (__launch_bounds__)");
    }
    for (auto [groups, side] : {std::pair{grid.x, block.x}, {grid.y, block.y}, {grid.z, block.z}}) {
        require(uint64_t{groups} * side <= UINT32_MAX, hipErrorInvalidConfiguration);
    }
    if (shape.dynamic_lds > kLdsBytes || info.lds_bytes + shape.dynamic_lds > kLdsBytes) {
        throw ApiError(
            hipErrorInvalidValue, info.name + ": " + std::to_string(info.lds_bytes) + " bytes of static and " +
                                      std::to_string(shape.dynamic_lds) + " of dynamic LDS; a workgroup has 65536");
    }
    if (shape.cooperative) {
        size_t groups = size_t{grid.x} * grid.y * grid.z;
        size_t resident = static_cast<size_t>(resident_groups(info, threads, shape.dynamic_lds)) * kUnits;
        require(groups <= resident, hipErrorCooperativeLaunchTooLarge);
    }
}

// One pointer for each argument, in the order of the declaration.
std::vector<uint8_t> pack(const loader::KernelInfo& info, void** parameters) {
    std::vector<uint8_t> packed(info.kernarg_bytes);
    size_t index = 0, end = 0;
    for (const loader::Argument& argument : info.arguments) {
        if (!is_explicit(argument)) continue;
        require(parameters != nullptr && parameters[index] != nullptr);
        require(argument.offset + argument.size <= packed.size(), hipErrorInvalidImage);
        std::memcpy(packed.data() + argument.offset, parameters[index++], argument.size);
        end = std::max<size_t>(end, argument.offset + argument.size);
    }
    packed.resize(end);
    return packed;
}

// A buffer that the caller laid out.
std::vector<uint8_t> unpack(const loader::KernelInfo& info, void** extra) {
    const uint8_t* buffer = nullptr;
    size_t size = 0;
    for (; *extra != HIP_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = static_cast<const uint8_t*>(extra[1]);
        } else {
            require(*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != nullptr);
            size = *static_cast<const size_t*>(extra[1]);
        }
    }
    size_t end = 0;
    for (const loader::Argument& argument : info.arguments) {
        if (is_explicit(argument)) end = std::max<size_t>(end, argument.offset + argument.size);
    }
    require(buffer != nullptr || end == 0);
    if (size < end) {
        throw ApiError(
            hipErrorInvalidValue, info.name + ": the buffer of arguments has " + std::to_string(size) +
                                      " bytes, the kernel reads " + std::to_string(end));
    }
    return {buffer, buffer + end};  // what follows belongs to the hidden arguments, which the launch fills
}

// A kernel that ran into one of these leaves the device unusable.
bool is_fault(hipError_t code) {
    return code == hipErrorIllegalAddress || code == hipErrorLaunchFailure || code == hipErrorLaunchTimeOut ||
           code == hipErrorAssert;
}

void launch_now(const ihipModuleSymbol_t& function, const Shape& shape, std::vector<uint8_t> arguments) {
    LaunchResult result = emu::launch(
        *function.kernel, shape.grid, shape.block, static_cast<uint32_t>(shape.dynamic_lds), arguments.data(),
        arguments.size());
    if (result.ok) return;
    auto code = static_cast<hipError_t>(result.hip_error);
    if (is_fault(code)) set_device_fault(code);
    throw ApiError(code, result.message);
}

// What a launch is, checked, with its arguments.
Work work_of(const ihipModuleSymbol_t& function, const Shape& shape, void** parameters, void** extra) {
    require(parameters == nullptr || extra == nullptr);
    check(function, shape);
    const loader::KernelInfo& info = function.info();
    std::vector<uint8_t> arguments = extra ? unpack(info, extra) : pack(info, parameters);
    return [&function, shape, arguments = std::move(arguments)] {
        return device_api("hipGraphLaunch", [&] {
            launch_now(function, shape, arguments);
            return hipSuccess;
        });
    };
}

void launch(
    const ihipModuleSymbol_t& function, const Shape& shape, hipStream_t queue, void** parameters, void** extra,
    hipEvent_t start = nullptr, hipEvent_t stop = nullptr) {
    require_queue(queue);
    if (is_captured(queue)) {
        require(!start && !stop, hipErrorStreamCaptureUnsupported);
        captured(queue, hipGraphNodeTypeKernel, work_of(function, shape, parameters, extra));
        return;
    }
    require(parameters == nullptr || extra == nullptr);
    check(function, shape);
    const loader::KernelInfo& info = function.info();
    std::vector<uint8_t> arguments = extra ? unpack(info, extra) : pack(info, parameters);
    record_event(start);
    launch_now(function, shape, std::move(arguments));
    record_event(stop);
}

Dim dim(const dim3& from) { return {from.x, from.y, from.z}; }

hipError_t launch_host(
    const char* name, const void* host, dim3 grid, dim3 block, void** parameters, size_t lds, hipStream_t queue,
    bool cooperative = false, hipEvent_t start = nullptr, hipEvent_t stop = nullptr) {
    return device_api(name, [&] {
        launch(function_of(host), {dim(grid), dim(block), lds, cooperative}, queue, parameters, nullptr, start, stop);
        return hipSuccess;
    });
}

hipError_t launch_module(
    const char* name, hipFunction_t function, const Shape& shape, hipStream_t queue, void** parameters, void** extra,
    hipEvent_t start = nullptr, hipEvent_t stop = nullptr) {
    return device_api(name, [&] {
        require(is_function(function), hipErrorInvalidHandle);
        launch(*function, shape, queue, parameters, extra, start, stop);
        return hipSuccess;
    });
}

bool wants_cooperative(const hipLaunchAttribute* attributes, unsigned count) {
    bool cooperative = false;
    for (unsigned i = 0; i < count; ++i) {
        if (attributes[i].id == hipLaunchAttributeCooperative) cooperative = attributes[i].val.cooperative != 0;
    }
    return cooperative;
}

// What <<<...>>> leaves for the stub of the kernel.
struct Configuration {
    dim3 grid, block;
    size_t lds;
    hipStream_t queue;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

namespace emu {

Work prepare(const hipKernelNodeParams& p) {
    const Shape shape{dim(p.gridDim), dim(p.blockDim), p.sharedMemBytes};
    return work_of(function_of(p.func), shape, p.kernelParams, p.extra);
}

}  // namespace emu

EMU_API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds, hipStream_t queue) {
    return api("__hipPushCallConfiguration", [&] {
        configurations.push_back({grid, block, lds, queue});
        return hipSuccess;
    });
}

EMU_API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* lds, hipStream_t* queue) {
    return api("__hipPopCallConfiguration", [&] {
        require(!configurations.empty(), hipErrorMissingConfiguration);
        Configuration top = configurations.back();
        configurations.pop_back();
        *grid = top.grid;
        *block = top.block;
        *lds = top.lds;
        *queue = top.queue;
        return hipSuccess;
    });
}

EMU_API hipError_t
hipLaunchKernel(const void* host, dim3 grid, dim3 block, void** parameters, size_t lds, hipStream_t queue) {
    return launch_host("hipLaunchKernel", host, grid, block, parameters, lds, queue);
}

EMU_API hipError_t hipExtLaunchKernel(
    const void* host, dim3 grid, dim3 block, void** parameters, size_t lds, hipStream_t queue, hipEvent_t start,
    hipEvent_t stop, int) {
    return launch_host("hipExtLaunchKernel", host, grid, block, parameters, lds, queue, false, start, stop);
}

EMU_API hipError_t hipLaunchCooperativeKernel(
    const void* host, dim3 grid, dim3 block, void** parameters, unsigned lds, hipStream_t queue) {
    return launch_host("hipLaunchCooperativeKernel", host, grid, block, parameters, lds, queue, true);
}

EMU_API hipError_t hipLaunchKernelExC(const hipLaunchConfig_t* config, const void* host, void** parameters) {
    if (config == nullptr) return record(hipErrorInvalidConfiguration);
    return launch_host(
        "hipLaunchKernelExC", host, config->gridDim, config->blockDim, parameters, config->dynamicSmemBytes,
        config->stream, wants_cooperative(config->attrs, config->numAttrs));
}

EMU_API hipError_t hipModuleLaunchKernel(
    hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned lds, hipStream_t queue, void** parameters, void** extra) {
    Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, lds};
    return launch_module("hipModuleLaunchKernel", function, shape, queue, parameters, extra);
}

EMU_API hipError_t hipModuleLaunchCooperativeKernel(
    hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned lds, hipStream_t queue, void** parameters) {
    Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, lds, true};
    return launch_module("hipModuleLaunchCooperativeKernel", function, shape, queue, parameters, nullptr);
}

EMU_API hipError_t
hipDrvLaunchKernelEx(const HIP_LAUNCH_CONFIG* config, hipFunction_t function, void** parameters, void** extra) {
    if (config == nullptr) return record(hipErrorInvalidConfiguration);
    Shape shape{
        {config->gridDimX, config->gridDimY, config->gridDimZ},
        {config->blockDimX, config->blockDimY, config->blockDimZ},
        config->sharedMemBytes,
        wants_cooperative(config->attrs, config->numAttrs)};
    return launch_module("hipDrvLaunchKernelEx", function, shape, config->hStream, parameters, extra);
}

// Sizes in threads, not in blocks. Declared in hip_ext.h, which triton's headers lack.
EMU_API hipError_t hipExtModuleLaunchKernel(
    hipFunction_t function, uint32_t threads_x, uint32_t threads_y, uint32_t threads_z, uint32_t block_x,
    uint32_t block_y, uint32_t block_z, size_t lds, hipStream_t queue, void** parameters, void** extra,
    hipEvent_t start, hipEvent_t stop, uint32_t) {
    if (!block_x || !block_y || !block_z) return record(hipErrorInvalidConfiguration);
    if (threads_x % block_x || threads_y % block_y || threads_z % block_z) {
        return unsupported("hipExtModuleLaunchKernel with blocks that are not full");
    }
    Shape shape{{threads_x / block_x, threads_y / block_y, threads_z / block_z}, {block_x, block_y, block_z}, lds};
    return launch_module("hipExtModuleLaunchKernel", function, shape, queue, parameters, extra, start, stop);
}

EMU_API hipError_t hipHccModuleLaunchKernel(
    hipFunction_t function, uint32_t threads_x, uint32_t threads_y, uint32_t threads_z, uint32_t block_x,
    uint32_t block_y, uint32_t block_z, size_t lds, hipStream_t queue, void** parameters, void** extra,
    hipEvent_t start, hipEvent_t stop) {
    return hipExtModuleLaunchKernel(
        function, threads_x, threads_y, threads_z, block_x, block_y, block_z, lds, queue, parameters, extra, start,
        stop, 0);
}
