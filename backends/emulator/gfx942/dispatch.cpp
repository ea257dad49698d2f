// SPDX-License-Identifier: MIT
#include "dispatch.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>

#include "options.h"
#include "findings.h"
#include "../loader/bundle.h"
#include "recorded.h"
#include "checks/checks.h"
#include "counters/counters.h"
#include "counters/places.h"
#include "core/memory.h"
#include "module.h"
#include "run.h"
#include "services.h"
#include "table.h"

namespace emu {
namespace {

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

constexpr size_t kPage = 4096;
constexpr u32 kMaxLds = 64 * 1024, kMaxThreads = 1024;
constexpr u64 kHangs = 1'000'000'000;  // instructions of a wave: minutes of emulation
constexpr int kInvalidValue = 1, kInvalidConfiguration = 9, kLaunchFailure = 719;

// --- arguments that the compiler adds (LLVM AMDGPU usage, code object v5 metadata) ---------------------------------

struct Hidden {
    Dim grid, block;
    u32 dynamic_lds;
    u64 queue;
};

u64 hidden_value(const std::string& kind, const Hidden& h) {
    const u32 dimensions = h.grid.z * h.block.z > 1 ? 3 : h.grid.y * h.block.y > 1 ? 2 : 1;
    if (kind == "hidden_block_count_x") return h.grid.x;
    if (kind == "hidden_block_count_y") return h.grid.y;
    if (kind == "hidden_block_count_z") return h.grid.z;
    if (kind == "hidden_group_size_x") return h.block.x;
    if (kind == "hidden_group_size_y") return h.block.y;
    if (kind == "hidden_group_size_z") return h.block.z;
    if (kind == "hidden_grid_dims") return dimensions;
    if (kind == "hidden_private_base") return kPrivateAperture >> 32;
    if (kind == "hidden_shared_base") return kSharedAperture >> 32;
    if (kind == "hidden_dynamic_lds_size") return h.dynamic_lds;
    if (kind == "hidden_queue_ptr") return h.queue;
    if (!control::options().services) return 0;
    if (kind == "hidden_hostcall_buffer") return services::hostcall_buffer();
    if (kind == "hidden_heap_v1") return services::heap();
    return 0;  // remainders (grids are whole workgroups), global offsets
}

void fill_hidden(const loader::KernelInfo& kernel, const Hidden& hidden, std::vector<u8>& segment) {
    for (const loader::Argument& argument : kernel.arguments) {
        if (argument.kind.rfind("hidden_", 0) != 0 || argument.offset + argument.size > segment.size()) continue;
        const u64 value = hidden_value(argument.kind, hidden);
        std::memcpy(segment.data() + argument.offset, &value, std::min<size_t>(argument.size, sizeof value));
    }
}

// The AQL kernel dispatch packet, whose sizes ockl reads (HSA runtime specification, "Kernel dispatch packet").
struct DispatchPacket {
    u16 header, setup, workgroup_x, workgroup_y, workgroup_z, reserved0;
    u32 grid_x, grid_y, grid_z, private_bytes, group_bytes;
    u64 kernel_object, kernarg, reserved2, completion_signal;
};
static_assert(sizeof(DispatchPacket) == 64);

DispatchPacket packet(const loader::KernelInfo& kernel, const Dim& grid, const Dim& block, u32 lds, u64 kernarg) {
    DispatchPacket result{};
    result.setup = 3;
    result.workgroup_x = static_cast<u16>(block.x);
    result.workgroup_y = static_cast<u16>(block.y);
    result.workgroup_z = static_cast<u16>(block.z);
    result.grid_x = grid.x * block.x;
    result.grid_y = grid.y * block.y;
    result.grid_z = grid.z * block.z;
    result.private_bytes = kernel.scratch_bytes;
    result.group_bytes = lds;
    result.kernarg = kernarg;
    return result;
}

// --- what a kernel may run ------------------------------------------------------------------------------------------

bool order_shows(const Op& op) {
    const Row* row = op.inst.row;
    if (!row || !(row->flags & kAtomic)) return false;
    if (row->format != Format::Flat && row->format != Format::Global && row->format != Format::Mubuf) return false;
    return op.inst.sc0 || is_float(signature(*row).src[0].type);
}

// A load that goes past the L1 (volatile, or atomic for the whole device) may wait for what another workgroup stores.
bool may_wait(const Op& op) {
    const Row* row = op.inst.row;
    if (!row || !op.inst.sc1 || row->flags & kAtomic || !row->signature) return false;
    if (row->format != Format::Flat && row->format != Format::Global && row->format != Format::Mubuf) return false;
    return std::string_view(row->name).find("_load_") != std::string_view::npos;
}

std::string limits(const loader::KernelInfo& kernel, const Dim& grid, const Dim& block, u32 lds) {
    char text[200];
    const u64 threads = block.volume(), most = kernel.max_threads ? kernel.max_threads : kMaxThreads;
    if (!grid.volume() || !threads) return "an empty grid or block";
    if (threads > most) {
        std::snprintf(
            text, sizeof text,
            "%" PRIu64 " threads in a block; the kernel was compiled for %" PRIu64 " (__launch_bounds__)", threads,
            most);
        return text;
    }
    if (lds > kMaxLds) {
        std::snprintf(text, sizeof text, "%u bytes of LDS; a workgroup can have %u", lds, kMaxLds);
        return text;
    }
    return "";
}

}  // namespace

namespace {

// What accesses are judged by: variables one by one, which lie behind the code, and all before the first of them as a whole.
template <class Body>
void for_each_part(const Module& module, Body body) {
    u64 first = module.size;
    for (const loader::Symbol& symbol : module.code.symbols) {
        if (symbol.function || !symbol.size || symbol.address < module.code.text_end || symbol.name == "_DYNAMIC")
            continue;
        first = std::min(first, symbol.address);
        body(module.base + symbol.address, symbol.size, symbol.name.c_str());
    }
    if (first) body(module.base, first, "code object");
}

}  // namespace

Module::~Module() {
    if (base) munmap(base, size);
}

Module* load_module(const void* bytes, size_t size) { return load_module(bytes, size, 0); }

Module* load_module(const void* bytes, size_t size, uint64_t address) {
    auto module = std::make_unique<Module>();
    module->code = loader::load(bytes, size);
    module->size = (module->code.image.size() + kPage - 1) / kPage * kPage;
    const auto* const first = static_cast<const u8*>(bytes);
    module->file.assign(first, first + size);
    void* memory = mmap(
        reinterpret_cast<void*>(address), std::max(module->size, kPage), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (memory == MAP_FAILED && address) throw std::runtime_error("there is no room for a code object at its address");
    if (memory == MAP_FAILED) throw std::bad_alloc();
    module->base = static_cast<u8*>(memory);
    std::copy(module->code.image.begin(), module->code.image.end(), module->base);
    loader::relocate(module->code, module->base, [](std::string_view) { return std::nullopt; });
    for (const loader::KernelInfo& kernel : module->code.kernels) {
        module->kernels.push_back(std::make_unique<Kernel>());
        module->kernels.back()->module = module.get();
        module->kernels.back()->info = &kernel;
    }
    for_each_part(
        *module, [](const void* begin, size_t bytes, const char* name) { register_host(begin, bytes, name); });
    return module.release();
}

void unload_module(Module* module) {
    if (module) for_each_part(*module, [](const void* begin, size_t, const char*) { unregister_host(begin); });
    delete module;
}

const Kernel* find_kernel(const Module* module, std::string_view name) {
    for (const auto& kernel : module->kernels)
        if (kernel->info->name == name) return kernel.get();
    return nullptr;
}

std::optional<std::pair<void*, size_t>> find_global(const Module* module, std::string_view name) {
    for (const loader::Symbol& symbol : module->code.symbols)
        if (symbol.name == name && !symbol.function)
            return std::pair<void*, size_t>{module->base + symbol.address, symbol.size};
    return std::nullopt;
}

int device_count() { return static_cast<int>(control::options().devices); }

void moved(const char* call, const void* from, const void* to, size_t bytes) {
    if (control::options().counters) control::kept_counters().keep(counters::report_move(call, from, to, bytes));
}

const loader::KernelInfo& info(const Kernel& kernel) { return *kernel.info; }

void prepare(Kernel& kernel) {
    std::call_once(kernel.once, [&] {
        const loader::CodeObject& code = kernel.module->code;
        const loader::KernelInfo& self = *kernel.info;
        std::vector<CodeRange> ranges;
        for (const loader::Symbol& symbol : code.symbols) {
            if (!symbol.function || symbol.address < code.text_begin || symbol.address >= code.text_end) continue;
            const bool other =
                std::any_of(code.kernels.begin(), code.kernels.end(), [&](const loader::KernelInfo& each) {
                return each.entry == symbol.address && each.entry != self.entry;
            });
            if (other) continue;
            const u64 end = symbol.size ? symbol.address + symbol.size : code.text_end;
            ranges.push_back({symbol.address - code.text_begin, end - code.text_begin});
        }
        // Granules of eight registers over both files; AGPRs begin at accum_offset.
        const u32 registers = ((self.rsrc1 & 63) + 1) * 8;
        kernel.program = translate(
            kernel.module->base + code.text_begin, code.text_end - code.text_begin, ranges, registers,
            self.accum_offset ? self.accum_offset : registers);
        constexpr u64 kPreloadPrologue = 256;  // skipped by firmware that preloads arguments (LLVM AMDGPU usage)
        const u64 entry = reinterpret_cast<u64>(kernel.module->base) + self.entry +
                          (self.kernarg_preload & 127 ? kPreloadPrologue : 0);
        kernel.start = index_of(*kernel.program, entry);
        const std::vector<Op>& ops = kernel.program->ops;
        kernel.ordered = std::any_of(ops.begin(), ops.end(), order_shows);
        kernel.waits = std::any_of(ops.begin(), ops.end(), may_wait);
    });
    if (kernel.start == kNoOp) throw KernelFault("the kernel's entry is not in its code");
}

LaunchResult launch(
    const Kernel& handle, Dim grid, Dim block, uint32_t dynamic_lds, const uint8_t* kernarg, size_t kernarg_size) {
    auto& kernel = const_cast<Kernel&>(handle);
    const loader::KernelInfo& self = *kernel.info;
    const u32 lds = self.lds_bytes + dynamic_lds;
    if (const std::string why = limits(self, grid, block, lds); !why.empty())
        return {false, kInvalidConfiguration, "cannot launch " + self.name + ": " + why};
    if (self.scratch_bytes > (1u << 20))
        return {false, kInvalidValue, self.name + " wants more than 1 MiB of scratch a lane"};
    try {
        prepare(kernel);
    } catch (const KernelFault& error) {
        return {false, kLaunchFailure, self.name + ": " + error.what()};
    }
    const Options& options = control::options();
    if (recorded::on()) recorded::launch(kernel, grid, block, dynamic_lds, kernarg, kernarg_size);
    if (recorded::instead()) return {};
    std::vector<u8> segment(std::max<size_t>(self.kernarg_bytes, kernarg_size) + 64);
    if (kernarg_size) std::memcpy(segment.data(), kernarg, kernarg_size);
    static u64 queue[32] = {};  // queue_ptr: what code objects before v5 read apertures from
    fill_hidden(self, {grid, block, dynamic_lds, reinterpret_cast<u64>(queue)}, segment);
    const DispatchPacket aql = packet(self, grid, block, lds, reinterpret_cast<u64>(segment.data()));

    Launch launch;
    launch.program = kernel.program.get();
    launch.kernel = kernel.info;
    launch.module = kernel.module;
    launch.grid = grid;
    launch.block = block;
    launch.kernarg = reinterpret_cast<u64>(segment.data());
    launch.kernarg_bytes = static_cast<u32>(segment.size());
    launch.lds_bytes = lds;
    constexpr u32 kStackWhenDynamic = 16 * 1024;  // calls whose depth the compiler could not bound
    launch.scratch_bytes =
        self.dynamic_stack ? std::max(self.scratch_bytes + 4096, kStackWhenDynamic) : self.scratch_bytes;
    launch.dispatch_packet = reinterpret_cast<u64>(&aql);
    launch.queue = reinterpret_cast<u64>(queue);
    launch.start = kernel.start;
    launch.sampled = options.counters ? options.sample : 0;
    launch.ordered = (kernel.ordered || (options.counters && kernel.waits)) && !options.unordered;
    std::shared_ptr<checks::LaunchShadow> shadow;
    if (options.checks) shadow = checks::begin_launch(launch, options.checks);
    launch.shadow = shadow.get();
    counters::Places places;
    if (options.counters) launch.places = &(places = counters::Places(launch));
    counters::Tally tally(options.counters ? launch.program->ops.size() : 0);

    const auto begin = std::chrono::steady_clock::now();
    const u64 limit = options.limit ? options.limit : options.checks & checks::kBarrier ? kHangs : 0;
    const Outcome outcome = run(launch, {options.threads, options.slice, limit}, options.counters ? &tally : nullptr);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    services::flush();
    if (shadow) findings::keep(checks::end_launch(*shadow));
    if (recorded::on() && options.counters) recorded::used(tally.footprint, places);
    if (options.counters) control::kept_counters().keep(counters::report(launch, std::move(tally), seconds));
    return {outcome.ok, outcome.hip_error, outcome.message};
}

std::string place(const Wave& wave, const Op& op) {
    const Launch& launch = *wave.group->launch;
    const loader::CodeObject& code = launch.module->code;
    char text[160];
    const u64 address = code.text_begin + op.pc;
    std::snprintf(
        text, sizeof text, ", workgroup (%u, %u, %u), wave %u, pc 0x%" PRIx64, wave.group->id.x, wave.group->id.y,
        wave.group->id.z, wave.id, address - launch.kernel->entry);
    std::string result = "kernel " + launch.kernel->name + text;
    if (const auto line = code.lines.find(address)) result += ", " + line->file + ":" + std::to_string(line->line);
    if (const auto calls = code.inlined.calls(address); !calls.empty())
        result += " (inlined at " + calls.back().file + ":" + std::to_string(calls.back().line) + ")";
    result += ": " + disassemble(op.inst);
    char bits[40];
    std::snprintf(
        bits, sizeof bits, op.inst.words > 1 ? " (%08x %08x)" : " (%08x)", op.inst.encoding[0], op.inst.encoding[1]);
    return result + bits;
}

}  // namespace emu
