// SPDX-License-Identifier: MIT
// A program with a planted bug, and without it when it is given an argument.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>

__global__ void fill(int* out, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = i;                                                          // fill
}

extern "C" char* warpwave_emulator_take_findings() __attribute__((weak));

static void collect() {
    if (std::getenv("COLLECT")) std::printf("%s\n", warpwave_emulator_take_findings());
}

int main(int argc, char**) {
    std::atexit(collect);
    constexpr int kCount = 1000;
    int last = 0, *memory = nullptr;
    if (hipMalloc(&memory, kCount * sizeof(int)) != hipSuccess) return 2;
    for (int turn = 0; turn < 2; ++turn) fill<<<4, 256>>>(memory, kCount + (argc > 1 ? 0 : 1));
    if (hipMemcpy(&last, memory + kCount - 1, sizeof last, hipMemcpyDeviceToHost) != hipSuccess) return 2;
    std::printf("%d\n", last);
    return hipFree(memory) == hipSuccess ? 0 : 2;
}
