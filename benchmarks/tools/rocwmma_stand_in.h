// SPDX-License-Identifier: MIT
// What two validated programs use of rocWMMA, which does not compile against the headers of HIP 7.1: FP8 fragments with the
// same loads (8 bytes a lane, consecutive along K), the same matrix instructions and the same stores.
#pragma once

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_fp8.h>
#include <hip/hip_runtime.h>

namespace rocwmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

struct bfloat16_t {
    unsigned short bits;
    bfloat16_t() = default;
    __device__ explicit bfloat16_t(float value) {
        const unsigned word = __builtin_bit_cast(unsigned, value);
        bits = static_cast<unsigned short>((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
};

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T x, y, z, w;
};
template <class T>
__device__ Four<T> make_vector(T x, T y, T z, T w) {
    return {x, y, z, w};
}

// Elements a lane holds: an operand's 8, an accumulator's M * N / 64.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static constexpr int num_elements = 8;
    alignas(8) T x[num_elements];
};
template <int M, int N, int K, class T>
struct fragment<accumulator, M, N, K, T, void> {
    static constexpr int num_elements = M * N / 64;
    T x[num_elements];
};

template <class Fragment, class T>
__device__ void fill_fragment(Fragment& f, T value) {
#pragma unroll
    for (int i = 0; i < Fragment::num_elements; ++i) f.x[i] = value;
}

// Both operands lie with K consecutive.
template <class Use, int M, int N, int K, class T, class Layout>
__device__ void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* from, unsigned pitch) {
    static_assert(M == N && M * K == 512);
    const unsigned lane = threadIdx.x % 64;
    const auto* const place = from + lane % M * pitch + lane / M * 8;
    *reinterpret_cast<long*>(f.x) = *reinterpret_cast<const long*>(place);
}

template <int M, int N, int K, class T, class LayoutA, class LayoutB>
__device__ void mma_sync(
    fragment<accumulator, M, N, K, float>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
    const fragment<matrix_b, M, N, K, T, LayoutB>& b, const fragment<accumulator, M, N, K, float>& c) {
    typedef float Sum __attribute__((ext_vector_type(M * N / 64)));
    const long left = *reinterpret_cast<const long*>(a.x), right = *reinterpret_cast<const long*>(b.x);
    const Sum sum = *reinterpret_cast<const Sum*>(c.x);
    if constexpr (M == 32) {
        *reinterpret_cast<Sum*>(d.x) = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(left, right, sum, 0, 0, 0);
    } else {
        *reinterpret_cast<Sum*>(d.x) = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(left, right, sum, 0, 0, 0);
    }
}

template <int M, int N, int K, class T, class To>
__device__ void store_matrix_sync(To* to, const fragment<accumulator, M, N, K, T>& f, unsigned pitch, layout_t layout) {
    const unsigned lane = threadIdx.x % 64;
#pragma unroll
    for (int i = 0; i < fragment<accumulator, M, N, K, T>::num_elements; ++i) {
        const unsigned row = M == 32 ? i / 4 * 8 + lane / 32 * 4 + i % 4 : lane / 16 * 4 + i, column = lane % M;
        to[layout == mem_row_major ? row * pitch + column : column * pitch + row] = __builtin_bit_cast(To, f.x[i]);
    }
}

}  // namespace rocwmma
