// SPDX-License-Identifier: MIT
// A CUDA program like others: it prints one line for each part, "ok" or what is wrong. With the argument "behind" its last kernel
// writes behind its array; with "prints" a kernel prints what the host then prints, too; with "asserts" a kernel does.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace cg = cooperative_groups;

#define CHECK(call)                                                \
    if (const cudaError_t error = (call)) {                        \
        std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
        std::exit(3);                                              \
    }

__constant__ float kFactors[4];
__device__ int g_counter;
__device__ const int kTable[4] = {2, 3, 5, 7};

__global__ void saxpy(int n, float a, const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i] * kFactors[i % 4] + static_cast<float>(kTable[i % 4]);
}

__global__ void sum(const int* values, int n, int* result) {
    __shared__ int parts[8];
    int total = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) total += values[i];
    for (int step = 16; step; step /= 2) total += __shfl_down_sync(0xffffffffu, total, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) total += parts[i];
        atomicAdd(result, total);
        atomicAdd(&g_counter, 1);
    }
}

// Lanes take different ways, of different lengths, and meet again.
__global__ void collatz(int* steps) {
    const int start = threadIdx.x + 1;
    int n = start, count = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        ++count;
    }
    __syncwarp();
    steps[threadIdx.x] = count + (__ballot_sync(0xffffffffu, n == 1) == 0xffffffffu ? 0 : 1000);
}

// An array of each thread's own, indexed by a variable: local memory.
__global__ void sorted(int* values) {
    int own[16];
    for (int i = 0; i < 16; ++i) own[i] = values[16 * threadIdx.x + i];
    for (int i = 1; i < 16; ++i)
        for (int j = i; j > 0 && own[j] < own[j - 1]; --j) {
            const int t = own[j];
            own[j] = own[j - 1];
            own[j - 1] = t;
        }
    for (int i = 0; i < 16; ++i) values[16 * threadIdx.x + i] = own[i];
}

__global__ void halves(const __half2* a, __half2* b) {
    b[threadIdx.x] = __hfma2(a[threadIdx.x], a[threadIdx.x], __float2half2_rn(0.5f));
}

__global__ void tile(float* out) {
    extern __shared__ float buffer[];
    cg::thread_block block = cg::this_thread_block();
    const unsigned i = block.thread_rank();
    buffer[i] = static_cast<float>(i);
    block.sync();
    out[i] = buffer[block.size() - 1 - i];
}

// A lock that threads of one warp fight for.
__global__ void locked(int* lock, int* value) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *value += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Blocks that wait for all others: as many as the device holds.
__global__ void meeting(volatile int* arrived, int* seen) {
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(const_cast<int*>(arrived), 1);
        while (*arrived < static_cast<int>(gridDim.x)) {
        }
        seen[blockIdx.x] = 1;
    }
}

__global__ void behind(int* array, int n) { array[threadIdx.x + n] = 1; }

template <class T>
struct Array {
    T* device = nullptr;
    size_t count;
    explicit Array(size_t n) : count(n) {
        CHECK(cudaMalloc(&device, n * sizeof(T)));
        CHECK(cudaMemset(device, 0, n * sizeof(T)));
    }
    explicit Array(const std::vector<T>& host) : Array(host.size()) {
        CHECK(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~Array() { cudaFree(device); }
    std::vector<T> host() const {
        std::vector<T> result(count);
        CHECK(cudaMemcpy(result.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
        return result;
    }
};

// The host has no variable of the device, so the texts are given.
#define PRINT(TEXT, NAME, POINTER)                                                                         \
    printf(TEXT);                                                                                          \
    printf("[%d %5i %-6d| %+d %05d % d]\n", -7, 42, 43, 44, -45, 46);                                      \
    printf("[%u %o %#x %X %hhd %hu]\n", 4000000000u, 64u, 255u, 48879u, 300, 70000);                       \
    printf("[%ld %lld %llu %#llx %zu]\n", -(1l << 40), -(1ll << 50), ~0ull, 1ull << 63, sizeof(double));   \
    printf("[%f %.2f %10.3e %G %g %a]\n", 1.5, -2.345, 12345.678, 1e-10, 0.0001f, 0.1);                    \
    printf("[%c%c %s %.3s %8s %-8s| %%]\n", 'o', 'k', NAME, NAME, NAME, "local");                          \
    printf("[%*d %-*.*f| %p %p]\n", 6, 42, 9, 2, 3.14159, POINTER, reinterpret_cast<const void*>(0x1000)); \
    printf("[%d %lf %d %lld %s %c]\n", 1, 2.0, 3, 4ll, "five", '6')

__constant__ char kName[8];

__global__ void prints(const void* pointer, int* counts) {
    PRINT("plain\n", kName, pointer);
    counts[0] = printf("");
    counts[1] = printf("%d %s\n", 5, "six");
    if (threadIdx.x % 8 == 3) printf("thread %d of block %d\n", threadIdx.x, blockIdx.x);
}

static int show_prints() {
    CHECK(cudaMemcpyToSymbol(kName, "abcdefg", 8));
    int* counts;
    CHECK(cudaMallocManaged(&counts, 2 * sizeof(int)));
    const auto* const pointer = reinterpret_cast<const void*>(uintptr_t{0x7fedcba98765});
    prints<<<1, 1>>>(pointer, counts);
    CHECK(cudaDeviceSynchronize());
    printf("-\n");
    PRINT("plain\n", "abcdefg", pointer);
    printf("5 six\n-\n%d %d\n", counts[0], counts[1]);
    prints<<<1, 32>>>(pointer, counts);
    return cudaDeviceSynchronize();
}

__global__ void asserts(const int* values) {
    const int i = 32 * blockIdx.x + blockDim.x * threadIdx.y + threadIdx.x;
    assert(values[i] < 40);  // the 41st value is not
}

static int show_assert() {
    std::vector<int> values(64);
    for (int i = 0; i < 64; ++i) values[i] = i;
    int* device;
    CHECK(cudaMalloc(&device, 64 * sizeof(int)));
    CHECK(cudaMemcpy(device, values.data(), 64 * sizeof(int), cudaMemcpyHostToDevice));
    asserts<<<1, 40>>>(device);
    CHECK(cudaDeviceSynchronize());
    asserts<<<dim3(2), dim3(8, 4)>>>(device);
    const cudaError_t error = cudaDeviceSynchronize();
    std::printf("%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
    return 0;
}

static void say(const char* what, bool right) { std::printf("%s: %s\n", what, right ? "ok" : "WRONG"); }

int main(int argc, char** argv) {
    if (argc > 1 && !std::strcmp(argv[1], "prints")) return show_prints();
    if (argc > 1 && !std::strcmp(argv[1], "asserts")) return show_assert();
    int device = -1, processors = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    std::printf("multiprocessors: %d\n", processors);
    {
        const int n = 1000;
        std::vector<float> x(n), y(n);
        for (int i = 0; i < n; ++i) x[i] = i * 0.5f, y[i] = 1.0f;
        const float factors[4] = {1, 2, 3, 4};
        CHECK(cudaMemcpyToSymbol(kFactors, factors, sizeof factors));
        Array<float> dx(x), dy(y);
        saxpy<<<8, 128>>>(n, 2.0f, dx.device, dy.device);
        CHECK(cudaGetLastError());
        const std::vector<float> got = dy.host();
        bool right = true;
        const int table[4] = {2, 3, 5, 7};
        for (int i = 0; i < n; ++i) right &= got[i] == 1.0f + 2.0f * x[i] * factors[i % 4] + table[i % 4];
        say("saxpy", right);
    }
    {
        std::vector<int> values(5000);
        int right = 0;
        for (int i = 0; i < 5000; ++i) right += values[i] = i * 7 % 101;
        Array<int> dv(values), result(1);
        sum<<<5, 256>>>(dv.device, 5000, result.device);
        int counter = 0;
        CHECK(cudaMemcpyFromSymbol(&counter, g_counter, sizeof counter));
        say("sum", result.host()[0] == right && counter == 5);
    }
    {
        Array<int> steps(32);
        collatz<<<1, 32>>>(steps.device);
        const std::vector<int> got = steps.host();
        say("collatz", got[0] == 0 && got[26] == 111 && got[30] == 106);
    }
    {
        std::vector<int> values(64 * 16);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7919 % 1000);
        Array<int> dv(values);
        sorted<<<1, 64>>>(dv.device);
        const std::vector<int> got = dv.host();
        bool right = true;
        for (size_t i = 0; i < got.size(); ++i) right &= i % 16 == 0 || got[i - 1] <= got[i];
        say("sorted", right);
    }
    {
        std::vector<__half2> a(32);
        for (int i = 0; i < 32; ++i) a[i] = __floats2half2_rn(i * 0.25f, -i * 0.125f);
        Array<__half2> da(a), db(32);
        halves<<<1, 32>>>(da.device, db.device);
        bool right = true;
        const std::vector<__half2> got = db.host();
        for (int i = 0; i < 32; ++i)
            right &= __low2float(got[i]) == __half2float(__float2half(i * 0.25f * i * 0.25f + 0.5f)) &&
                     __high2float(got[i]) == __half2float(__float2half(i * 0.125f * i * 0.125f + 0.5f));
        say("halves", right);
    }
    {
        Array<float> out(256);
        CHECK(cudaFuncSetAttribute(tile, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
        tile<<<1, 256, 65536>>>(out.device);
        CHECK(cudaGetLastError());
        const std::vector<float> got = out.host();
        say("tile", got[0] == 255.0f && got[255] == 0.0f);
    }
    {
        Array<int> lock(1), value(1);
        locked<<<2, 64>>>(lock.device, value.device);
        say("locked", value.host()[0] == 128);
    }
    {
        Array<int> arrived(1), seen(40);
        meeting<<<40, 32>>>(arrived.device, seen.device);
        bool right = true;
        for (const int each : seen.host()) right &= each == 1;
        say("meeting", right);
    }
    Array<int> small(32);
    behind<<<1, 32>>>(small.device, argc > 1 ? 1 : 0);
    std::printf("last: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
