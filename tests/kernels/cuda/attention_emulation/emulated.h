// SPDX-License-Identifier: MIT
// Enough of CUDA's device language to run a kernel on a CPU, one fiber per thread, so that its index arithmetic, masks and
// synchronisation can be tested where there is no GPU. The PTX wrappers of kernels/cuda/ptx are replaced by the headers
// beside this file, which do in C++ what the PTX manual says the instruction does.
//
// What it finds: wrong fragment or shared-memory indices, reads of global memory outside the registered arrays, reads of
// shared memory that nobody wrote (it starts as NaN), copies used before they were waited for or overwritten while still
// in use (copies land as late, or as early, as allowed), results that depend on the order of warps (two opposite orders).
// Each block runs to its end before the next; warp-wide operations must be reached by all 32 lanes.
#pragma once

#include <bit>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "../fiber.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }

typedef int cudaError_t;
enum {
    cudaSuccess = 0, cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8
};

namespace emulated {

struct Options {
    bool late_copies = true;      // cp.async lands when waited for; else at once
    bool reverse_warps = false;   // which warp runs first between two barriers
    int multiprocessors = 4;      // what the host code sees
};
inline Options options;

struct Range { const uint8_t *begin, *end; };
inline std::vector<Range> readable;  // global arrays
inline int errors = 0;
inline long long progress = 0;  // counts what ends somebody's wait
inline int conflicts = 0;  // groups of eight ldmatrix rows that did not spread over all banks

inline void fail(const char* what, long long detail) {
    if (++errors <= 8) fprintf(stderr, "emulated kernel: %s (%lld)\n", what, detail);
}
inline bool may_read(const void* pointer, size_t bytes) {
    const uint8_t* at = static_cast<const uint8_t*>(pointer);
    for (const Range& range : readable) {
        if (at >= range.begin && at + bytes <= range.end) return true;
    }
    return false;
}

/// Threads that meet: a warp or a block. `results` of the last two meetings are kept, for slow readers.
struct Meeting {
    int size = 0, arrived = 0, generation = 0;
};
struct Lane {  // operands and results of a warp-wide operation
    uint32_t in[16], out[2][16];
};
struct Warp {
    Meeting meeting;
    Lane lanes[32];
};
struct Copy { uint32_t shared; const void* global; bool valid; };
struct Thread {
    fiber::Context context;
    std::unique_ptr<char[]> stack;
    int index = 0;
    bool done = false;
    std::vector<Copy> open;                 // issued, not committed
    std::vector<std::vector<Copy>> groups;  // committed, not landed, oldest first
};

constexpr size_t kStack = 256 << 10, kShared = 228 << 10;
inline std::vector<Thread> threads;
inline std::vector<Warp> warps;
inline Meeting block_meeting;
alignas(1024) inline uint8_t shared_bytes[kShared];
inline size_t shared_size = 0;
inline fiber::Context scheduler;
inline Thread* current = nullptr;
inline std::function<void()> body;
inline dim3 thread_index, block_index, block_size, grid_size;

inline void yield() { current->context.leave_for(scheduler); }

template <typename Last>
void meet(Meeting& meeting, Last last) {
    const int generation = meeting.generation;
    if (++meeting.arrived == meeting.size) {
        last();
        meeting.arrived = 0;
        ++meeting.generation;
        ++progress;
        return;
    }
    while (meeting.generation == generation) yield();
}

inline Warp& warp() { return warps[current->index / 32]; }
inline int lane() { return current->index % 32; }

/// All lanes bring in[0..count); `compute(lanes, parity)` fills out[parity] of every lane. Returns this lane's results.
template <typename Compute>
const uint32_t* warp_wide(const uint32_t* in, int count, Compute compute) {
    Warp& w = warp();
    const int parity = w.meeting.generation & 1;
    std::copy(in, in + count, w.lanes[lane()].in);
    meet(w.meeting, [&] { compute(w.lanes, parity); });
    return w.lanes[lane()].out[parity];
}

inline uint8_t* at_shared(uint32_t address, uint32_t bytes) {
    if (address + bytes > shared_size || address % bytes != 0) {
        fail("shared memory access outside the launch's bytes or misaligned, at", address);
        return shared_bytes;
    }
    return shared_bytes + address;
}
inline void land(const Copy& copy) {
    if (copy.valid && !may_read(copy.global, 16)) {
        fail("cp.async reads outside the arrays; shared address", copy.shared);
        return;
    }
    if (copy.valid) {
        memcpy(at_shared(copy.shared, 16), copy.global, 16);
    } else {
        memset(at_shared(copy.shared, 16), 0, 16);
    }
}

inline void enter() {
    body();
    current->done = true;
    yield();
}

inline void run_block(int count) {
    threads = std::vector<Thread>(count);
    warps.assign(count / 32, Warp());
    for (Warp& w : warps) w.meeting.size = 32;
    block_meeting = Meeting();
    block_meeting.size = count;
    memset(shared_bytes, 0xff, sizeof shared_bytes);  // NaN in bf16, fp16 and fp32
    for (int i = 0; i < count; ++i) {
        Thread& t = threads[i];
        t.index = i;
        t.stack.reset(new char[kStack]);
        t.context.begin(enter, t.stack.get(), kStack);
    }
    const int warp_count = count / 32;
    for (long long idle = 0, left = count; left > 0;) {
        const long long left_before = left, progress_before = progress;
        for (int i = 0; i < warp_count; ++i) {
            const int w = options.reverse_warps ? warp_count - 1 - i : i;
            for (int rounds = -1; rounds != warps[w].meeting.generation;) {  // until this warp waits for others
                rounds = warps[w].meeting.generation;
                for (int l = 0; l < 32; ++l) {
                    Thread& t = threads[32 * w + l];
                    if (t.done) continue;
                    current = &t;
                    thread_index = dim3(32 * w + l, 0, 0);
                    scheduler.leave_for(t.context);
                    if (t.done) --left;
                }
            }
        }
        idle = left == left_before && progress == progress_before ? idle + 1 : 0;
        if (idle > 2) {
            fail("deadlock: threads still waiting", left);
            return;
        }
    }
    for (const Thread& t : threads) {
        for (const auto& group : t.groups) {
            if (!group.empty()) fail("a thread ended with copies in flight", t.index);
        }
    }
}

template <typename... Parameters>
struct Launch {
    void (*kernel)(Parameters...);
    dim3 grid, block;
    size_t shared;

    void operator()(std::remove_const_t<Parameters>... arguments) const {
        shared_size = shared;
        block_size = block;
        grid_size = grid;
        body = [&] { kernel(arguments...); };
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) {
                block_index = dim3(x, y, 0);
                run_block(static_cast<int>(block.x));
            }
        }
    }
};
template <typename... Parameters>
Launch<Parameters...> launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared) {
    return {kernel, grid, block, shared};
}

}  // namespace emulated

#define threadIdx (emulated::thread_index)
#define blockIdx (emulated::block_index)
#define gridDim (emulated::grid_size)
#define blockDim (emulated::block_size)

inline cudaError_t cudaGetDevice(int* device) { return *device = 0; }
inline cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int) {   // shared memory as an Ada device has it
    *value = attribute == cudaDevAttrMultiProcessorCount ? emulated::options.multiprocessors : 100 << 10;
    return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int, int) { return cudaSuccess; }

using std::max;
using std::min;

inline void __syncthreads() { emulated::meet(emulated::block_meeting, [] {}); }
inline void __syncwarp() { emulated::meet(emulated::warp().meeting, [] {}); }
inline int __ldg(const int* pointer) {
    if (!emulated::may_read(pointer, sizeof *pointer)) {
        emulated::fail("read outside the arrays", 0);
        return 0;
    }
    return *pointer;
}
namespace emulated {
/// Every lane receives the value of lane from(lane).
template <typename Value, typename From>
Value shuffle(Value value, From from) {
    static_assert(sizeof value == 4);
    uint32_t in;
    memcpy(&in, &value, 4);
    const uint32_t* out = warp_wide(&in, 1, [=](Lane* lanes, int parity) {
        for (int l = 0; l < 32; ++l) lanes[l].out[parity][0] = lanes[from(l)].in[0];
    });
    memcpy(&value, out, 4);
    return value;
}
}  // namespace emulated
template <typename Value>
Value __shfl_sync(uint32_t, Value value, int lane) {
    static_assert(sizeof(Value) == 4);
    const uint32_t in[2] = {std::bit_cast<uint32_t>(value), static_cast<uint32_t>(lane)};   // each lane has its own source
    return std::bit_cast<Value>(*emulated::warp_wide(in, 2, [](emulated::Lane* lanes, int parity) {
        for (int l = 0; l < 32; ++l) lanes[l].out[parity][0] = lanes[lanes[l].in[1] % 32].in[0];
    }));
}
template <typename Value>
Value __shfl_xor_sync(uint32_t, Value value, int mask) {
    return emulated::shuffle(value, [=](int l) { return l ^ mask; });
}
template <typename Value>
Value __shfl_up_sync(uint32_t, Value value, int step) {
    return emulated::shuffle(value, [=](int l) { return l < step ? l : l - step; });
}
inline int __reduce_add_sync(uint32_t lanes, int value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(lanes, value, step);
    return value;
}
inline int __reduce_max_sync(uint32_t lanes, int value) {
    for (int step = 16; step > 0; step /= 2) value = std::max(value, __shfl_xor_sync(lanes, value, step));
    return value;
}
inline uint32_t __ballot_sync(uint32_t, int predicate) {
    const uint32_t in = predicate != 0;
    return *emulated::warp_wide(&in, 1, [](emulated::Lane* lanes, int parity) {
        uint32_t votes = 0;
        for (int l = 0; l < 32; ++l) votes |= lanes[l].in[0] << l;
        for (int l = 0; l < 32; ++l) lanes[l].out[parity][0] = votes;
    });
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __any_sync(uint32_t, int predicate) {
    const uint32_t in = predicate != 0;
    return static_cast<int>(*emulated::warp_wide(&in, 1, [](emulated::Lane* lanes, int parity) {
        uint32_t any = 0;
        for (int l = 0; l < 32; ++l) any |= lanes[l].in[0];
        for (int l = 0; l < 32; ++l) lanes[l].out[parity][0] = any;
    }));
}

// Driver side.
extern "C" __attribute__((used)) inline void emulated_options(int late_copies, int reverse_warps, int multiprocessors) {
    emulated::options.late_copies = late_copies != 0;
    emulated::options.reverse_warps = reverse_warps != 0;
    emulated::options.multiprocessors = multiprocessors;
    emulated::readable.clear();
    emulated::errors = 0;
    emulated::conflicts = 0;
}
extern "C" __attribute__((used)) inline void emulated_array(const void* begin, size_t bytes) {
    const uint8_t* at = static_cast<const uint8_t*>(begin);
    emulated::readable.push_back({at, at + bytes});
}
extern "C" __attribute__((used)) inline int emulated_errors() { return emulated::errors; }
extern "C" __attribute__((used)) inline int emulated_conflicts() { return emulated::conflicts; }
