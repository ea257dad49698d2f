// SPDX-License-Identifier: MIT
// Calls of device functions. Each part is computed by the host's compiler, too, thread after thread; one line for each part, "ok" or
// the first thread that differs.
#include "compare.h"

#define BOTH __host__ __device__ __noinline__

struct Large {
    int values[6];
    double weight;
};

BOTH Large made(int i) {
    Large result;
    for (int j = 0; j < 6; ++j) result.values[j] = i * j + 1;
    result.weight = 0.5 * i;
    return result;
}
BOTH int picked(Large given, int i) {
    given.values[i % 6] += 7;
    return given.values[(i + 1) % 6] + given.values[i % 6] + static_cast<int>(given.weight);
}
BOTH int structures(int i) { return picked(made(i), i); }

BOTH signed char narrow(signed char a, unsigned short b, bool c) { return static_cast<signed char>(a - b * 3 + c); }
BOTH long long wide(long long a, double b, float c) { return a * 3 + static_cast<long long>(b * c); }
BOTH float4 four(float4 a, float s) { return make_float4(a.x * s, a.y + s, a.z - s, a.w); }
BOTH int widths(int i) {
    const float4 f = four(make_float4(1.f, 2.f, 3.f, static_cast<float>(i)), static_cast<float>(i % 5));
    return narrow(static_cast<signed char>(i), static_cast<unsigned short>(i * 7), i & 1) +
           static_cast<int>(wide(i, 1.5 * i, 2.f)) + static_cast<int>(f.x + 10 * f.y + 100 * f.z + f.w);
}

// Its depth differs from thread to thread; the array is in local memory.
BOTH int fibonacci(int n) {
    volatile int before[2] = {n - 1, n - 2};
    if (n < 2) return n;
    const int a = fibonacci(before[0]);
    return a + fibonacci(before[1]);
}
BOTH int recursion(int i) { return fibonacci(i % 9); }

BOTH bool odd(int n);
BOTH bool even(int n) { return n == 0 || odd(n - 1); }
BOTH bool odd(int n) { return n != 0 && even(n - 1); }
BOTH int each_other(int i) { return even(i) + 2 * odd(i * 3); }

BOTH int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1) + (n & 1); }
BOTH int deep(int i) { return depth(300 + i); }

BOTH void swap(int& a, int& b) {
    const int c = a;
    a = b;
    b = c;
}
BOTH void sort(int* values, int first, int last) {
    if (first >= last) return;
    int middle = first;
    for (int i = first + 1; i <= last; ++i)
        if (values[i] < values[first]) swap(values[++middle], values[i]);
    swap(values[first], values[middle]);
    sort(values, first, middle - 1);
    sort(values, middle + 1, last);
}
BOTH int pointers(int i) {
    int own[12], sum = 0;
    for (int j = 0; j < 12; ++j) own[j] = (i * 31 + j * 17) % 23;
    sort(own, 0, 11);
    for (int j = 0; j < 12; ++j) sum = 3 * sum + own[j];
    return sum;
}

// What a thread does after an early return it does with the others.
BOTH int early(int i) {
    if (i % 3 == 0) return 5;
    int sum = 0;
    for (int j = 0; j < i; ++j) {
        if (sum > 40) return sum;
        sum += j;
    }
    return -sum;
}
BOTH int returns(int i) { return i % 2 ? early(i) : 2 * early(i + 1); }

using Function = int (*)(int);
BOTH int plus_one(int x) { return x + 1; }
BOTH int times_three(int x) { return x * 3; }
BOTH int twice_fibonacci(int x) { return 2 * fibonacci(x % 7); }
__device__ Function g_table[3] = {plus_one, times_three, twice_fibonacci};
BOTH int indirect(int i) {
#ifdef __CUDA_ARCH__
    const Function function = g_table[i % 3];
#else
    const Function table[3] = {plus_one, times_three, twice_fibonacci}, function = table[i % 3];
#endif
    return function(i) + function(i + 1);
}

struct Shape {
    int side;
    __host__ __device__ explicit Shape(int side) : side(side) {}
    __host__ __device__ virtual int area(int x) const { return side * x; }
    __host__ __device__ virtual ~Shape() {}
};
struct Square : Shape {
    using Shape::Shape;
    __host__ __device__ int area(int x) const override { return side * side + x; }
};
struct Tower : Shape {  // of shapes
    const Shape& below;
    __host__ __device__ Tower(int side, const Shape& below) : Shape(side), below(below) {}
    __host__ __device__ int area(int x) const override { return below.area(x) + side; }
};
BOTH int area_of(const Shape& shape, int x) { return shape.area(x); }
BOTH int virtual_functions(int i) {
    const Shape flat(i);
    const Square square(i + 1);
    const Tower tower(3, square), higher(4, tower);
    const Shape* const all[4] = {&flat, &square, &tower, &higher};
    return area_of(*all[i % 4], i) + area_of(*all[(i + 1) % 4], 2);
}

#define PARTS(DO)  \
    DO(structures) \
    DO(widths) DO(recursion) DO(each_other) DO(deep) DO(pointers) DO(returns) DO(indirect) DO(virtual_functions)
#define KERNEL(part)                                                                      \
    __global__ void part##_kernel(int* out) {                                             \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                              \
        const int value = part(i);                                                        \
        out[i] = value + (__ballot_sync(0xffffffffu, true) == 0xffffffffu ? 0 : 1000000); \
    }
PARTS(KERNEL)

// Threads of a warp and of a block meet within functions, called from two places.
__device__ __noinline__ int sum_of_warp(int value) {
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
__device__ __noinline__ int through_shared(int value) {
    __shared__ int words[64];
    __syncthreads();
    words[threadIdx.x] = value;
    __syncthreads();
    return words[63 - threadIdx.x];
}
__global__ void together_kernel(int* out) {
    const int i = threadIdx.x;
    const int sum = i % 2 ? sum_of_warp(i) : sum_of_warp(10 * i);
    out[i] = sum + 1000 * through_shared(i) + 100000 * through_shared(i % 4);
}
int together(int i) {
    int sum = 0;
    for (int j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) sum += j % 2 ? j : 10 * j;
    return sum + 1000 * (63 - i) + 100000 * ((63 - i) % 4);
}

// Some threads end within a function, at unlike depths.
__device__ __noinline__ int last(int* out, int n) {
    if (n == 3) {
        *out = -1;
        asm volatile("exit;");
    }
    return n == 0 ? 1 : 1 + last(out, n - 1);
}
__global__ void ended_kernel(int* out) {
    const int i = threadIdx.x;
    const int value = last(out + i, i % 7);
    __syncthreads();
    out[i] = value;
}
int ended(int i) { return i % 7 >= 3 ? -1 : i % 7 + 1; }

// Threads of a warp wait within a function for one that is further on in its caller.
__device__ int g_lock, g_sum;
__device__ __noinline__ void acquire() {
    while (atomicCAS(&g_lock, 0, 1) != 0) {
    }
    __threadfence();
}
__device__ __noinline__ void release() {
    __threadfence();
    atomicExch(&g_lock, 0);
}
__global__ void locked_kernel(int* out) {
    if (threadIdx.x % 8 == 0) {
        acquire();
        *const_cast<volatile int*>(&g_sum) = g_sum + threadIdx.x;
        release();
    }
    __syncthreads();
    out[threadIdx.x] = *const_cast<volatile int*>(&g_sum);
}
int locked(int) { return 8 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7); }

__device__ __noinline__ void said(int i) { printf("thread %d says %d\n", i, fibonacci(i)); }
__global__ void prints() { said(10 + threadIdx.x); }

int main() {
#define COMPARE(part) compare(#part, 1, part##_kernel, part);
    PARTS(COMPARE)
    COMPARE(together)
    COMPARE(ended)
    COMPARE(locked)
    prints<<<1, 1>>>();
    cudaDeviceSynchronize();
    std::printf("last: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
