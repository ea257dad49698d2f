// SPDX-License-Identifier: MIT
#include "library.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/immortal.h"
#include "core/json.h"
#include "core/memory.h"
#include "device.h"
#include "fatbin.h"
#include "ptx/counters/report.h"
#include "ptx/run.h"

namespace emu::cuda {

Library::~Library() {
    for (const auto& [name, memory] : variables) device_free(memory);
}

u64 Library::of(const std::string& symbol) const {
    const auto known = variables.find(symbol);
    return known == variables.end() ? 0 : reinterpret_cast<u64>(known->second);
}

void Library::load() {
    if (module) return;
    const Gpu& gpu = *options().gpu;
    const int arch = 10 * gpu.major + gpu.minor;
    if (!fat_binary) return take(text);
    std::vector<Image> all = images(fat_binary);
    Image* best = nullptr;
    std::string others;
    for (Image& each : all) {
        others += (others.empty() ? "" : ", ") + std::string(each.ptx ? "PTX" : "machine code") + " for sm_" +
                  std::to_string(each.arch);
        if (each.ptx && each.arch <= arch && (!best || each.arch > best->arch)) best = &each;
    }
    if (!best)
        throw LaunchError{
            kNoKernelImageForDevice, "the program has no PTX for sm_" + std::to_string(arch) + " (it has " + others +
                                         "): build it with -gencode arch=compute_" + std::to_string(arch) +
                                         (gpu.accelerated ? "a" : "") + ",code=compute_" + std::to_string(arch) +
                                         (gpu.accelerated ? "a" : "")};
    if (!best->problem.empty()) throw LaunchError{kNoKernelImageForDevice, best->problem};
    take(std::move(best->text));
}

void Library::take(std::string source) {
    auto parsed = ptx::parse_module(std::move(source));
    for (const ptx::Variable& each : parsed->variables) {
        if (each.space != ptx::Space::Global && each.space != ptx::Space::Const) continue;
        void* const memory = device_malloc(each.bytes, each.name.c_str());
        if (!memory) throw LaunchError{kMemoryAllocation, "no memory for the variable " + each.name};
        std::memset(memory, 0, each.bytes);
        std::memcpy(memory, each.initial.data(), each.initial.size());
        variables[each.name] = memory;
    }
    for (const ptx::Variable& each : parsed->variables)
        for (const ptx::Variable::Reference& reference : each.references) {
            const u64 variable = of(reference.symbol),
                      address = variable ? variable : parsed->address(reference.symbol);
            auto* const at = static_cast<uint8_t*>(variables.at(each.name)) + reference.at;
            u64 value = 0;
            std::memcpy(&value, at, sizeof value);
            value += address;
            std::memcpy(at, &value, sizeof value);
        }
    module = std::move(parsed);
}

const ptx::Program& Library::program(const std::string& name) {
    load();
    auto& known = programs[name];
    if (!known) known = ptx::decode(*module, name, *this);
    return *known;
}

namespace {

void keep(const ptx::Found& found) {
    const std::string text = "========= " + found.check + ": " + found.message + "\n=========     in " + found.place +
                             "\n=========     block (" + std::to_string(found.block[0]) + ", " +
                             std::to_string(found.block[1]) + ", " + std::to_string(found.block[2]) + "), warp " +
                             std::to_string(found.warp);
    json::Value value = json::object();
    value.set("check", found.check).set("message", found.message).set("kernel", found.place);
    value.set("workgroup", json::array({found.block[0], found.block[1], found.block[2]}));
    value.set("wave", found.warp).set("file", found.file).set("line", found.line).set("times", found.times);
    keep_finding(value.set("text", text).text(), text);
}

/// What the newest launch of each stream has written.
std::map<void*, ptx::Written>& written_before() { return immortal<std::map<void*, ptx::Written>>(); }
std::mutex g_written;

}  // namespace

int launch(Library& library, const std::string& name, const Geometry& geometry, void** arguments, const void* packed) {
    static std::atomic<u64> serial{0};
    const Dim3 grid = geometry.grid, block = geometry.block;
    const size_t dynamic = geometry.dynamic_shared;
    const Gpu& gpu = *options().gpu;
    try {
        const std::lock_guard lock(library.mutex);
        const ptx::Program& program = library.program(name);
        ptx::Launch launch;
        launch.program = &program;
        launch.serial = ++serial;
        launch.schedule = options().schedule;
        launch.multiprocessors = static_cast<u32>(options().multiprocessors());
        const Dim3 sizes[2] = {grid, block};
        for (int i = 0; i < 2; ++i) {
            u32* const to = i ? launch.block : launch.grid;
            to[0] = sizes[i].x, to[1] = sizes[i].y, to[2] = sizes[i].z;
            if (!to[0] || !to[1] || !to[2]) throw LaunchError{kInvalidConfiguration, "a grid or block of size 0"};
        }
        if (launch.threads() > 1024 || block.z > 64)
            throw LaunchError{
                kInvalidConfiguration,
                "a block of " + std::to_string(launch.threads()) + " threads; 1024 are the most"};
        if (grid.y > 65535 || grid.z > 65535)
            throw LaunchError{kInvalidConfiguration, "a grid of more than 65535 blocks in y or z"};
        if (program.function->max_threads && launch.threads() > program.function->max_threads)
            throw LaunchError{
                kInvalidValue, "a block of " + std::to_string(launch.threads()) +
                                   " threads; the kernel's launch bounds say " +
                                   std::to_string(program.function->max_threads)};
        const u32 clusters[3] = {geometry.cluster.x, geometry.cluster.y, geometry.cluster.z};
        for (int i = 0; i < 3; ++i) {
            launch.cluster[i] = program.function->cluster[0] ? program.function->cluster[i] : std::max(1u, clusters[i]);
            if (launch.grid[i] % launch.cluster[i])
                throw LaunchError{kInvalidConfiguration, "a grid that is no multiple of its clusters"};
        }
        const u32 blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
        if (blocks > 16)
            throw LaunchError{
                kInvalidConfiguration, "a cluster of " + std::to_string(blocks) + " blocks; 16 are the most"};
        if (blocks > 1 && gpu.major < 9)
            throw LaunchError{kInvalidConfiguration, "clusters need compute capability 9.0"};
        const auto limit = library.shared_limits.find(name);
        const size_t allowed = std::max<size_t>(
            49152, limit == library.shared_limits.end()
                       ? 0
                       : static_cast<size_t>(limit->second) + program.static_shared_bytes);
        const size_t shared =
            program.static_shared_bytes ? round_up(program.static_shared_bytes, 128) + dynamic : dynamic;
        if (program.static_shared_bytes + dynamic >
            std::min<size_t>(allowed, static_cast<size_t>(gpu.shared_per_block)))
            throw LaunchError{
                kInvalidValue,
                "a block wants " + std::to_string(program.static_shared_bytes + dynamic) +
                    " bytes of shared memory; it may have " +
                    std::to_string(std::min<size_t>(allowed, static_cast<size_t>(gpu.shared_per_block))) +
                    " (cudaFuncSetAttribute raises that, to " + std::to_string(gpu.shared_per_block) + ")"};
        launch.dynamic_bytes = static_cast<u32>(dynamic);
        launch.shared_bytes = static_cast<u32>(shared);
        launch.parameters.resize(program.function->parameter_bytes);
        size_t number = 0;
        if (packed) std::memcpy(launch.parameters.data(), packed, launch.parameters.size());
        else
            for (const ptx::Variable& each : program.function->parameters)
                std::memcpy(launch.parameters.data() + each.offset, arguments[number++], each.bytes);
        std::vector<ptx::Ranges::Range> ranges;
        for (const Allocation& each : allocations()) ranges.push_back({each.begin, each.begin + each.size});
        launch.checks = options().checks;
        ptx::Heap& heap = ptx::Heap::instance();
        if (program.allocates) heap.open();
        const ptx::Ranges memory(std::move(ranges), heap.is_open() ? &heap : nullptr);
        launch.memory = &memory;
        if (memory.heap() && !(launch.checks & ptx::kUninitialised)) heap.trust();
        launch.counters = options().counters;
        ptx::Written before;
        if (geometry.early && launch.checks & ptx::kGridOrder) {
            const std::lock_guard guard(g_written);
            before = written_before()[geometry.stream];
            launch.before = &before;
        }
        ptx::Outcome outcome = ptx::run(launch, options().threads);
        std::fflush(stdout);  // what the kernel has printed
        if (launch.checks & ptx::kGridOrder) {
            const std::lock_guard guard(g_written);
            written_before()[geometry.stream] = std::move(outcome.written);
        }
        for (const ptx::Found& each : outcome.found) keep(each);
        if (!outcome.ok) {
            ptx::Found fault{outcome.check, outcome.message, outcome.place,
                             outcome.file,  outcome.line,    {outcome.block[0], outcome.block[1], outcome.block[2]},
                             outcome.warp};
            keep(fault);
            return fail(outcome.cuda_error, outcome.message);
        }
        if (options().counters) {
            keep_counters(ptx::counted(launch, outcome.tally));
        }
        return kSuccess;
    } catch (const LaunchError& error) {
        return fail(error.error, error.message);
    } catch (const std::exception& error) {
        return fail(kInvalidPtx, "the emulator cannot run kernel " + name + ": " + error.what());
    }
}

int most_clusters(const LaunchAttribute* attributes, unsigned count) {
    Geometry geometry{{}, {}, {1, 1, 1}, 0};
    take(geometry, attributes, count);
    const Dim3& cluster = geometry.cluster;
    return options().multiprocessors() / static_cast<int>(std::max(1u, cluster.x * cluster.y * cluster.z));
}

int facts_of(Library& library, const std::string& name, Facts& facts) {
    try {
        const std::lock_guard lock(library.mutex);
        const ptx::Program& program = library.program(name);
        const auto limit = library.shared_limits.find(name);
        const int most = limit == library.shared_limits.end() ? 49152 : limit->second;
        facts = {program.static_shared_bytes, program.arch, most, program.function->max_threads};
        return kSuccess;
    } catch (const LaunchError& error) {
        return fail(error.error, error.message);
    } catch (const std::exception& error) {
        return fail(kInvalidPtx, error.what());
    }
}

int set_shared_limit(Library& library, const std::string& name, int bytes) {
    if (bytes > options().gpu->shared_per_block)
        return fail(
            kInvalidValue, "dynamic shared memory of " + std::to_string(bytes) + " bytes; the device has " +
                               std::to_string(options().gpu->shared_per_block));
    const std::lock_guard lock(library.mutex);
    library.shared_limits[name] = bytes;
    return kSuccess;
}

}  // namespace emu::cuda
