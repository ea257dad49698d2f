// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Integers: wide products and quotients, bits, bit fields, saturation, bytes, conversions; host and device run the same code.
#include "program.h"

constexpr int kCount = 256;
constexpr int kRows = 40;

#define BOTH __host__ __device__ inline

BOTH int count_bits(unsigned long long x) { return __builtin_popcountll(x); }

BOTH void compute(
    unsigned a, unsigned b, unsigned long long x, unsigned long long y, unsigned long long* out, int stride) {
    const int sa = static_cast<int>(a), sb = static_cast<int>(b) | 1;
    const long long sx = static_cast<long long>(x) >> 1, sy = static_cast<long long>(y) | 1;
    int row = 0;
    auto put = [&](auto value) { out[row++ * stride] = static_cast<unsigned long long>(value); };
    put(sa / sb);
    put(sa % sb);
    put(a / (b | 1));
    put(a % (b | 1));
    put(x / (y | 1));
    put(x % (y | 1));
    put(sx / sy);
    put(sx % sy);
    put(x * y);
    put(static_cast<unsigned long long>(a) * b + x);
    put(static_cast<long long>(sa) * sb + sx);
    put(static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64));
    put(static_cast<unsigned long long>(static_cast<unsigned long long>(a) * b >> 32));
    put(x << (b & 63));
    put(x >> (b & 63));
    put(sx >> (b & 63));
    put(a << (b & 31) | a >> (-b & 31));
    put(count_bits(x) + count_bits(a));
    put(a ? __builtin_clz(a) : 32);
    put(x ? __builtin_ctzll(x) : 64);
    put(__builtin_bswap32(a) ^ __builtin_bswap64(x));
    put(__builtin_bitreverse32(a) + __builtin_bitreverse64(x));
    put((a >> 5 & 0x7ff) * (b & 0xffffff));
    put((sa << 8 >> 8) * (sb << 8 >> 8));
    put(sa << 10 >> 21);
    put((a & ~b) | (b & 0xff00ff));
    put(sa < sb ? sa : sb);
    put(a > b ? a - b : b - a);
    int sum;
    put(__builtin_sadd_overflow(sa, sb, &sum) * 2 + (sum & 1));
    unsigned long long difference;
    put(__builtin_usubll_overflow(x, y, &difference) + difference);
    put(static_cast<unsigned long long>((static_cast<__int128>(sx) * sy + sa) / 1000003));
    put(static_cast<long long>(static_cast<double>(sx) * 0.5));
    put(static_cast<unsigned>(static_cast<float>(a) * 0.25f));
    put(static_cast<unsigned long long>(static_cast<float>(x >> 3)));
    put(static_cast<int>(static_cast<float>(sa) * 0.5f));
    put(static_cast<int>(static_cast<signed char>(a)) * static_cast<short>(b));
    put(static_cast<unsigned char>(a + b) + static_cast<unsigned short>(a * b));
    put((x ^ y) - (x & y) + ~x);
    put(a * 7 + (a + b) * 12 + (b << 3) + (a & 0xf0) + (b | 5));
    put(x / 10 + x % 1000 + sx / 7 + a / 3 + static_cast<unsigned>(sa % 100));
}

__global__ void on_device(const unsigned* a, const unsigned long long* x, unsigned long long* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    compute(a[i], a[kCount + i], x[i], x[kCount + i], out + i, kCount);
}

__global__ void device_only(const unsigned* x, const unsigned* y, unsigned* out) {
    const int i = static_cast<int>(threadIdx.x);
    const unsigned a = x[i], b = y[i];
    int row = 0;
    auto put = [&](unsigned value) { out[row++ * kCount + i] = value; };
    put(__byte_perm(a, b, 0x5243));
    put(__builtin_amdgcn_alignbyte(a, b, 3));
    put(__builtin_amdgcn_alignbit(a, b, 9));
    put(__builtin_amdgcn_ubfe(a, 7, 12));
    put(static_cast<unsigned>(__builtin_amdgcn_sbfe(static_cast<int>(a), 7, 12)));
    put(__builtin_amdgcn_sad_u8(a, b, 5));
    put(__builtin_amdgcn_perm(a, b, 0x0c060105));
    put(__mul24(static_cast<int>(a), static_cast<int>(b)));
    put(__umul24(a, b));
    put(__umulhi(a, b));
    put(static_cast<unsigned>(__mulhi(static_cast<int>(a), static_cast<int>(b))));
    put(static_cast<unsigned>(__ffs(static_cast<int>(a & 0xffff0000u))));
    put(static_cast<unsigned>(__clzll(static_cast<long long>(b))));
    put(__brev(a));
    put(__builtin_amdgcn_lerp(a, b, 0x01010101u));
    put(__builtin_amdgcn_sad_u16(a, b, 1));
    put(__builtin_amdgcn_msad_u8(a, b, 7));
    put(__builtin_elementwise_add_sat(a, b));
    put(__builtin_elementwise_sub_sat(static_cast<int>(a), static_cast<int>(b)));
    put(static_cast<unsigned>(static_cast<unsigned long long>(a & 0xffffff) * (b & 0xffffff) >> 32));
    put(__builtin_amdgcn_cvt_pk_u8_f32(static_cast<float>(a & 511), 2, b));
    put(__bitinsert_u32(a, b, 6, 9));
}

unsigned saturated(long long value) {
    return static_cast<unsigned>(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

void judge_device_only(Verdict& verdict) {
    const std::vector<unsigned> x = random_words<unsigned>(kCount, 7), y = random_words<unsigned>(kCount, 8);
    Buffer<unsigned> a(x), b(y), out(22 * kCount);
    device_only<<<1, kCount>>>(a.data(), b.data(), out.data());
    std::vector<unsigned> wanted(22 * kCount);
    for (int i = 0; i < kCount; ++i) {
        const unsigned p = x[i], q = y[i];
        const unsigned long long pair = static_cast<unsigned long long>(q) << 32 | p,
                                 other = static_cast<unsigned long long>(p) << 32 | q;
        auto byte = [](unsigned long long from, int at) { return static_cast<unsigned>(from >> 8 * at & 255); };
        const int sp = static_cast<int>(p), sq = static_cast<int>(q);
        const int sp24 = sp << 8 >> 8, sq24 = sq << 8 >> 8;
        unsigned sum8 = 5, sum16 = 1, masked = 7, lerp = 0;
        for (int k = 0; k < 4; ++k) {
            const int m = static_cast<int>(byte(p, k)), n = static_cast<int>(byte(q, k)), apart = std::abs(m - n);
            sum8 += apart;
            if (n != 0) masked += apart;
            lerp |= static_cast<unsigned>((m + n + 1) >> 1) << 8 * k;
        }
        for (int k = 0; k < 2; ++k)
            sum16 += std::abs(static_cast<int>(p >> 16 * k & 0xffff) - static_cast<int>(q >> 16 * k & 0xffff));
        const unsigned high = p & 0xffff0000u;
        const unsigned long long sum = static_cast<unsigned long long>(p) + q;
        const unsigned clamped = std::min(p & 511, 255u);
        const unsigned values[] = {
            byte(pair, 5) << 24 | byte(pair, 2) << 16 | byte(pair, 4) << 8 | byte(pair, 3),
            static_cast<unsigned>(other >> 24),
            static_cast<unsigned>(other >> 9),
            p >> 7 & 0xfff,
            static_cast<unsigned>(sp << 13 >> 20),
            sum8,
            byte(other, 6) << 16 | byte(other, 1) << 8 | byte(other, 5),
            static_cast<unsigned>(sp24 * static_cast<long long>(sq24)),
            (p & 0xffffff) * (q & 0xffffff),
            static_cast<unsigned>(static_cast<unsigned long long>(p) * q >> 32),
            static_cast<unsigned>(static_cast<long long>(sp) * sq >> 32),
            high ? static_cast<unsigned>(__builtin_ctz(high)) + 1 : 0,
            static_cast<unsigned>(__builtin_clzll(q ? q : 1)),
            __builtin_bitreverse32(p),
            lerp,
            sum16,
            masked,
            sum >> 32 ? ~0u : static_cast<unsigned>(sum),
            saturated(static_cast<long long>(sp) - sq),
            static_cast<unsigned>(static_cast<unsigned long long>(p & 0xffffff) * (q & 0xffffff) >> 32),
            (q & 0xff00ffffu) | clamped << 16,
            (p & ~(0x1ffu << 6)) | (q & 0x1ff) << 6};
        for (int row = 0; row < 22; ++row) wanted[row * kCount + i] = values[row];
    }
    verdict.equal(out.read(verdict), wanted, "device functions");
}

PROGRAM {
    Verdict verdict;
    std::vector<unsigned> a = random_words<unsigned>(2 * kCount);
    std::vector<unsigned long long> x = random_words<unsigned long long>(2 * kCount, 2);
    for (int i = 0; i < kCount; ++i) {  // operands of every size, so that quotients are too
        a[kCount + i] >>= i % 32;
        x[i] >>= i % 7;
        x[kCount + i] >>= i % 63;
    }
    a[0] = 0x80000000u, a[kCount] = ~0u, x[1] = 0, x[2] = ~0ull;
    a[0] = 0x80000001u;  // the quotient of the least integer and -1 is undefined
    Buffer<unsigned> narrow(a);
    Buffer<unsigned long long> wide(x), out(kRows * kCount);
    on_device<<<2, kCount / 2>>>(narrow.data(), wide.data(), out.data());
    std::vector<unsigned long long> wanted(kRows * kCount);
    for (int i = 0; i < kCount; ++i) compute(a[i], a[kCount + i], x[i], x[kCount + i], wanted.data() + i, kCount);
    verdict.equal(out.read(verdict), wanted, "integers");
    judge_device_only(verdict);
    return verdict.leave(message, room);
}
