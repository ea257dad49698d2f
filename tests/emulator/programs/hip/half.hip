// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// 16-bit floats, packed pairs, mixed precision, dot products and 8-bit floats.
#include "program.h"

typedef _Float16 half2_t __attribute__((ext_vector_type(2)));
typedef short short2_t __attribute__((ext_vector_type(2)));
typedef unsigned short ushort2_t __attribute__((ext_vector_type(2)));
typedef float float2_t __attribute__((ext_vector_type(2)));

constexpr int kCount = 256;

__global__ void scalar_half(const _Float16* x, const _Float16* y, float* out) {
    const int i = static_cast<int>(threadIdx.x);
    const _Float16 a = x[i], b = y[i];
    out[0 * kCount + i] = static_cast<float>(static_cast<_Float16>(a + b));
    out[1 * kCount + i] = static_cast<float>(static_cast<_Float16>(a * b));
    out[2 * kCount + i] = static_cast<float>(static_cast<_Float16>(a - b));
    out[3 * kCount + i] = static_cast<float>(static_cast<_Float16>(a / b));
    out[4 * kCount + i] = static_cast<float>(__builtin_elementwise_max(a, b));
    out[5 * kCount + i] = static_cast<float>(__builtin_elementwise_min(a, b));
    out[6 * kCount + i] = a < b ? 1.0f : a == b ? 0.0f : -1.0f;
    out[7 * kCount + i] = static_cast<float>(__builtin_elementwise_sqrt(__builtin_elementwise_abs(a)));
    out[8 * kCount + i] =
        static_cast<float>(__builtin_elementwise_floor(a)) + static_cast<float>(static_cast<short>(b));
    out[9 * kCount + i] = static_cast<float>(a) * static_cast<float>(b) + static_cast<float>(x[kCount - 1 - i]);
    out[10 * kCount + i] = static_cast<float>(static_cast<_Float16>(static_cast<unsigned short>(i * 300)));
}

void judge_scalar(Verdict& verdict, const std::vector<_Float16>& x, const std::vector<_Float16>& y) {
    Buffer<_Float16> a(x), b(y);
    Buffer<float> out(11 * kCount);
    scalar_half<<<1, kCount>>>(a.data(), b.data(), out.data());
    std::vector<float> wanted(11 * kCount);
    for (int i = 0; i < kCount; ++i) {
        const float p = static_cast<float>(x[i]), q = static_cast<float>(y[i]);
        const float values[] = {p + q,           p * q,           p - q, p / q,
                                std::fmax(p, q), std::fmin(p, q), 0,     std::sqrt(std::fabs(p))};
        for (int row = 0; row < 8; ++row)
            wanted[row * kCount + i] = static_cast<float>(static_cast<_Float16>(values[row]));
        wanted[6 * kCount + i] = p < q ? 1.0f : p == q ? 0.0f : -1.0f;
        wanted[8 * kCount + i] = std::floor(p) + static_cast<float>(static_cast<short>(q));
        wanted[9 * kCount + i] = std::fma(p, q, static_cast<float>(x[kCount - 1 - i]));
        wanted[10 * kCount + i] = static_cast<float>(static_cast<_Float16>(static_cast<float>(i * 300 % 65536)));
    }
    // Unoptimised code multiplies, then adds; the product of two halves is exact, so both agree.
    verdict.close(out.read(verdict), wanted, 1e-3, 0, "scalar half");
}

__global__ void packed(const half2_t* x, const half2_t* y, half2_t* out, short2_t* whole) {
    const int i = static_cast<int>(threadIdx.x), n = kCount / 2;
    const half2_t a = x[i], b = y[i];
    out[0 * n + i] = a + b;
    out[1 * n + i] = a * b;
    out[2 * n + i] = __builtin_elementwise_fma(a, b, -a);
    out[3 * n + i] = __builtin_elementwise_max(a, b);
    out[4 * n + i] = __builtin_elementwise_min(a, b.yx);
    out[5 * n + i] = a.yx - b;
    const short2_t s = __builtin_bit_cast(short2_t, a), t = __builtin_bit_cast(short2_t, b);
    const ushort2_t u = __builtin_bit_cast(ushort2_t, a), v = __builtin_bit_cast(ushort2_t, b);
    whole[0 * n + i] = s + t;
    whole[1 * n + i] = s * t;
    whole[2 * n + i] = s - t.yx;
    whole[3 * n + i] = __builtin_elementwise_max(s, t);
    whole[4 * n + i] = __builtin_bit_cast(short2_t, __builtin_elementwise_min(u, v));
    whole[5 * n + i] = s << (t & 15);
    whole[6 * n + i] = s >> (t & 15);
    whole[7 * n + i] = __builtin_bit_cast(short2_t, u >> (v & static_cast<unsigned short>(15)));
    whole[8 * n + i] = s * t + s;
    whole[9 * n + i] = __builtin_elementwise_add_sat(s, t);
    whole[10 * n + i] = __builtin_bit_cast(short2_t, __builtin_elementwise_sub_sat(u, v));
}

void judge_packed(Verdict& verdict, const std::vector<_Float16>& x, const std::vector<_Float16>& y) {
    Buffer<_Float16> a(x), b(y), out(6 * kCount);
    Buffer<short> whole(11 * kCount);
    packed<<<1, kCount / 2>>>(
        reinterpret_cast<half2_t*>(a.data()), reinterpret_cast<half2_t*>(b.data()),
        reinterpret_cast<half2_t*>(out.data()), reinterpret_cast<short2_t*>(whole.data()));
    std::vector<_Float16> wanted(6 * kCount);
    std::vector<short> integers(11 * kCount);
    for (int i = 0; i < kCount; ++i) {
        const float p = static_cast<float>(x[i]), q = static_cast<float>(y[i]);
        const float other_p = static_cast<float>(x[i ^ 1]), other_q = static_cast<float>(y[i ^ 1]);
        const double fused = static_cast<double>(p) * static_cast<double>(q) - static_cast<double>(p);
        const _Float16 values[] = {
            static_cast<_Float16>(p + q),
            static_cast<_Float16>(p * q),
            static_cast<_Float16>(fused),
            static_cast<_Float16>(std::fmax(p, q)),
            static_cast<_Float16>(std::fmin(p, other_q)),
            static_cast<_Float16>(other_p - q)};
        for (int row = 0; row < 6; ++row) wanted[row * kCount + i] = values[row];
        short s, t, other_t;
        std::memcpy(&s, &x[i], 2);
        std::memcpy(&t, &y[i], 2);
        std::memcpy(&other_t, &y[i ^ 1], 2);
        const unsigned short u = static_cast<unsigned short>(s), v = static_cast<unsigned short>(t);
        const int sum = s + t;
        const int exact[] = {
            s + t,
            s * t,
            s - other_t,
            s > t ? s : t,
            u < v ? u : v,
            s * (1 << (t & 15)),
            s >> (t & 15),
            u >> (v & 15),
            s * t + s,
            sum > 32767    ? 32767
            : sum < -32768 ? -32768
                           : sum,
            u > v ? u - v : 0};
        for (int row = 0; row < 11; ++row) integers[row * kCount + i] = static_cast<short>(exact[row]);
    }
    verdict.equal(out.read(verdict), wanted, "packed half");
    verdict.equal(whole.read(verdict), integers, "packed short");
}

__global__ void dots(const unsigned* x, const unsigned* y, int* out, float* real) {
    const int i = static_cast<int>(threadIdx.x);
    const unsigned a = x[i], b = y[i];
    const int sa = static_cast<int>(a), sb = static_cast<int>(b);
    out[0 * 64 + i] = __builtin_amdgcn_sdot4(sa, sb, i, false);
    out[1 * 64 + i] = static_cast<int>(__builtin_amdgcn_udot4(a, b, static_cast<unsigned>(i), false));
    out[2 * 64 + i] = __builtin_amdgcn_sdot8(sa, sb, i, false);
    out[3 * 64 + i] = static_cast<int>(__builtin_amdgcn_udot8(a, b, static_cast<unsigned>(i), false));
    out[4 * 64 + i] = __builtin_amdgcn_sdot2(__builtin_bit_cast(short2_t, a), __builtin_bit_cast(short2_t, b), i, true);
    const half2_t p = {
        static_cast<_Float16>(static_cast<int>(a & 15)), static_cast<_Float16>(static_cast<int>(a >> 8 & 15))};
    const half2_t q = {
        static_cast<_Float16>(static_cast<int>(b & 15)), static_cast<_Float16>(static_cast<int>(b >> 8 & 15))};
    real[i] = __builtin_amdgcn_fdot2(p, q, 0.5f, false);
}

void judge_dots(Verdict& verdict) {
    const std::vector<unsigned> x = random_words<unsigned>(64, 3), y = random_words<unsigned>(64, 4);
    Buffer<unsigned> a(x), b(y);
    Buffer<int> out(5 * 64);
    Buffer<float> real(64);
    dots<<<1, 64>>>(a.data(), b.data(), out.data(), real.data());
    std::vector<int> wanted(5 * 64);
    std::vector<float> sums(64);
    for (int i = 0; i < 64; ++i) {
        int s4 = i, s8 = i;
        unsigned u4 = static_cast<unsigned>(i), u8 = u4;
        for (int k = 0; k < 4; ++k) {
            s4 += static_cast<int8_t>(x[i] >> 8 * k) * static_cast<int8_t>(y[i] >> 8 * k);
            u4 += (x[i] >> 8 * k & 255) * (y[i] >> 8 * k & 255);
        }
        for (int k = 0; k < 8; ++k) {
            s8 += (static_cast<int>(x[i] << (28 - 4 * k)) >> 28) * (static_cast<int>(y[i] << (28 - 4 * k)) >> 28);
            u8 += (x[i] >> 4 * k & 15) * (y[i] >> 4 * k & 15);
        }
        int64_t s2 = i;
        for (int k = 0; k < 2; ++k)
            s2 += static_cast<int64_t>(static_cast<int16_t>(x[i] >> 16 * k)) * static_cast<int16_t>(y[i] >> 16 * k);
        s2 = s2 > INT32_MAX ? INT32_MAX : s2 < INT32_MIN ? INT32_MIN : s2;
        const int values[] = {s4, static_cast<int>(u4), s8, static_cast<int>(u8), static_cast<int>(s2)};
        for (int row = 0; row < 5; ++row) wanted[row * 64 + i] = values[row];
        sums[i] = static_cast<float>((x[i] & 15) * (y[i] & 15) + (x[i] >> 8 & 15) * (y[i] >> 8 & 15)) + 0.5f;
    }
    verdict.equal(out.read(verdict), wanted, "integer dots");
    verdict.equal(real.read(verdict), sums, "half dots");
}

__global__ void narrow(const float* x, float* out, int* words) {
    const int i = static_cast<int>(threadIdx.x);
    const float a = x[i], b = x[255 - i];
    int packed_fp8 = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false);
    packed_fp8 = __builtin_amdgcn_cvt_pk_fp8_f32(b, a, packed_fp8, true);
    int packed_bf8 = __builtin_amdgcn_cvt_pk_bf8_f32(a, b, 0, false);
    packed_bf8 = __builtin_amdgcn_cvt_sr_bf8_f32(a, 0u, packed_bf8, 2);
    out[0 * 256 + i] = __builtin_amdgcn_cvt_f32_fp8(packed_fp8, 0);
    out[1 * 256 + i] = __builtin_amdgcn_cvt_f32_fp8(packed_fp8, 3);
    out[2 * 256 + i] = __builtin_amdgcn_cvt_f32_bf8(packed_bf8, 1);
    const float2_t pair = __builtin_amdgcn_cvt_pk_f32_fp8(packed_fp8, true);
    out[3 * 256 + i] = pair.x;
    out[4 * 256 + i] = __builtin_amdgcn_fmed3f(a, b, 1.0f);
    words[0 * 256 + i] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_pkrtz(a, b));
    words[1 * 256 + i] = packed_bf8 >> 16 & 255;
    const float2_t wide = __builtin_elementwise_fma(float2_t{a, b}, float2_t{b, a}, float2_t{1, 2});
    out[5 * 256 + i] = wide.x + wide.y;
    out[6 * 256 + i] = static_cast<float>(static_cast<__bf16>(a));
    out[7 * 256 + i] = a * 0.5f + static_cast<float>(static_cast<_Float16>(b));
}

/// x rounded to `mantissa` bits to nearest even, exponents from 2^low, no infinities.
double rounded(double x, int mantissa, int low) {
    if (x == 0) return 0;
    const int exponent = std::max(std::ilogb(x), low);
    return std::ldexp(std::nearbyint(std::ldexp(x, mantissa - exponent)), exponent - mantissa);
}

void judge_narrow(Verdict& verdict) {
    const std::vector<float> x = converted<float>(uniform_numbers(256, -200, 200, 5));
    Buffer<float> from(x), out(8 * 256);
    Buffer<int> words(2 * 256);
    narrow<<<1, 256>>>(from.data(), out.data(), words.data());
    std::vector<float> wanted(8 * 256);
    std::vector<int> bits(2 * 256);
    for (int i = 0; i < 256; ++i) {
        const float a = x[i], b = x[255 - i];
        const double da = static_cast<double>(a), db = static_cast<double>(b);
        const float first = static_cast<float>(rounded(da, 3, -7)), second = static_cast<float>(rounded(db, 3, -7));
        const float sorted = std::fmax(std::fmin(a, b), std::fmin(std::fmax(a, b), 1.0f));
        uint32_t raw;
        std::memcpy(&raw, &a, 4);
        raw = (raw + 0x7fff + (raw >> 16 & 1)) & 0xffff0000u;
        float brain;
        std::memcpy(&brain, &raw, 4);
        const float values[] = {
            first,
            first,
            static_cast<float>(rounded(db, 2, -15)),
            second,
            sorted,
            std::fma(a, b, 1.0f) + std::fma(b, a, 2.0f),
            brain,
            std::fma(a, 0.5f, static_cast<float>(static_cast<_Float16>(b)))};
        for (int row = 0; row < 8; ++row) wanted[row * 256 + i] = values[row];
        for (int k = 0; k < 2; ++k) {  // towards zero: drop what does not fit, then the conversion is exact
            const double v = k ? db : da;
            const int exponent = std::max(std::ilogb(v), -14);
            const _Float16 toward_zero =
                static_cast<_Float16>(std::ldexp(std::trunc(std::ldexp(v, 10 - exponent)), exponent - 10));
            uint16_t code;
            std::memcpy(&code, &toward_zero, 2);
            bits[i] |= code << 16 * k;
        }
        // A random addend of zero truncates the significand.
        const int exponent = std::ilogb(da);
        const int significand = static_cast<int>(std::ldexp(std::fabs(da), 2 - exponent));
        bits[256 + i] = (da < 0 ? 128 : 0) | (exponent + 16) << 2 | (significand & 3);
    }
    verdict.close(out.read(verdict), wanted, 1e-7, 0, "8-bit floats");
    verdict.equal(words.read(verdict), bits, "8-bit codes");
}

PROGRAM {
    Verdict verdict;
    const std::vector<_Float16> x = converted<_Float16>(uniform_numbers(kCount, -30, 30, 1));
    const std::vector<_Float16> y = converted<_Float16>(uniform_numbers(kCount, -30, 30, 2));
    judge_scalar(verdict, x, y);
    judge_packed(verdict, x, y);
    judge_dots(verdict);
    judge_narrow(verdict);
    return verdict.leave(message, room);
}
