// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Memory of every kind and width: globals, constants, structures by value, private arrays, shared memory of both kinds.
#include "program.h"

#include <algorithm>

constexpr int kCount = 128;

__constant__ float coefficients[8];
__device__ int counters[4] = {1, 2, 3, 4};
__device__ int* const kCounterAddress = &counters[2];  // needs a relocation
__device__ const char* const kText = "emulated";

__global__ void globals(float* out, int* numbers) {
    const int i = static_cast<int>(threadIdx.x);
    out[i] = coefficients[i % 8];
    if (i == 0) {
        numbers[0] = counters[0] + *kCounterAddress;
        numbers[1] = kText[3];
        counters[3] = 40;
    }
}

void judge_globals(Verdict& verdict) {
    std::vector<float> values(8), wanted(kCount);
    for (int i = 0; i < 8; ++i) values[i] = 0.25f * static_cast<float>(i);
    for (int i = 0; i < kCount; ++i) wanted[i] = values[i % 8];
    verdict.require(hipMemcpyToSymbol(HIP_SYMBOL(coefficients), values.data(), 32), "hipMemcpyToSymbol");
    Buffer<float> out(kCount);
    Buffer<int> numbers(2);
    globals<<<1, kCount>>>(out.data(), numbers.data());
    verdict.equal(out.read(verdict), wanted, "constants");
    verdict.equal(numbers.read(verdict), {4, 'l'}, "globals");
    int after[4] = {};
    verdict.require(hipMemcpyFromSymbol(after, HIP_SYMBOL(counters), sizeof after), "hipMemcpyFromSymbol");
    verdict.require(after[3] == 40 && after[0] == 1, "a global that a kernel wrote");
}

struct Small {
    char c;
    short s;
    int i;
};
struct Large {
    double values[12];
    int index[5];
    Small small;
    unsigned char tail;
};

__device__ __attribute__((noinline)) Large changed(Large x, int by) {
    x.values[by % 12] += by;
    x.small.s = static_cast<short>(x.small.s + by);
    x.index[by % 5] = -by;
    return x;
}

__global__ void structures(Small a, Large b, bool flag, char c, double* out) {
    const int i = static_cast<int>(threadIdx.x);
    const Large x = changed(b, i);
    out[i] = x.values[(i + 1) % 12] + x.values[i % 12] + x.index[i % 5] + x.small.s + a.c + a.s * 2 + a.i +
             (flag ? 0.5 : 0) + c + x.tail;
}

void judge_structures(Verdict& verdict) {
    const Small a = {3, -7, 100000};
    Large b = {{}, {1, 2, 3, 4, 5}, {9, 1000, -5}, 200};
    for (int i = 0; i < 12; ++i) b.values[i] = i * 1.5;
    Buffer<double> out(kCount);
    structures<<<1, kCount>>>(a, b, true, 'x', out.data());
    std::vector<double> wanted(kCount);
    for (int i = 0; i < kCount; ++i)
        wanted[i] = b.values[(i + 1) % 12] + b.values[i % 12] + i - i + 1000 + i + 3 - 14 + 100000 + 0.5 + 'x' + 200;
    verdict.equal(out.read(verdict), wanted, "structures");
}

__global__ void scratch(const int* x, int* out, int n) {
    const int t = static_cast<int>(threadIdx.x);
    int sorted[40];
    short narrow[16];
    unsigned char bytes[24];
    for (int i = 0; i < n; ++i) sorted[i] = x[t * n + i];
    for (int i = 1; i < n; ++i)
        for (int j = i; j > 0 && sorted[j - 1] > sorted[j]; --j) {
            const int larger = sorted[j - 1];
            sorted[j - 1] = sorted[j];
            sorted[j] = larger;
        }
    for (int i = 0; i < 16; ++i) narrow[(i * 5 + t) % 16] = static_cast<short>(i - 8);
    for (int i = 0; i < 24; ++i) bytes[(i * 7 + t) % 24] = static_cast<unsigned char>(i * 11);
    for (int i = 0; i < n; ++i) out[t * n + i] = sorted[i] + narrow[i % 16] + bytes[(i + t) % 24];
}

void judge_scratch(Verdict& verdict) {
    const int n = 40;
    const std::vector<unsigned short> words = random_words<unsigned short>(64 * n);
    const std::vector<int> x(words.begin(), words.end());
    Buffer<int> from(x), out(64 * n);
    scratch<<<1, 64>>>(from.data(), out.data(), n);
    std::vector<int> wanted(x);
    for (int t = 0; t < 64; ++t) {
        std::sort(wanted.begin() + t * n, wanted.begin() + (t + 1) * n);
        int narrow[16], bytes[24];
        for (int i = 0; i < 16; ++i) narrow[(i * 5 + t) % 16] = i - 8;
        for (int i = 0; i < 24; ++i) bytes[(i * 7 + t) % 24] = i * 11 & 255;
        for (int i = 0; i < n; ++i) wanted[t * n + i] += narrow[i % 16] + bytes[(i + t) % 24];
    }
    verdict.equal(out.read(verdict), wanted, "private arrays");
}

template <class T>
__global__ void copy(const T* from, T* to, int n, int shift) {
    HIP_DYNAMIC_SHARED(unsigned char, room);
    T* shared = reinterpret_cast<T*>(room);
    const int i = static_cast<int>(threadIdx.x);
    shared[i] = from[i];
    __syncthreads();
    const int j = (i + shift) % n;
    to[i] = shared[j];
}

template <class T>
void judge_copy(Verdict& verdict, const char* what) {
    const size_t bytes = kCount * sizeof(T);
    const std::vector<unsigned char> words = random_words<unsigned char>(bytes);
    Buffer<unsigned char> from(words), to(bytes);
    copy<T><<<1, kCount, bytes>>>(reinterpret_cast<T*>(from.data()), reinterpret_cast<T*>(to.data()), kCount, 17);
    std::vector<unsigned char> wanted(words);
    std::rotate(wanted.begin(), wanted.begin() + 17 * sizeof(T), wanted.end());
    verdict.equal(to.read(verdict), wanted, what);
}

struct Twelve {
    float x, y, z;
};

__global__ void extended(
    const signed char* bytes, const unsigned char* ubytes, const short* shorts, const unsigned short* ushorts,
    long long* out) {
    const int i = static_cast<int>(threadIdx.x);
    out[i] = static_cast<long long>(bytes[i]) + ubytes[i] * 1000LL + shorts[i] * 1000000LL + ushorts[i] * 10000000000LL;
}

void judge_extended(Verdict& verdict) {
    const std::vector<unsigned short> words = random_words<unsigned short>(kCount);
    const std::vector<signed char> bytes = random_words<signed char>(kCount, 2);
    std::vector<long long> wanted(kCount);
    for (int i = 0; i < kCount; ++i)
        wanted[i] = bytes[i] + static_cast<unsigned char>(bytes[i]) * 1000LL +
                    static_cast<short>(words[i]) * 1000000LL + words[i] * 10000000000LL;
    Buffer<unsigned short> halves(words);
    Buffer<signed char> small(bytes);
    Buffer<long long> out(kCount);
    extended<<<1, kCount>>>(
        small.data(), reinterpret_cast<unsigned char*>(small.data()), reinterpret_cast<short*>(halves.data()),
        halves.data(), out.data());
    verdict.equal(out.read(verdict), wanted, "sign extension");
}

/// A generic pointer: shared, private or global memory by the lane.
__device__ __attribute__((noinline)) int through(const int* pointer, int i) { return pointer[i]; }

__global__ void generic(const int* x, int* out) {
    __shared__ int shared[64];
    int own[4];
    const int i = static_cast<int>(threadIdx.x);
    shared[i] = 100 + i;
    for (int k = 0; k < 4; ++k) own[k] = 1000 * k + i;
    __syncthreads();
    const int* pointer = i % 3 == 0 ? shared : i % 3 == 1 ? own : x;
    out[i] = through(pointer, i % 4);
    volatile int* mine = own;
    mine[i % 4] = 5;
    out[64 + i] = own[0] + own[1] + own[2] + own[3];
}

void judge_generic(Verdict& verdict) {
    const std::vector<int> x = {-1, -2, -3, -4};
    Buffer<int> from(x), out(128);
    generic<<<1, 64>>>(from.data(), out.data());
    std::vector<int> wanted(128);
    for (int i = 0; i < 64; ++i) {
        const int k = i % 4;
        wanted[i] = i % 3 == 0 ? 100 + k : i % 3 == 1 ? 1000 * k + i : x[k];
        wanted[64 + i] = 6000 + 4 * i - (1000 * k + i) + 5;
    }
    verdict.equal(out.read(verdict), wanted, "generic pointers");
}

/// Straight from global to shared memory: lane i's dword lands at 4 i behind the wave's base.
__global__ void direct(int* from, int* out) {
    __shared__ int shared[256];
    const unsigned i = threadIdx.x;
    __builtin_amdgcn_global_load_lds(
        (__attribute__((address_space(1))) void*)(from + (i ^ 5)),
        (__attribute__((address_space(3))) void*)(shared + i / 64 * 64), 4, 0, 0);
    __builtin_amdgcn_s_waitcnt(0);
    __syncthreads();
    out[i] = shared[255 - i];
}

void judge_direct(Verdict& verdict) {
    const std::vector<int> x = random_words<int>(256);
    Buffer<int> from(x), out(256);
    direct<<<1, 256>>>(from.data(), out.data());
    std::vector<int> wanted(256);
    for (int i = 0; i < 256; ++i) wanted[i] = x[(255 - i) ^ 5];
    verdict.equal(out.read(verdict), wanted, "loads into shared memory");
}

PROGRAM {
    Verdict verdict;
    judge_globals(verdict);
    judge_structures(verdict);
    judge_scratch(verdict);
    judge_copy<unsigned char>(verdict, "bytes");
    judge_copy<short>(verdict, "shorts");
    judge_copy<int>(verdict, "dwords");
    judge_copy<double>(verdict, "quadwords");
    judge_copy<Twelve>(verdict, "12 bytes");
    judge_copy<float4>(verdict, "16 bytes");
    judge_copy<Large>(verdict, "structures in shared memory");
    judge_extended(verdict);
    judge_generic(verdict);
    judge_direct(verdict);
    return verdict.leave(message, room);
}
