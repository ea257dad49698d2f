// SPDX-License-Identifier: MIT
#include "run.h"

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <deque>
#include <mutex>

#include "checks/checks.h"
#include "core/text.h"
#include "core/threads.h"
#include "module.h"

namespace emu {
namespace {

constexpr size_t kLdsSlack = 64;

// --- a crash of the host in a kernel's access is a fault of the kernel ----------------------------------------------

struct Recovery {
    sigjmp_buf place;
    void* address = nullptr;
};
thread_local Recovery* recovery = nullptr;
struct sigaction previous_segv, previous_bus;

void on_crash(int signal, siginfo_t* info, void* context) {
    if (recovery) {
        recovery->address = info->si_addr;
        siglongjmp(recovery->place, 1);
    }
    // Not ours: whoever was here before, or the default action.
    const struct sigaction& previous = signal == SIGBUS ? previous_bus : previous_segv;
    if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
    std::signal(signal, SIG_DFL);
}

void catch_crashes() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action{};
        action.sa_sigaction = on_crash;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &action, &previous_segv);
        sigaction(SIGBUS, &action, &previous_bus);
    });
}

// --- one workgroup --------------------------------------------------------------------------------------------------

struct Group {
    Workgroup state;
    std::unique_ptr<u8[]> memory;  // LDS, registers, scratch
    std::shared_ptr<checks::GroupShadow> shadow;
};

void* aligned(u8*& cursor, size_t bytes) {
    auto* place = reinterpret_cast<u8*>((reinterpret_cast<uintptr_t>(cursor) + 63) & ~uintptr_t{63});
    cursor = place + bytes;
    return place;
}

void fill(void* memory, size_t bytes) {
    auto* words = static_cast<u32*>(memory);
    std::fill_n(words, bytes / sizeof(u32), kPoison);
}

// Work-item ids are packed into v0: x in bits 0-9, y in 10-19, z in 20-29 (LLVM AMDGPU usage, gfx90a and later).
void set_work_item_ids(Wave& wave, const Dim& block) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 linear = wave.id * kLanes + lane;
        const u32 x = linear % block.x, y = linear / block.x % block.y, z = linear / block.x / block.y;
        wave.v(0)[lane] = x | y << 10 | z << 20;
    }
}

// LLVM AMDGPU usage, "Initial Kernel Execution State": which scalar registers the descriptor asks for, in this order.
void set_scalars(Wave& wave, const Launch& launch, const Dim& id) {
    const u32 rsrc2 = launch.kernel->rsrc2;
    const u16 properties = launch.kernel->properties;
    u32 next = 0;
    auto put = [&](u32 value) { wave.sgpr[next++] = value; };
    auto put_pair = [&](u64 value) {
        put(static_cast<u32>(value));
        put(static_cast<u32>(value >> 32));
    };
    if (properties & 1) next += 4;  // private segment buffer: not with architected flat scratch
    if (properties & 2) put_pair(launch.dispatch_packet);
    if (properties & 4) put_pair(launch.queue);
    if (properties & 8) put_pair(launch.kernarg);
    if (properties & 16) put_pair(0);  // dispatch id
    if (properties & 32) put_pair(0);  // flat scratch: architected
    if (properties & 64) put(launch.scratch_bytes);
    const u32 preload = launch.kernel->kernarg_preload & 127, offset = launch.kernel->kernarg_preload >> 7;
    for (u32 i = 0; i < preload; ++i) {
        u32 word = 0;
        if ((offset + i + 1) * 4 <= launch.kernarg_bytes)
            std::memcpy(&word, reinterpret_cast<const u8*>(launch.kernarg) + (offset + i) * 4, 4);
        put(word);
    }
    if (rsrc2 >> 7 & 1) put(id.x);
    if (rsrc2 >> 8 & 1) put(id.y);
    if (rsrc2 >> 9 & 1) put(id.z);
    if (rsrc2 >> 10 & 1) put(0);  // work-group info
    wave.set_pair(kFlatScratch, kPrivateAperture);
}

u32 initial_mode(u32 rsrc1) {
    // FLOAT_MODE in bits 12-19; DX10_CLAMP 21; IEEE_MODE 23; FP16_OVFL 26 (LLVM AMDGPU usage, compute_pgm_rsrc1).
    return (rsrc1 >> 12 & 0xff) | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9 | (rsrc1 >> 26 & 1) << 23;
}

std::unique_ptr<Group> make_group(const Launch& launch, u64 linear, counters::Tally* tally) {
    auto group = std::make_unique<Group>();
    Workgroup& state = group->state;
    state.launch = &launch;
    state.linear = linear;
    state.id = {
        static_cast<u32>(linear % launch.grid.x), static_cast<u32>(linear / launch.grid.x % launch.grid.y),
        static_cast<u32>(linear / launch.grid.x / launch.grid.y)};
    state.lds_bytes = launch.lds_bytes;
    state.tally = tally;
    const u64 items = launch.block.volume();
    const size_t waves = (items + kLanes - 1) / kLanes;
    const u32 registers = std::max(launch.program->vgprs, 1u);
    const size_t register_bytes = size_t{registers} * kLanes * 4, scratch = size_t{launch.scratch_bytes} * kLanes;
    group->memory = std::make_unique_for_overwrite<u8[]>(
        launch.lds_bytes + kLdsSlack + waves * (register_bytes + scratch) + 64 * (2 * waves + 2));
    u8* cursor = group->memory.get();
    state.lds = static_cast<u8*>(aligned(cursor, launch.lds_bytes + kLdsSlack));
    fill(state.lds, launch.lds_bytes + kLdsSlack);
    state.waves.resize(waves);
    for (size_t i = 0; i < waves; ++i) {
        Wave& wave = state.waves[i];
        wave.id = static_cast<u32>(i);
        wave.group = &state;
        wave.vgpr_count = registers;
        wave.vgprs = static_cast<u32*>(aligned(cursor, register_bytes));
        fill(wave.vgprs, register_bytes);
        if (scratch) fill(wave.scratch = static_cast<u8*>(aligned(cursor, scratch)), scratch);
        std::fill(std::begin(wave.sgpr), std::end(wave.sgpr), kPoison);
        const u64 left = items - i * kLanes;
        wave.initial_exec = left >= kLanes ? kAllLanes : (u64{1} << left) - 1;
        wave.set_pair(kExec, wave.initial_exec);
        wave.sgpr[kM0] = 0;
        wave.set_pair(kVcc, 0);
        wave.mode = initial_mode(launch.kernel->rsrc1);
        wave.next = launch.start;
        set_work_item_ids(wave, launch.block);
        set_scalars(wave, launch, state.id);
    }
    if (tally) counters::begin_group(*tally, state);
    if (launch.shadow) group->shadow = checks::begin_group(state);
    return group;
}

template <bool kChecked, bool kCounted>
void run_wave(Wave& wave, u64 steps) {
    const Op* const ops = wave.group->launch->program->ops.data();
    u64* const executed = kCounted ? wave.group->tally->executed.data() : nullptr;
    counters::Record* const record = kCounted && wave.group->record->steps ? wave.group->record : nullptr;
    wave.yield = false;
    const u64 end = wave.executed + steps;
    while (wave.state == Wave::Running && wave.executed != end && !wave.yield) {
        const Op& op = ops[wave.next];
        wave.current = wave.next++;
        if constexpr (kCounted) {
            ++executed[op.index];
            if (record) [[unlikely]]
                record->step(wave.id, op.index);
        }
        if constexpr (kChecked) checks::before(wave, op);
        op.execute(wave, op);
        if constexpr (kChecked) checks::after(wave, op);
        ++wave.executed;
    }
}

void run_wave(Wave& wave, u64 steps) {
    const bool checked = wave.shadow != nullptr, counted = wave.group->tally != nullptr;
    if (checked) return counted ? run_wave<true, true>(wave, steps) : run_wave<true, false>(wave, steps);
    return counted ? run_wave<false, true>(wave, steps) : run_wave<false, false>(wave, steps);
}

void release_barrier(Workgroup& group) {
    ++group.barriers;
    if (group.shadow) checks::at_barrier(group);
    for (Wave& wave : group.waves)
        if (wave.state == Wave::AtBarrier) wave.state = Wave::Running;
}

enum class Progress { Finished, Going };

Outcome failure(const Wave& wave, const std::string& what, int hip_error) {
    const Op& op = wave.group->launch->program->ops[wave.current];
    return {false, hip_error, what + "\n    at " + place(wave, op)};
}

// Every wave up to its next barrier, its end or the end of its slice.
Progress turn(Workgroup& group, const RunOptions& options, Outcome& outcome) {
    Wave* volatile active = nullptr;
    Recovery crash;
    if (sigsetjmp(crash.place, 1)) {
        recovery = nullptr;
        outcome = failure(
            *active,
            "memory access fault at address " + hex(reinterpret_cast<uintptr_t>(crash.address)) +
                " (turn the bounds check on to see which lane)",
            700);
        return Progress::Finished;
    }
    recovery = &crash;
    try {
        // Only the beginning of it is to run, and what it waits for may never come.
        constexpr u64 kBegun = 200'000;
        const bool begun = group.record && group.record->prefix;
        const u64 slice = begun ? std::min(options.slice, kBegun / 10) : options.slice;
        u64 used = 0;
        while (used < options.slice) {
            int running = 0, waiting = 0;
            u64 most = 0;
            for (Wave& wave : group.waves) {
                if (wave.state == Wave::Running) {
                    active = &wave;
                    const u64 before = wave.executed;
                    run_wave(wave, slice);
                    most = std::max(most, wave.executed - before);
                    if (begun && wave.executed > kBegun) wave.state = Wave::Ended;
                    if (options.limit && wave.executed > options.limit) {
                        if (group.shadow) checks::on_hang(wave);
                        throw KernelFault(
                            "a wave ran more than " + std::to_string(options.limit) +
                            " instructions: it hangs, or the limit is too low");
                    }
                }
                running += wave.state == Wave::Running;
                waiting += wave.state == Wave::AtBarrier;
            }
            used += most + 1;
            if (running) continue;
            if (!waiting) {
                recovery = nullptr;
                return Progress::Finished;
            }
            release_barrier(group);
        }
        recovery = nullptr;
        return Progress::Going;
    } catch (const KernelFault& fault) {
        recovery = nullptr;
        outcome = failure(*active, fault.what(), fault.hip_error);
        return Progress::Finished;
    }
}

// --- all workgroups -------------------------------------------------------------------------------------------------

struct Shared {
    u64 count = 0;
    const std::vector<u64>* groups = nullptr;  // null: those of counters::group_at
    std::atomic<u64> next{0};
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Outcome outcome;
};

// As many workgroups as the device could hold wait on each other at most; that is enough for any kernel that is correct there.
constexpr u64 kResident = 304 * 8;

void work(const Launch& launch, const RunOptions& options, counters::Tally* tally, Shared& shared) {
    const u64 most = std::max<u64>(kResident / options.threads, 1);
    std::deque<std::unique_ptr<Group>> live;
    for (;;) {
        bool finished = live.empty();
        for (size_t i = 0; i < live.size() && !shared.failed;) {
            Outcome outcome;
            if (turn(live[i]->state, options, outcome) == Progress::Going) {
                ++i;
                continue;
            }
            finished = true;
            if (tally) counters::end_group(*tally, live[i]->state);
            live.erase(live.begin() + static_cast<long>(i));
            if (!outcome.ok) {
                const std::lock_guard lock(shared.mutex);
                if (!shared.failed.exchange(true)) shared.outcome = outcome;
            }
        }
        if (shared.failed) return;
        // Another one when all of these wait for something, or none is left.
        if (live.empty() || (!finished && live.size() < most)) {
            const u64 linear = shared.next.fetch_add(1);
            if (linear < shared.count) {
                const u64 group = shared.groups ? (*shared.groups)[linear] : counters::group_at(launch, linear);
                live.push_back(make_group(launch, group, tally));
            } else if (live.empty()) {
                return;
            }
        }
    }
}

}  // namespace

Outcome run(const Launch& launch, const RunOptions& options, counters::Tally* total) {
    catch_crashes();
    RunOptions mine = options;
    mine.threads =
        launch.ordered ? 1 : static_cast<unsigned>(std::min<u64>(std::max(options.threads, 1u), launch.grid.volume()));
    auto on_all_threads = [&](Shared& shared, const std::vector<u32>& prefix) {
        std::vector<counters::Tally> tallies;
        for (unsigned i = 0; total && i < mine.threads; ++i) {
            tallies.emplace_back(launch.program->ops.size());
            tallies.back().prefix = &prefix;
        }
        on_threads(mine.threads, [&](unsigned i) { work(launch, mine, total ? &tallies[i] : nullptr, shared); });
        return tallies;
    };
    Shared shared;
    shared.count = counters::groups_run(launch);
    const std::vector<u32> whole;
    for (counters::Tally& tally : on_all_threads(shared, whole)) total->add(std::move(tally));
    if (!total || shared.failed || launch.shadow) return shared.outcome;
    const std::vector<u64> begun = counters::groups_begun(launch, *total);
    if (begun.empty()) return shared.outcome;
    Shared rest;
    rest.count = begun.size();
    rest.groups = &begun;
    total->begun = counters::prefix_of(*total);
    for (counters::Tally& tally : on_all_threads(rest, total->begun)) total->add_records(std::move(tally));
    return rest.outcome;
}

Outcome run_straight(Wave& wave, const Program& program) {
    catch_crashes();
    Recovery crash;
    if (sigsetjmp(crash.place, 1)) {
        recovery = nullptr;
        return {false, 700, "memory access fault"};
    }
    recovery = &crash;
    Outcome outcome;
    try {
        // The last operation is the one that says that code has run past its end.
        while (wave.state == Wave::Running && wave.next + 1 < program.ops.size()) {
            const Op& op = program.ops[wave.next];
            wave.current = wave.next++;
            op.execute(wave, op);
            ++wave.executed;
        }
    } catch (const KernelFault& fault) {
        outcome = {
            false, fault.hip_error, std::string(fault.what()) + ": " + disassemble(program.ops[wave.current].inst)};
    }
    recovery = nullptr;
    return outcome;
}

void fault(const Wave&, const Op&, const std::string& what, int hip_error) {
    KernelFault error(what);
    error.hip_error = hip_error;
    throw error;
}

}  // namespace emu
