// SPDX-License-Identifier: MIT
// SGEMM in nine steps, for both vendors: out = alpha * A B + beta * C, row-major. A file names one step.
//
// A block computes a tile of out; from step 2 on, slices of A and B of kWindow along K pass through shared memory. Elements
// beyond the matrices are read as zero and not written, so any size is right.
#pragma once

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

struct Sgemm {
    const float *a, *b, *c;
    float* out;
    int m, n, k;
    float alpha, beta;
    bool wide;  // rows of a and b begin at multiples of 16 bytes

    __device__ __forceinline__ float a_at(int row, int i) const {
        return row < m && i < k ? a[static_cast<size_t>(row) * k + i] : 0.0f;
    }
    __device__ __forceinline__ float b_at(int i, int column) const {
        return i < k && column < n ? b[static_cast<size_t>(i) * n + column] : 0.0f;
    }
    __device__ __forceinline__ void store(int row, int column, float sum) const {
        if (row >= m || column >= n) return;
        const size_t at = static_cast<size_t>(row) * n + column;
        out[at] = beta == 0.0f ? alpha * sum : alpha * sum + beta * c[at];
    }
};

using Four = Pack<Float>;

/// Four neighbours of a row: one 16-byte load where all exist.
__device__ __forceinline__ Four four_of_a(const Sgemm& problem, int row, int i) {
    if (problem.wide && row < problem.m && i + 4 <= problem.k)
        return *reinterpret_cast<const Four*>(problem.a + static_cast<size_t>(row) * problem.k + i);
    return {{problem.a_at(row, i), problem.a_at(row, i + 1), problem.a_at(row, i + 2), problem.a_at(row, i + 3)}};
}
__device__ __forceinline__ Four four_of_b(const Sgemm& problem, int i, int column) {
    if (problem.wide && i < problem.k && column + 4 <= problem.n)
        return *reinterpret_cast<const Four*>(problem.b + static_cast<size_t>(i) * problem.n + column);
    return {
        {problem.b_at(i, column), problem.b_at(i, column + 1), problem.b_at(i, column + 2),
         problem.b_at(i, column + 3)}};
}

/// Step 1: a thread per output. Neighbouring threads take neighbouring columns, so loads of b and stores are coalesced.
struct Coalesced {
    static constexpr int kRows = 8, kColumns = 32, kThreads = 256;
    static __device__ void run(const Sgemm& problem) {
        const int thread = static_cast<int>(threadIdx.x);
        const int row = static_cast<int>(blockIdx.y) * kRows + thread / kColumns;
        const int column = static_cast<int>(blockIdx.x) * kColumns + thread % kColumns;
        if (row >= problem.m || column >= problem.n) return;
        float sum = 0.0f;
        for (int i = 0; i < problem.k; ++i)
            sum += problem.a[static_cast<size_t>(row) * problem.k + i] *
                   problem.b[static_cast<size_t>(i) * problem.n + column];
        problem.store(row, column, sum);
    }
};

/// Step 2: a window of 32 slides along K through shared memory; every element is read from memory once per tile of 32.
struct Sliding {
    static constexpr int kRows = 32, kColumns = 32, kWindow = 32, kThreads = 1024;
    static __device__ void run(const Sgemm& problem) {
        __shared__ float a[kRows][kWindow], b[kWindow][kColumns];
        const int x = static_cast<int>(threadIdx.x) % 32, y = static_cast<int>(threadIdx.x) / 32;
        const int row = static_cast<int>(blockIdx.y) * kRows + y, column = static_cast<int>(blockIdx.x) * kColumns + x;
        float sum = 0.0f;
        for (int first = 0; first < problem.k; first += kWindow) {
            a[y][x] = problem.a_at(row, first + x);
            b[y][x] = problem.b_at(first + y, column);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < kWindow; ++i) sum += a[y][i] * b[i][x];
            __syncthreads();
        }
        problem.store(row, column, sum);
    }
};

/// Steps 3, 4 and 5: 64 x 64 outputs, sixteen of a column a thread, four rows apart: an element of b serves sixteen products.
/// kVector (4, 5): 16-byte loads. kByColumns (5, a fault on purpose): b lies in shared memory column by column, so that
/// neighbouring lanes read addresses 64 bytes apart, and meet in two banks of 32.
template <bool kVector, bool kByColumns>
struct Column {
    static constexpr int kRows = 64, kColumns = 64, kWindow = 16, kThreads = 256, kEach = 16;
    static __device__ void run(const Sgemm& problem) {
        __shared__ alignas(16) float a[kRows * kWindow];
        __shared__ alignas(16) float b[kWindow * kColumns];
        const int thread = static_cast<int>(threadIdx.x), x = thread % kColumns, y = thread / kColumns;
        const int top = static_cast<int>(blockIdx.y) * kRows, left = static_cast<int>(blockIdx.x) * kColumns;
        float sums[kEach] = {};
        for (int first = 0; first < problem.k; first += kWindow) {
            if (kVector) {
                const int row = thread / 4, i = thread % 4 * 4;  // of a; of b: sixteen rows of sixteen fours
                *reinterpret_cast<Four*>(a + row * kWindow + i) = four_of_a(problem, top + row, first + i);
                const int k = thread / 16, column = thread % 16 * 4;
                const Four values = four_of_b(problem, first + k, left + column);
#pragma unroll
                for (int j = 0; j < 4; ++j) b[place(k, column + j)] = values.values[j];
            } else {
#pragma unroll
                for (int j = 0; j < kRows * kWindow / kThreads; ++j) {
                    const int at = j * kThreads + thread;
                    a[at] = problem.a_at(top + at / kWindow, first + at % kWindow);
                    b[at] = problem.b_at(first + at / kColumns, left + at % kColumns);
                }
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < kWindow; ++i) {
                const float right = b[place(i, x)];
#pragma unroll
                for (int j = 0; j < kEach; ++j) sums[j] += a[(y + 4 * j) * kWindow + i] * right;
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < kEach; ++j) problem.store(top + y + 4 * j, left + x, sums[j]);
    }
    static __device__ __forceinline__ int place(int i, int column) {
        return kByColumns ? column * kWindow + i : i * kColumns + column;
    }
};

/// Steps 6 to 9: 128 x 128 outputs, 8 x 8 a thread: sixteen numbers from shared memory serve 64 products, an outer product
/// of a column of A with a row of B.
///   6  as above, the numbers read one by one
///   7  kVectorB: those of b are two runs of four columns, 64 apart, and come by 16-byte loads without a conflict
///   8  kTransposedA: a lies in shared memory transposed, so that its numbers come by 16-byte loads, too
///   9  kDouble: two buffers; the next window is on its way to registers during the products, and one barrier is saved
template <bool kVectorB, bool kTransposedA, bool kDouble>
struct Outer {
    static constexpr int kRows = 128, kColumns = 128, kWindow = 8, kThreads = 256, kEach = 8;
    static constexpr int kPitch = kRows + 4;  // a transposed: two lanes store four rows of it apart, into other banks
    static constexpr int kBuffers = kDouble ? 2 : 1;
    static constexpr int kA = kTransposedA ? kWindow * kPitch : kRows * kWindow;

    /// Row (of 128) of output i of thread y of 16, or column of output i of thread x.
    static __device__ __forceinline__ int spread(int thread, int i) { return i / 4 * 64 + thread * 4 + i % 4; }
    static __device__ __forceinline__ int a_row(int y, int i) { return kTransposedA ? spread(y, i) : y * kEach + i; }
    static __device__ __forceinline__ int b_column(int x, int i) { return kVectorB ? spread(x, i) : x * kEach + i; }

    static __device__ __forceinline__ void put(float* a, float* b, int thread, Four left, Four right) {
        if (kTransposedA) {
#pragma unroll
            for (int j = 0; j < 4; ++j) a[(thread % 2 * 4 + j) * kPitch + thread / 2] = left.values[j];
        } else {
            *reinterpret_cast<Four*>(a + thread / 2 * kWindow + thread % 2 * 4) = left;
        }
        *reinterpret_cast<Four*>(b + thread / 32 * kColumns + thread % 32 * 4) = right;
    }

    static __device__ __forceinline__ void multiply(
        const float* a, const float* b, int x, int y, float (&sums)[kEach][kEach]) {
#pragma unroll
        for (int i = 0; i < kWindow; ++i) {
            float left[kEach], right[kEach];
#pragma unroll
            for (int j = 0; j < kEach; j += 4) {
                if (kTransposedA) {
                    const Four four = *reinterpret_cast<const Four*>(a + i * kPitch + a_row(y, j));
#pragma unroll
                    for (int e = 0; e < 4; ++e) left[j + e] = four.values[e];
                } else {
#pragma unroll
                    for (int e = 0; e < 4; ++e) left[j + e] = a[a_row(y, j + e) * kWindow + i];
                }
                if (kVectorB) {
                    const Four four = *reinterpret_cast<const Four*>(b + i * kColumns + b_column(x, j));
#pragma unroll
                    for (int e = 0; e < 4; ++e) right[j + e] = four.values[e];
                } else {
#pragma unroll
                    for (int e = 0; e < 4; ++e) right[j + e] = b[i * kColumns + b_column(x, j + e)];
                }
            }
#pragma unroll
            for (int row = 0; row < kEach; ++row) {
#pragma unroll
                for (int column = 0; column < kEach; ++column) sums[row][column] += left[row] * right[column];
            }
        }
    }

    static __device__ void run(const Sgemm& problem) {
        __shared__ alignas(16) float a[kBuffers][kA];
        __shared__ alignas(16) float b[kBuffers][kWindow * kColumns];
        const int thread = static_cast<int>(threadIdx.x), x = thread % 16, y = thread / 16;
        const int top = static_cast<int>(blockIdx.y) * kRows, edge = static_cast<int>(blockIdx.x) * kColumns;
        const auto load_a = [&](int first) { return four_of_a(problem, top + thread / 2, first + thread % 2 * 4); };
        const auto load_b = [&](int first) { return four_of_b(problem, first + thread / 32, edge + thread % 32 * 4); };
        float sums[kEach][kEach] = {};
        if constexpr (kDouble) {
            put(a[0], b[0], thread, load_a(0), load_b(0));
            __syncthreads();
            int buffer = 0;
            for (int first = 0; first < problem.k; first += kWindow, buffer ^= 1) {
                const bool more = first + kWindow < problem.k;
                Four left = {}, right = {};
                if (more) {
                    left = load_a(first + kWindow);
                    right = load_b(first + kWindow);
                }
                multiply(a[buffer], b[buffer], x, y, sums);
                if (more) put(a[buffer ^ 1], b[buffer ^ 1], thread, left, right);
                __syncthreads();
            }
        } else {
            for (int first = 0; first < problem.k; first += kWindow) {
                put(a[0], b[0], thread, load_a(first), load_b(first));
                __syncthreads();
                multiply(a[0], b[0], x, y, sums);
                __syncthreads();
            }
        }
#pragma unroll
        for (int row = 0; row < kEach; ++row) {
#pragma unroll
            for (int column = 0; column < kEach; ++column)
                problem.store(top + a_row(y, row), edge + b_column(x, column), sums[row][column]);
        }
    }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) sgemm_kernel(Sgemm problem) {
    Step::run(problem);
}

template <class Step>
int launch_sgemm(Sgemm problem, void* queue) {
    const long long rows = ceil_div(problem.m, Step::kRows);
    if (problem.m <= 0 || problem.n <= 0 || problem.k <= 0 || rows > 65535) return kUnsupportedShape;
    problem.wide = problem.k % 4 == 0 && problem.n % 4 == 0 && is_aligned(problem.a) && is_aligned(problem.b);
    const dim3 grid(ceil_div(problem.n, Step::kColumns), static_cast<unsigned>(rows));
    const auto kernel = sgemm_kernel<Step>;
    LAUNCH(kernel, grid, dim3(Step::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

/// Defines sgemm() as one launch of a step.
#define SGEMM_STEP(...)                                                                                           \
    extern "C" int sgemm(                                                                                         \
        const float* a, const float* b, const float* c, float* out, int m, int n, int k, float alpha, float beta, \
        void*, size_t, void* queue) {                                                                             \
        return launch_sgemm<__VA_ARGS__>({a, b, c, out, m, n, k, alpha, beta, false}, queue);                     \
    }
