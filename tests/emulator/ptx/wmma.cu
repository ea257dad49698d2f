// SPDX-License-Identifier: MIT
// Products by wmma in every shape, type and order that the emulator knows. It prints a line for each: "ok" or what is wrong.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdio>
#include <vector>

namespace wmma = nvcuda::wmma;

template <class T>
struct Stored {
    using Type = T;
};
template <>
struct Stored<wmma::precision::tf32> {
    using Type = float;
};

// d = 2 (a b + c): A from shared memory, C and D in columns, every stride wider than its line.
template <int M, int N, int K, class T, class Sum, class OrderA, class OrderB>
__global__ void product(
    const typename Stored<T>::Type* a, const typename Stored<T>::Type* b, const Sum* c, Sum* d, int wide) {
    __shared__ __align__(32) typename Stored<T>::Type tile[32 * 48];
    for (int i = threadIdx.x; i < 32 * wide; i += 32) tile[i] = a[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, M, N, K, T, OrderA> left;
    wmma::fragment<wmma::matrix_b, M, N, K, T, OrderB> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::load_matrix_sync(left, tile, wide);
    wmma::load_matrix_sync(right, b, wide);
    wmma::load_matrix_sync(sum, c, wide, wmma::mem_col_major);
    wmma::mma_sync(sum, left, right, sum);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i];
    wmma::store_matrix_sync(d, sum, wide, wmma::mem_col_major);
}

template <class T>
std::vector<T> numbers(int first) {
    std::vector<T> all(32 * 48);
    for (int i = 0; i < 32 * 48; ++i) all[i] = static_cast<T>(static_cast<float>((i * first + first) % 7 - 3));
    return all;
}

template <class T>
T* on_device(const std::vector<T>& host) {
    T* device = nullptr;
    cudaMalloc(&device, host.size() * sizeof(T));
    cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}

template <int M, int N, int K, class T, class Sum, class OrderA, class OrderB>
void check(const char* what) {
    using Element = typename Stored<T>::Type;
    constexpr bool kRowsA = std::is_same<OrderA, wmma::row_major>::value;
    constexpr bool kRowsB = std::is_same<OrderB, wmma::row_major>::value;
    const int wide = 40;
    const auto a = numbers<Element>(5), b = numbers<Element>(11);
    const auto c = numbers<Sum>(3);
    std::vector<Sum> d(c.size());
    Sum* const out = on_device(d);
    product<M, N, K, T, Sum, OrderA, OrderB><<<1, 32>>>(on_device(a), on_device(b), on_device(c), out, wide);
    const cudaError_t error = cudaDeviceSynchronize();
    cudaMemcpy(d.data(), out, d.size() * sizeof(Sum), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int row = 0; row < M; ++row)
        for (int column = 0; column < N; ++column) {
            float sum = static_cast<float>(c[column * wide + row]);
            for (int k = 0; k < K; ++k)
                sum += static_cast<float>(a[kRowsA ? row * wide + k : k * wide + row]) *
                       static_cast<float>(b[kRowsB ? k * wide + column : column * wide + k]);
            wrong += static_cast<float>(d[column * wide + row]) != 2 * sum;
        }
    if (error != cudaSuccess) std::printf("%s: %s\n", what, cudaGetErrorString(error));
    else if (wrong) std::printf("%s: %d of %d wrong\n", what, wrong, M * N);
    else std::printf("%s: ok\n", what);
}

int main() {
    using Rows = wmma::row_major;
    using Columns = wmma::col_major;
    check<16, 16, 16, __half, float, Rows, Columns>("f16");
    check<16, 16, 16, __half, __half, Columns, Rows>("f16 sums");
    check<32, 8, 16, __half, float, Columns, Columns>("f16 tall");
    check<8, 32, 16, __half, float, Rows, Rows>("f16 wide");
    check<16, 16, 16, __nv_bfloat16, float, Columns, Rows>("bf16");
    check<32, 8, 16, __nv_bfloat16, float, Rows, Columns>("bf16 tall");
    check<8, 32, 16, __nv_bfloat16, float, Columns, Columns>("bf16 wide");
    check<16, 16, 8, wmma::precision::tf32, float, Rows, Rows>("tf32");
}
