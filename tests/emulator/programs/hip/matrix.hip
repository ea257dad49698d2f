// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Matrix cores through the compiler's builtins: shapes with several blocks, broadcasts, double, sparse.
// Layouts as the CDNA3 ISA document gives them (chapter on matrix arithmetic).
#include "program.h"

typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16 __attribute__((ext_vector_type(16)));
typedef float f32 __attribute__((ext_vector_type(32)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef int i16 __attribute__((ext_vector_type(16)));

/// Row-major A [blocks, M, K] and B [blocks, K, N]: lane l holds A[l / M's rows ...] as below, K elements innermost.
__global__ void blocks_32x32x1(const float* a, const float* b, float* out) {
    const int lane = static_cast<int>(threadIdx.x);
    f32 sum = {};
    sum = __builtin_amdgcn_mfma_f32_32x32x1f32(a[lane], b[lane], sum, 0, 0, 0);
    for (int i = 0; i < 32; ++i) {
        const int block = i / 16, row = i % 16 / 4 * 8 + lane / 32 * 4 + i % 4;
        out[block * 1024 + row * 32 + lane % 32] = sum[i];
    }
}

__global__ void blocks_4x4x1(const float* a, const float* b, float* out) {
    const int lane = static_cast<int>(threadIdx.x);
    f4 sum = {1, 2, 3, 4};
    sum = __builtin_amdgcn_mfma_f32_4x4x1f32(a[lane], b[lane], sum, 0, 0, 0);
    for (int i = 0; i < 4; ++i) out[lane / 4 * 16 + i * 4 + lane % 4] = sum[i];
    f4 broadcast = {};
    broadcast = __builtin_amdgcn_mfma_f32_4x4x1f32(a[lane], b[lane], broadcast, 4, 3, 0);  // block 3 of A for all
    for (int i = 0; i < 4; ++i) out[256 + lane / 4 * 16 + i * 4 + lane % 4] = broadcast[i];
}

void judge_blocks(Verdict& verdict) {
    std::vector<float> a(64), b(64), wanted(2048), small(512);
    for (int i = 0; i < 64; ++i) a[i] = static_cast<float>(i * 7 % 31 - 15), b[i] = static_cast<float>(i * 5 % 23 - 11);
    for (int block = 0; block < 2; ++block)
        for (int i = 0; i < 1024; ++i)
            wanted[block * 1024 + i] = 0.0f + a[block * 32 + i / 32] * b[block * 32 + i % 32];
    for (int block = 0; block < 16; ++block)
        for (int i = 0; i < 16; ++i) {
            small[block * 16 + i] = static_cast<float>(i / 4 + 1) + a[block * 4 + i / 4] * b[block * 4 + i % 4];
            small[256 + block * 16 + i] = 0.0f + a[12 + i / 4] * b[block * 4 + i % 4];
        }
    Buffer<float> left(a), right(b), out(2048), tiny(512);
    blocks_32x32x1<<<1, 64>>>(left.data(), right.data(), out.data());
    blocks_4x4x1<<<1, 64>>>(left.data(), right.data(), tiny.data());
    verdict.equal(out.read(verdict), wanted, "32x32x1, two blocks");
    verdict.equal(tiny.read(verdict), small, "4x4x1, sixteen blocks");
}

__global__ void half_16x16x16(const _Float16* a, const _Float16* b, float* out) {
    const int lane = static_cast<int>(threadIdx.x);
    h4 x, y;
    for (int i = 0; i < 4; ++i) {
        x[i] = a[lane % 16 * 16 + lane / 16 * 4 + i];
        y[i] = b[(lane / 16 * 4 + i) * 16 + lane % 16];
    }
    f4 sum = {};
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
    for (int i = 0; i < 4; ++i) out[(lane / 16 * 4 + i) * 16 + lane % 16] = sum[i];
    s4 p, q;
    for (int i = 0; i < 4; ++i) {
        p[i] =
            static_cast<short>(__builtin_bit_cast(unsigned, static_cast<float>(x[i])) >> 16);  // exact: small integers
        q[i] = static_cast<short>(__builtin_bit_cast(unsigned, static_cast<float>(y[i])) >> 16);
    }
    f4 other = {};
    other = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(p, q, other, 0, 0, 0);
    for (int i = 0; i < 4; ++i) out[256 + (lane / 16 * 4 + i) * 16 + lane % 16] = other[i];
}

__global__ void double_16x16x4(const double* a, const double* b, double* out) {
    const int lane = static_cast<int>(threadIdx.x);
    d4 sum = {0.5, 0.5, 0.5, 0.5};
    sum =
        __builtin_amdgcn_mfma_f64_16x16x4f64(a[lane % 16 * 4 + lane / 16], b[lane / 16 * 16 + lane % 16], sum, 0, 0, 0);
    for (int i = 0; i < 4; ++i) out[(lane / 16 + 4 * i) * 16 + lane % 16] = sum[i];
}

__global__ void integer_32x32x16(const signed char* a, const signed char* b, int* out) {
    const int lane = static_cast<int>(threadIdx.x);
    long x, y;
    signed char bytes[8], others[8];
    for (int i = 0; i < 8; ++i) {
        bytes[i] = a[lane % 32 * 16 + lane / 32 * 8 + i];
        others[i] = b[(lane / 32 * 8 + i) * 32 + lane % 32];
    }
    __builtin_memcpy(&x, bytes, 8);
    __builtin_memcpy(&y, others, 8);
    i16 sum = {};
    sum = __builtin_amdgcn_mfma_i32_32x32x16_i8(x, y, sum, 0, 0, 0);
    for (int i = 0; i < 16; ++i) out[(i / 4 * 8 + lane / 32 * 4 + i % 4) * 32 + lane % 32] = sum[i];
}

template <class T, class Sum>
std::vector<Sum> product(const std::vector<T>& a, const std::vector<T>& b, int m, int n, int k, Sum start) {
    std::vector<Sum> c(static_cast<size_t>(m) * n, start);
    for (int i = 0; i < m * n; ++i)
        for (int j = 0; j < k; ++j) c[i] += static_cast<Sum>(a[i / n * k + j]) * static_cast<Sum>(b[j * n + i % n]);
    return c;
}

void judge_products(Verdict& verdict) {
    std::vector<_Float16> a(256), b(256);
    for (int i = 0; i < 256; ++i) {
        a[i] = static_cast<_Float16>(i * 37 % 61 - 30);
        b[i] = static_cast<_Float16>(i * 29 % 53 - 26);
    }
    Buffer<_Float16> half_a(a), half_b(b);
    Buffer<float> out(512);
    half_16x16x16<<<1, 64>>>(half_a.data(), half_b.data(), out.data());
    std::vector<float> wanted = product(a, b, 16, 16, 16, 0.0f);
    wanted.insert(wanted.end(), wanted.begin(), wanted.begin() + 256);
    verdict.equal(out.read(verdict), wanted, "16x16x16 half and bfloat");

    const std::vector<double> p = uniform_numbers(64, -2, 2, 1), q = uniform_numbers(64, -2, 2, 2);
    Buffer<double> double_a(p), double_b(q), sums(256);
    double_16x16x4<<<1, 64>>>(double_a.data(), double_b.data(), sums.data());
    verdict.close(sums.read(verdict), product(p, q, 16, 16, 4, 0.5), 1e-15, 1e-14, "16x16x4 double");

    const std::vector<signed char> s = random_words<signed char>(512, 1), t = random_words<signed char>(512, 2);
    Buffer<signed char> byte_a(s), byte_b(t);
    Buffer<int> whole(1024);
    integer_32x32x16<<<1, 64>>>(byte_a.data(), byte_b.data(), whole.data());
    verdict.equal(whole.read(verdict), product(s, t, 32, 32, 16, 0), "32x32x16 int8");
}

/// 4:2 sparse: of each four elements of a row of A two are kept; `index` says which (two bits each).
__global__ void sparse_16x16x32(const _Float16* kept, const int* index, const _Float16* b, float* out) {
    const int lane = static_cast<int>(threadIdx.x);
    h4 x;
    h8 y;
    for (int i = 0; i < 4; ++i) x[i] = kept[lane * 4 + i];
    for (int i = 0; i < 8; ++i) y[i] = b[(lane / 16 * 8 + i) * 16 + lane % 16];
    f4 sum = {};
    sum = __builtin_amdgcn_smfmac_f32_16x16x32_f16(x, y, sum, index[lane], 0, 0);
    for (int i = 0; i < 4; ++i) out[(lane / 16 * 4 + i) * 16 + lane % 16] = sum[i];
}

void judge_sparse(Verdict& verdict) {
    std::vector<_Float16> kept(256), b(512), dense(512);
    std::vector<int> index(64);
    for (int i = 0; i < 512; ++i) b[i] = static_cast<_Float16>(i * 29 % 53 - 26);
    for (int lane = 0; lane < 64; ++lane) {
        for (int i = 0; i < 4; ++i) {
            kept[lane * 4 + i] = static_cast<_Float16>((lane * 4 + i) * 11 % 37 - 18);
            const int place = i % 2 == 0 ? lane % 2 : 2 + (lane + i) / 2 % 2;
            index[lane] |= place << 2 * i;
            dense[lane % 16 * 32 + lane / 16 * 8 + i / 2 * 4 + place] = kept[lane * 4 + i];
        }
    }
    Buffer<_Float16> a(kept), right(b);
    Buffer<int> places(index);
    Buffer<float> out(256);
    sparse_16x16x32<<<1, 64>>>(a.data(), places.data(), right.data(), out.data());
    verdict.equal(out.read(verdict), product(dense, b, 16, 16, 32, 0.0f), "16x16x32 sparse");
}

PROGRAM {
    Verdict verdict;
    judge_blocks(verdict);
    judge_products(verdict);
    judge_sparse(verdict);
    return verdict.leave(message, room);
}
