// SPDX-License-Identifier: MIT
// PTX of a program or module, and how its kernels are launched: decoded once, and run to the end before the call returns.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "api.h"
#include "ptx/program.h"

namespace emu::cuda {

struct LaunchError {
    int error;
    std::string message;
};

/// Parsed when its first kernel is launched. Variables get device memory then.
struct Library final : ptx::Addresses {
    const void* fat_binary = nullptr;  // or:
    std::string text;
    std::mutex mutex;
    std::unique_ptr<ptx::Module> module;
    std::map<std::string, void*, std::less<>> variables;
    std::map<std::string, std::unique_ptr<ptx::Program>, std::less<>> programs;
    std::map<std::string, int, std::less<>> shared_limits;  // by cudaFuncSetAttribute

    ~Library() override;
    u64 of(const std::string& symbol) const override;
    /// Throw LaunchError and ptx::SourceError.
    void load();
    const ptx::Program& program(const std::string& name);

private:
    void take(std::string source);
};

struct Geometry {
    Dim3 grid, block, cluster;
    size_t dynamic_shared;
    void* stream = nullptr;
    bool early = false;  // it may begin while the launch before it in its stream still runs
};

/// What launch attributes say of it; the others change nothing here.
inline void take(Geometry& geometry, const LaunchAttribute* attributes, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        const LaunchAttribute& each = attributes[i];
        if (each.id == kAttributeClusterDimension) geometry.cluster = {each.value[0], each.value[1], each.value[2]};
        if (each.id == kAttributeProgrammaticStream) geometry.early = each.value[0] != 0;
    }
}

/// How many clusters of a launch run at a time.
int most_clusters(const LaunchAttribute* attributes, unsigned count);

/// Runs a kernel; the error that the call returns, which is kept as the last one. `arguments`: a pointer to each; or `packed`,
/// all of them behind each other as the kernel has them.
int launch(
    Library& library, const std::string& name, const Geometry& geometry, void** arguments,
    const void* packed = nullptr);

/// The library and name of the kernel that is registered at a host function's address; null if none is.
Library* kernel_at(const void* function, std::string& name);

/// What is known of a kernel before a launch. Registers are not: PTX has as many as it wants.
struct Facts {
    size_t static_shared = 0;
    int arch = 0;          // 89
    int shared_limit = 0;  // of dynamic shared memory, bytes
    u32 max_threads = 0;   // of a block, if the kernel says so; else 0
};
/// An error if the kernel cannot be made ready.
int facts_of(Library& library, const std::string& name, Facts& facts);

/// Dynamic shared memory that a kernel may have from now on.
int set_shared_limit(Library& library, const std::string& name, int bytes);

}  // namespace emu::cuda
