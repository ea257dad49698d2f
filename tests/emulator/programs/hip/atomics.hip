// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Atomics on global and shared memory, their returned values, fences, and a block that finds out it is the last.
#include "program.h"

constexpr int kThreads = 192, kBlocks = 5, kTotal = kThreads * kBlocks;

template <class T>
__global__ void on_global(T* cells, T* tickets) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const T value = static_cast<T>(i);
    tickets[i] = atomicAdd(&cells[0], static_cast<T>(1));
    atomicMax(&cells[1], value);
    atomicMin(&cells[2], value);
    if constexpr (std::is_integral_v<T>) {
        atomicAnd(&cells[3], ~(static_cast<T>(1) << (i % 7)));
        atomicOr(&cells[4], static_cast<T>(1) << (i % 13));
        atomicXor(&cells[5], value);
        T seen = cells[6], expected;
        do {  // addition by compare and swap
            expected = seen;
            seen = atomicCAS(&cells[6], expected, static_cast<T>(expected + value));
        } while (seen != expected);
        if (i == 17) atomicExch(&cells[7], static_cast<T>(99));
        atomicSub(&cells[8], value);
    }
}

template <class T>
void judge_global(Verdict& verdict, const char* what) {
    std::vector<T> start = {0, 0, 1000, static_cast<T>(-1), 0, 0, 0, 5, 0};
    if (!std::is_integral_v<T>) start[3] = 0;
    Buffer<T> cells(start), tickets(kTotal);
    on_global<T><<<kBlocks, kThreads>>>(cells.data(), tickets.data());
    T exclusive = 0;
    std::vector<T> wanted = start;
    wanted[0] = kTotal, wanted[1] = kTotal - 1, wanted[2] = 0;
    const T sum = static_cast<T>(kTotal) * (kTotal - 1) / 2;
    if constexpr (std::is_integral_v<T>) {
        for (int i = 0; i < kTotal; ++i) exclusive ^= static_cast<T>(i);
        wanted[3] = static_cast<T>(~static_cast<T>(127)), wanted[4] = 8191, wanted[5] = exclusive, wanted[6] = sum,
        wanted[7] = 99;
        wanted[8] = static_cast<T>(0) - sum;
    }
    verdict.equal(cells.read(verdict), wanted, what);
    std::vector<int> taken(kTotal);
    for (T ticket : tickets.read(verdict)) ++taken[static_cast<size_t>(ticket) % kTotal];
    verdict.equal(taken, std::vector<int>(kTotal, 1), "tickets");
}

__global__ void on_shared(
    const unsigned* x, unsigned* counts, float* sum, double* exact, unsigned* ring, unsigned long long* wide) {
    __shared__ unsigned bins[64];
    __shared__ float total;
    __shared__ double precise;
    __shared__ unsigned up, down;
    __shared__ unsigned long long large;
    const unsigned i = threadIdx.x;
    if (i < 64) bins[i] = 0;
    if (i == 0) total = 0, precise = 0, up = 0, down = 3, large = 1ull << 40;
    __syncthreads();
    const unsigned value = x[blockIdx.x * blockDim.x + i];
    atomicAdd(&bins[value % 64], 1u);
    atomicAdd(&total, static_cast<float>(value % 8));
    atomicAdd(&precise, static_cast<double>(value % 8) * 0.5);
    atomicInc(&up, 6u);
    atomicDec(&down, 10u);
    atomicMax(&large, (1ull << 41) + value);
    __syncthreads();
    if (i < 64) atomicAdd(&counts[i], bins[i]);
    if (i == 0) {
        atomicAdd(sum, total);
        atomicAdd(exact, precise);
        ring[2 * blockIdx.x] = up;
        ring[2 * blockIdx.x + 1] = down;
        atomicMax(wide, large);
    }
}

void judge_shared(Verdict& verdict) {
    const std::vector<unsigned> x = random_words<unsigned>(kTotal);
    Buffer<unsigned> from(x), counts(std::vector<unsigned>(64)), ring(2 * kBlocks);
    Buffer<float> sum(std::vector<float>(1));
    Buffer<double> exact(std::vector<double>(1));
    Buffer<unsigned long long> wide(std::vector<unsigned long long>(1));
    on_shared<<<kBlocks, kThreads>>>(from.data(), counts.data(), sum.data(), exact.data(), ring.data(), wide.data());
    std::vector<unsigned> bins(64), turns;
    unsigned total = 0, up = 0, down = 3;
    unsigned long long large = 0;
    for (unsigned value : x) ++bins[value % 64], total += value % 8, large = std::max(large, (1ull << 41) + value);
    for (int i = 0; i < kThreads; ++i) up = up >= 6 ? 0 : up + 1, down = down == 0 || down > 10 ? 10 : down - 1;
    for (int block = 0; block < kBlocks; ++block) turns.push_back(up), turns.push_back(down);
    verdict.equal(counts.read(verdict), bins, "histogram");
    verdict.equal(sum.read(verdict), {static_cast<float>(total)}, "float sum");
    verdict.equal(exact.read(verdict), {0.5 * total}, "double sum");
    verdict.equal(ring.read(verdict), turns, "inc and dec");
    verdict.equal(wide.read(verdict), {large}, "64-bit maximum");
}

__global__ void last_block(const int* x, int* partial, int* out, unsigned* arrived) {
    __shared__ int sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        int total = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) total += reinterpret_cast<volatile int*>(partial)[i];
        *out = total;
    }
}

void judge_last(Verdict& verdict) {
    std::vector<int> x(kTotal);
    for (int i = 0; i < kTotal; ++i) x[i] = i * 3 - 100;
    Buffer<int> from(x), partial(kBlocks), out(1);
    Buffer<unsigned> arrived(std::vector<unsigned>(1));
    last_block<<<kBlocks, kThreads>>>(from.data(), partial.data(), out.data(), arrived.data());
    verdict.equal(out.read(verdict), {3 * kTotal * (kTotal - 1) / 2 - 100 * kTotal}, "sum by the last block");
}

__global__ void scopes(int* cells, float* real) {
    __hip_atomic_fetch_add(&cells[0], 2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_add(&cells[1], 3, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(&cells[2], 5, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_SYSTEM);
    __hip_atomic_store(&cells[3], 7, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
    const int seen = __hip_atomic_load(&cells[3], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
    int expected = 11;
    __hip_atomic_compare_exchange_strong(
        &cells[4], &expected, seen + 4, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    unsafeAtomicAdd(real, 0.5f);
}

void judge_scopes(Verdict& verdict) {
    Buffer<int> cells(std::vector<int>{0, 0, 0, 0, 11});
    Buffer<float> real(std::vector<float>{1.0f});
    scopes<<<2, 64>>>(cells.data(), real.data());
    verdict.equal(cells.read(verdict), {256, 384, 640, 7, 11}, "scopes");
    verdict.equal(real.read(verdict), {65.0f}, "unsafe float addition");
}

PROGRAM {
    Verdict verdict;
    judge_global<int>(verdict, "int");
    judge_global<unsigned>(verdict, "unsigned");
    judge_global<unsigned long long>(verdict, "unsigned long long");
    judge_global<float>(verdict, "float");
    judge_global<double>(verdict, "double");
    judge_shared(verdict);
    judge_last(verdict);
    judge_scopes(verdict);
    return verdict.leave(message, room);
}
