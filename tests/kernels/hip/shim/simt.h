// SPDX-License-Identifier: MIT
// Executes a HIP kernel on the host: every thread of a workgroup is a fiber of one OS thread.
//
// A fiber runs until it needs others: a workgroup barrier, or a wave-wide instruction, at which the 64 lanes of its wave
// meet; the last one to arrive computes the instruction for all. Workgroups run one after the other. The order in which
// waves run between barriers can be chosen: a kernel that lacks a barrier gives different results for different orders.
// __shared__ variables are thread_local statics, so that all of them, and nothing else, make up this library's
// thread-local segment: it is filled with a poison byte before each workgroup.
//
// What goes wrong becomes an error code of the launch and a message: divergent wave instructions, a barrier that some
// threads never reach, and memory accesses that fault (tests put operands next to unmapped pages).
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <link.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace simt {

constexpr int kWave = 64;
constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 256 * 1024;
constexpr int kInvalidConfiguration = 9;   // as the vendor's runtime numbers it
constexpr int kLaunchFailure = 719;

enum class State { Ready, AtBarrier, InWave, Done };
enum class Order { Forward, Backward, Random };

struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    bool started;
    State state;
    dim3 thread;
    int index;               // linear in the workgroup
    const char* operation;   // wave instruction it waits in
    void* operand;           // of that instruction; on the fiber's stack
};

struct Machine {
    std::vector<Fiber> fibers;
    std::vector<int> arrived;     // lanes of each wave that wait in a wave instruction
    char* stacks = nullptr;
    Fiber* self = nullptr;
    jmp_buf scheduler;
    jmp_buf abandon;
    dim3 block_index, block_dim, grid_dim;
    std::function<void()> body;
    Order order = Order::Forward;
    uint32_t random = 0;
    int poison = 0xff;
    int error = 0;
    std::string message;
};

inline Machine& machine() {
    static Machine instance;
    return instance;
}

inline thread_local volatile char touch;   // makes sure that the thread-local segment exists before it is poisoned

[[noreturn]] inline void fail(const std::string& message) {
    Machine& m = machine();
    m.error = kLaunchFailure;
    m.message = "workgroup (" + std::to_string(m.block_index.x) + ", " + std::to_string(m.block_index.y) + ", " +
                std::to_string(m.block_index.z) + ")" +
                (m.self ? ", thread " + std::to_string(m.self->index) : std::string()) + ": " + message;
    _longjmp(m.abandon, 1);
}

inline void on_fault(int signal, siginfo_t* info, void*) {
    char text[96];
    std::snprintf(text, sizeof text, "signal %d: access to %p, outside every operand", signal, info->si_addr);
    fail(text);
}

/// Let other fibers run until the scheduler comes back to this one.
__attribute__((noinline)) inline void pause_fiber() {
    if (_setjmp(machine().self->resume) == 0) _longjmp(machine().scheduler, 1);
}

__attribute__((noinline)) inline void resume_fiber(Fiber& fiber) {
    Machine& m = machine();
    m.self = &fiber;
    if (_setjmp(m.scheduler) == 0) {
        if (fiber.started) _longjmp(fiber.resume, 1);
        fiber.started = true;
        setcontext(&fiber.start);
    }
    m.self = nullptr;
}

inline void fiber_main() {
    machine().body();
    machine().self->state = State::Done;
    _longjmp(machine().scheduler, 1);
}

inline void workgroup_barrier() {
    machine().self->state = State::AtBarrier;
    pause_fiber();
}

/// All 64 lanes of a wave execute one instruction together. `compute` gets the lanes' operands and stores the results in
/// them.
template <typename Operand>
void wave_instruction(const char* name, Operand& operand, void (*compute)(Operand* (&lanes)[kWave])) {
    Machine& m = machine();
    Fiber& self = *m.self;
    const int wave = self.index / kWave;
    self.operation = name;
    self.operand = &operand;
    self.state = State::InWave;
    if (++m.arrived[wave] < kWave) {
        pause_fiber();
        return;
    }
    m.arrived[wave] = 0;
    Operand* lanes[kWave];
    for (int lane = 0; lane < kWave; ++lane) {
        Fiber& other = m.fibers[wave * kWave + lane];
        if (std::strcmp(other.operation, name) != 0)
            fail(std::string("lanes of one wave meet in ") + name + " and in " + other.operation);
        lanes[lane] = static_cast<Operand*>(other.operand);
    }
    compute(lanes);
    for (int lane = 0; lane < kWave; ++lane) m.fibers[wave * kWave + lane].state = State::Ready;
}

/// Run the lanes of one wave, in turns, until none is ready. Returns whether any was.
inline bool run_wave(int wave) {
    Machine& m = machine();
    bool any = false;
    for (bool progress = true; progress;) {
        progress = false;
        for (int i = 0; i < kWave; ++i) {
            const int lane = m.order == Order::Backward ? kWave - 1 - i : i;
            Fiber& fiber = m.fibers[wave * kWave + lane];
            if (fiber.state != State::Ready) continue;
            resume_fiber(fiber);
            progress = any = true;
        }
        if (m.order == Order::Random) break;   // maybe another wave's turn
    }
    return any;
}

inline uint32_t next_random() {
    uint32_t& x = machine().random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

/// Run every wave as far as it gets without the others. Returns whether any moved.
inline bool run_waves(int waves) {
    const Order order = machine().order;
    bool any = false;
    if (order == Order::Random) {
        for (int i = 0; i < 2 * waves; ++i) any |= run_wave(static_cast<int>(next_random() % static_cast<uint32_t>(waves)));
        if (any) return true;
    }
    for (int i = 0; i < waves; ++i) any |= run_wave(order == Order::Backward ? waves - 1 - i : i);
    return any;
}

inline int poison_segment(dl_phdr_info* info, size_t, void* data) {
    const auto* inside = static_cast<const char*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& load = info->dlpi_phdr[i];
        const char* begin = reinterpret_cast<const char*>(info->dlpi_addr + load.p_vaddr);
        if (load.p_type != PT_LOAD || inside < begin || inside >= begin + load.p_memsz) continue;
        for (int j = 0; j < info->dlpi_phnum; ++j)
            if (info->dlpi_phdr[j].p_type == PT_TLS && info->dlpi_tls_data)
                std::memset(info->dlpi_tls_data, machine().poison, info->dlpi_phdr[j].p_memsz);
        return 1;
    }
    return 0;
}

/// Fill every __shared__ variable of this library.
inline void poison_shared() {
    touch = static_cast<char>(~machine().poison);
    dl_iterate_phdr(poison_segment, const_cast<void*>(static_cast<const void*>(&machine())));
    if (touch != static_cast<char>(machine().poison)) fail("shared memory was not found, so it cannot be poisoned");
}

inline void run_workgroup(int threads) {
    Machine& m = machine();
    poison_shared();
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = m.fibers[i];
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = m.stacks + static_cast<size_t>(i) * kStackBytes;
        fiber.start.uc_stack.ss_size = kStackBytes;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, fiber_main, 0);
        fiber.started = false;
        fiber.state = State::Ready;
        fiber.index = i;
        const unsigned u = static_cast<unsigned>(i);
        fiber.thread = dim3(
            u % m.block_dim.x, u / m.block_dim.x % m.block_dim.y, u / m.block_dim.x / m.block_dim.y);
    }
    m.arrived.assign(static_cast<size_t>(threads / kWave), 0);
    for (;;) {
        while (run_waves(threads / kWave)) {}
        int done = 0, waiting = 0;
        const Fiber* stuck = nullptr;
        for (int i = 0; i < threads; ++i) {
            done += m.fibers[i].state == State::Done;
            waiting += m.fibers[i].state == State::AtBarrier;
            if (m.fibers[i].state == State::InWave) stuck = &m.fibers[i];
        }
        if (stuck)
            fail("thread " + std::to_string(stuck->index) + " waits in " + stuck->operation +
                 ", which other lanes of its wave never reach");
        if (done == threads) return;
        if (done > 0) fail("some threads are at a barrier that others left out");
        for (int i = 0; i < threads; ++i) m.fibers[i].state = State::Ready;
    }
}

inline void run_grid(dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> body) {
    Machine& m = machine();
    if (m.error != 0) return;   // as on a device: after a failure nothing else runs
    const size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
    const size_t total = static_cast<size_t>(grid.x) * block.x;
    if (threads == 0 || threads > kMaxThreads || threads % kWave != 0 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.y > 65535 || grid.z > 65535 || total > 0xffffffffu || shared_bytes != 0) {
        m.error = kInvalidConfiguration;
        m.message = "launch configuration that the device, or this shim, does not take";
        return;
    }
    if (!m.stacks) {
        m.fibers.resize(kMaxThreads);
        m.stacks = static_cast<char*>(mmap(
            nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    m.body = std::move(body);
    m.block_dim = block;
    m.grid_dim = grid;

    struct sigaction handler = {}, before_segv, before_bus;
    handler.sa_sigaction = on_fault;
    handler.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &handler, &before_segv);
    sigaction(SIGBUS, &handler, &before_bus);
    if (_setjmp(m.abandon) == 0) {
        for (unsigned z = 0; z < grid.z; ++z)
            for (unsigned y = 0; y < grid.y; ++y)
                for (unsigned x = 0; x < grid.x; ++x) {
                    m.block_index = dim3(x, y, z);
                    run_workgroup(static_cast<int>(threads));
                }
    }
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGBUS, &before_bus, nullptr);
    m.self = nullptr;
    m.body = nullptr;
}

template <typename... Parameters>
struct Launch {
    void (*kernel)(Parameters...);
    dim3 grid, block;
    size_t shared_bytes;

    void operator()(Parameters... arguments) const {
        run_grid(grid, block, shared_bytes, [=, this_kernel = kernel] { this_kernel(arguments...); });
    }
};

template <typename... Parameters>
Launch<Parameters...> launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes) {
    return {kernel, grid, block, shared_bytes};
}

inline int take_error() {
    const int error = machine().error;
    machine().error = 0;
    return error;
}

}  // namespace simt

// What a test asks for through ctypes.
extern "C" {
__attribute__((used)) inline const char* simt_message() { return simt::machine().message.c_str(); }

/// 0: waves forward, 1: backward, any other value: pseudo-random, seeded with it.
__attribute__((used)) inline void simt_order(uint32_t order) {
    simt::machine().order = order == 0 ? simt::Order::Forward : order == 1 ? simt::Order::Backward : simt::Order::Random;
    simt::machine().random = order;
}

/// The byte that fills __shared__ variables before each workgroup.
__attribute__((used)) inline void simt_poison(int byte) { simt::machine().poison = byte; }
}
