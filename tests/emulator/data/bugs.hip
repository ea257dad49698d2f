// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Kernels with a planted bug each, and the same without it (kMended). Where the emulator must find it is the line that ends
// in a comment with the kernel's name, or what that line calls.
#include <hip/hip_runtime.h>

#define BOTH(kernel)                                                  \
    template __global__ void kernel<false>(const int*, int*, int);    \
    template __global__ void kernel<true>(const int*, int*, int);

template <bool kMended>
__global__ void read_off_by_one(const int* in, int* out, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n + !kMended) {
        const int value = in[i];                                                    // read_off_by_one
        asm volatile("" ::"v"(value));
        if (i < n) out[i] = value;
    }
}
BOTH(read_off_by_one)

__device__ int element(const int* in, int i) {
    return in[i];                                                                   // in_a_helper
}

template <bool kMended>
__global__ void in_a_helper(const int* in, int* out, int n) {
    const int i = static_cast<int>(threadIdx.x);
    out[i] = element(in, i + n - 64 + !kMended);                                    // calls it: in_a_helper
}
BOTH(in_a_helper)

template <bool kMended>
__global__ void write_off_by_one(const int*, int* out, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n + !kMended) out[i] = i;                                               // write_off_by_one
}
BOTH(write_off_by_one)

template <bool kMended>
__global__ void tile_too_small(const int* in, int* out, int) {
    __shared__ int tile[kMended ? 64 : 63];
    tile[threadIdx.x] = in[threadIdx.x];                                            // tile_too_small
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x / 2];
}
BOTH(tile_too_small)

template <bool kMended>
__global__ void half_a_tile(const int* in, int* out, int) {
    __shared__ int tile[64];
    if (kMended || threadIdx.x < 32) tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];                                      // half_a_tile
}
BOTH(half_a_tile)

template <bool kMended>
__global__ void sum_into_an_unwritten_tile(const int* in, int* out, int) {
    __shared__ int tile[64];
    if (kMended) tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] += in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];                                      // sum_into_an_unwritten_tile
}
BOTH(sum_into_an_unwritten_tile)

__device__ signed char directions[136];
__device__ int last_table[60];

template <bool kMended>
__global__ void table_too_small(const int*, int* out, int) {
    const unsigned i = threadIdx.x % (kMended ? 60 : 61);
    out[threadIdx.x] = last_table[i];                                               // table_too_small
}
BOTH(table_too_small)

template <bool kMended>
__global__ void uninitialised_register(const int* in, int* out, int n) {
    int value;
    asm volatile("" : "=v"(value));
    if (kMended) value = in[threadIdx.x];
    out[threadIdx.x] = value + n;                                                   // uninitialised_register
}
BOTH(uninitialised_register)

template <bool kMended>
__global__ void no_barrier(const int* in, int* out, int) {
    __shared__ int tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    if (kMended) __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x % 64];                                      // no_barrier
}
BOTH(no_barrier)

template <bool kMended>
__global__ void one_barrier_of_two(const int* in, int* out, int n) {
    __shared__ int tile[256];
    int sum = 0;
    for (int turn = 0; turn < n / 64; ++turn) {
        tile[threadIdx.x] = in[threadIdx.x] + turn;                                 // one_barrier_of_two
        __syncthreads();
        if (threadIdx.x < 64) sum += tile[threadIdx.x + 64];
        if (kMended) __syncthreads();
    }
    out[threadIdx.x] = sum;
}
BOTH(one_barrier_of_two)

template <bool kMended>
__global__ void counting_without_atomics(const int* in, int* out, int) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
    const int bin = in[threadIdx.x] & 7;
    if (kMended)
        atomicAdd(&bins[bin], 1);
    else
        bins[bin] = bins[bin] + 1;                                                  // counting_without_atomics
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = bins[threadIdx.x];
}
BOTH(counting_without_atomics)

template <bool kMended>
__global__ void barrier_in_a_branch(const int* in, int* out, int n) {
    __shared__ int tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (kMended || in[threadIdx.x] >= n || threadIdx.x < 16) {
        tile[threadIdx.x] += 1;
        __syncthreads();                                                            // calls it: barrier_in_a_branch
    }
    out[threadIdx.x] = tile[threadIdx.x];
}
BOTH(barrier_in_a_branch)

template <bool kMended>
__global__ void groups_write_the_same(const int*, int* out, int) {
    const unsigned group = kMended ? blockIdx.x * 64 : 0;
    out[group + threadIdx.x] = static_cast<int>(blockIdx.x);                        // groups_write_the_same
}
BOTH(groups_write_the_same)

template <bool kMended>
__global__ void sum_without_atomics(const int*, int* out, int) {
    if (threadIdx.x != 0) return;
    if (kMended)
        atomicAdd(out, 1);
    else
        out[0] = out[0] + 1;                                                        // sum_without_atomics
}
BOTH(sum_without_atomics)

template <bool kMended>
__global__ void no_fence(const int*, int* out, int) {
    if (blockIdx.x == 0) {
        out[threadIdx.x] = 7;
        if (kMended) __hip_atomic_fetch_add(out + 255, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        return;
    }
    if (kMended) __hip_atomic_fetch_add(out + 255, 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
    out[64 + threadIdx.x] = out[threadIdx.x];                                       // no_fence
}
BOTH(no_fence)

template <bool kMended>
__global__ void misaligned_cast(const int* in, int* out, int) {
    const char* const bytes = reinterpret_cast<const char*>(in) + (kMended ? 8 : 6);
    out[threadIdx.x] = reinterpret_cast<const int*>(bytes)[threadIdx.x];            // misaligned_cast
}
BOTH(misaligned_cast)

// Compilers make dwords of the bytes and shorts of the mended kernel.
template <bool kMended>
__global__ void misaligned_or_merged(const int* in, int* out, int) {
    const char* const bytes = reinterpret_cast<const char*>(in) + 1 + 4 * threadIdx.x;
    int sum;
    if (kMended)
        sum = bytes[0] + 3 * bytes[1] + 5 * bytes[2] + 7 * bytes[3];
    else
        sum = *reinterpret_cast<const int*>(bytes) * 3;                             // misaligned_or_merged
    out[threadIdx.x] = sum;
}
BOTH(misaligned_or_merged)

// Compilers know where the bytes of the mended kernel lie and read them together.
template <bool kMended>
__global__ void misaligned_in_a_table(const int*, int* out, int) {
    int sum;
    if (kMended)
        sum = static_cast<unsigned char>(directions[1]) | directions[2] * 256;
    else
        sum = reinterpret_cast<const short*>(directions + 1)[threadIdx.x];              // misaligned_in_a_table
    out[threadIdx.x] = sum;
}
BOTH(misaligned_in_a_table)

template <bool kMended>
__global__ void no_wait(const int* in, int* out, int) {
    int value;
    if (kMended)
        asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)" : "=v"(value) : "v"(in + threadIdx.x) : "memory");
    else
        asm volatile("global_load_dword %0, %1, off" : "=v"(value) : "v"(in + threadIdx.x) : "memory");
    out[threadIdx.x] = value;                                                       // no_wait
}
BOTH(no_wait)

template <bool kMended>
__global__ void no_wait_states(const int* in, int* out, int) {
    float value = static_cast<float>(in[threadIdx.x]);
    if (kMended)
        asm volatile("v_exp_f32 %0, %0\n s_nop 0\n v_add_f32 %0, %0, %0" : "+v"(value));
    else
        asm volatile("v_exp_f32 %0, %0\n v_add_f32 %0, %0, %0" : "+v"(value));       // no_wait_states
    out[threadIdx.x] = static_cast<int>(value);
}
BOTH(no_wait_states)
