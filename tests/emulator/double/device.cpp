// SPDX-License-Identifier: MIT
// A device that executes nothing, for tests of the HIP API alone: it loads code objects for real and says of every launch
// on stderr what it was asked to do.
#include <cstdio>
#include <memory>

#include "gfx942/dispatch.h"
#include "gfx942/recorded.h"

namespace emu {

struct Kernel {
    loader::KernelInfo info;
};

struct Module {
    loader::CodeObject code;
    std::vector<std::unique_ptr<Kernel>> kernels;
};

int device_count() { return 1; }
void moved(const char*, const void*, const void*, size_t) {}

void recorded::fill(const void*, uint64_t, size_t, size_t) {}
void recorded::copy(const void*, const void*, size_t) {}

Module* load_module(const void* bytes, size_t size) {
    auto module = std::make_unique<Module>();
    module->code = loader::load(bytes, size);
    for (const loader::KernelInfo& info : module->code.kernels) {
        module->kernels.push_back(std::make_unique<Kernel>(Kernel{info}));
    }
    return module.release();
}

void unload_module(Module* module) { delete module; }

const Kernel* find_kernel(const Module* module, std::string_view name) {
    for (const auto& kernel : module->kernels) {
        if (kernel->info.name == name) return kernel.get();
    }
    return nullptr;
}

std::optional<std::pair<void*, size_t>> find_global(const Module* module, std::string_view name) {
    for (const loader::Symbol& symbol : module->code.symbols) {
        if (symbol.name == name && !symbol.function) {
            return std::pair<void*, size_t>{
                const_cast<uint8_t*>(module->code.image.data()) + symbol.address, symbol.size};
        }
    }
    return std::nullopt;
}

const loader::KernelInfo& info(const Kernel& kernel) { return kernel.info; }

// With 700 bytes of dynamic LDS it says that the kernel hit an illegal address.
LaunchResult launch(const Kernel& kernel, Dim grid, Dim block, uint32_t lds, const uint8_t* arguments, size_t size) {
    std::fprintf(
        stderr, "launch %s (%u, %u, %u) (%u, %u, %u) %u ", kernel.info.name.c_str(), grid.x, grid.y, grid.z, block.x,
        block.y, block.z, lds);
    for (size_t i = 0; i < size; ++i) std::fprintf(stderr, "%02x", arguments[i]);
    std::fprintf(stderr, "\n");
    if (lds == 700) return {false, 700, "kernel " + kernel.info.name + " wrote where it may not"};
    return {};
}

}  // namespace emu
