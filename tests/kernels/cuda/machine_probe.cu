// SPDX-License-Identifier: MIT
// Kernels with one fault each, and without it, for the host emulation. Arguments: kernel, 1 with its fault or 0, order of
// warps, 1 where copies land at once. Returns 0 if the result is right, 1 if it is wrong; the emulation aborts.
#include <string_view>

#include "launch.h"
#include "ptx/cp_async.h"

constexpr int kThreads = 128;

/// Threads read what one of the warp before wrote, or, later, of the warp behind.
__global__ void exchange(int* out, bool behind, bool fault) {
    __shared__ int values[kThreads];
    const int i = static_cast<int>(threadIdx.x), from = behind ? i + 32 : i - 32;
    values[i] = i + 1;
    if (!fault) __syncthreads();
    for (int step = 0; behind && step < 2; ++step) __syncwarp();
    out[i] = from < 0 || from >= kThreads ? 0 : values[from] - (from + 1);
}

/// Nobody writes to the shared memory that is read: of each format, it must hold NaN.
__global__ void unwritten(int* out, bool fault) {
    auto* const values = reinterpret_cast<float*>(dynamic_shared());
    const int i = static_cast<int>(threadIdx.x);
    if (!fault) values[i] = 0;
    uint16_t halves[2];
    std::memcpy(halves, values + i, sizeof halves);
    out[i] = std::isnan(values[i]) && (halves[0] & 0x7fff) > 0x7f80;  // bf16, and so fp16 as well
}

/// Copies: not waited for, read before they are waited for, behind the array, not aligned.
__global__ void copies(const int* in, int* out, int kind, bool fault) {
    const int i = static_cast<int>(threadIdx.x);
    const int* from = in + 4 * i;
    if (kind == 2 && fault) from += 4;
    if (kind == 3 && fault) from += 1;
    auto* const values = reinterpret_cast<int*>(dynamic_shared());
    cp_async_16(shared_address(values + 4 * i), from, true);
    cp_async_commit();
    if (kind == 1 && fault) out[i] = values[4 * i];
    if (kind != 0 || !fault) cp_async_wait<0>();
    if (kind != 1 || !fault) out[i] = values[4 * i];
    out[i] -= 4 * i;
}

__global__ void reads(const int* in, int* out, bool fault) {
    out[threadIdx.x] = __ldg(in + 4 * (threadIdx.x + fault)) & 0;
}

/// Half of a warp, or one warp of a block, does not come.
__global__ void absent(int* out, bool whole_warp, bool fault) {
    const int i = static_cast<int>(threadIdx.x);
    out[i] = 0;
    if (fault && (whole_warp ? i < 32 : i % 2 == 0)) return;
    if (whole_warp) __syncthreads();
    else __syncwarp();
}

int main(int, char** arguments) {
    const std::string_view kernel = arguments[1];
    const bool fault = std::atoi(arguments[2]) != 0;
    emulation_order(std::atoi(arguments[3]));
    emulation_eager(std::atoi(arguments[4]));
    alignas(16) static int in[4 * kThreads], out[kThreads];
    for (int i = 0; i < 4 * kThreads; ++i) in[i] = i;
    emulation_allow(in, sizeof in);
    const auto launch = [](auto function, auto... values) {
        LAUNCH(function, 1, kThreads, 16 * kThreads, 0)(values...);
    };
    if (kernel == "no barrier, reads the warp before") launch(exchange, out, false, fault);
    if (kernel == "no barrier, reads the warp behind") launch(exchange, out, true, fault);
    if (kernel == "never written") launch(unwritten, out, fault);
    if (kernel == "copy never waited for") launch(copies, in, out, 0, fault);
    if (kernel == "copy read before its wait") launch(copies, in, out, 1, fault);
    if (kernel == "copy from behind the array") launch(copies, in, out, 2, fault);
    if (kernel == "misaligned copy") launch(copies, in, out, 3, fault);
    if (kernel == "load from behind the array") launch(reads, in, out, fault);
    if (kernel == "half a warp") launch(absent, out, false, fault);
    if (kernel == "barrier without a warp") launch(absent, out, true, fault);
    for (const int value : out)
        if (value != 0) return 1;
    return 0;
}
