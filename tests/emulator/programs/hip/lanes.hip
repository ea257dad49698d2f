// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Data between the lanes of a wave: shuffles, votes, DPP in every mode, swizzles, permutes.
#include "program.h"

__global__ void shuffles(int* out, unsigned long long* masks) {
    const int lane = static_cast<int>(threadIdx.x), value = lane * lane + 7;
    out[0 * 64 + lane] = __shfl(value, (lane * 5 + 3) % 64);
    out[1 * 64 + lane] = __shfl_up(value, 3);
    out[2 * 64 + lane] = __shfl_down(value, 5);
    out[3 * 64 + lane] = __shfl_xor(value, 21);
    out[4 * 64 + lane] = __shfl(value, 2, 16);
    out[5 * 64 + lane] = __shfl_xor(value, 8, 32);
    out[6 * 64 + lane] = static_cast<int>(__shfl(static_cast<double>(value), 63 - lane));
    out[7 * 64 + lane] = static_cast<int>(__shfl_down(static_cast<long long>(value) << 32, 1) >> 32);
    out[8 * 64 + lane] = __any(lane == 40) * 2 + __all(lane < 64);
    out[9 * 64 + lane] = static_cast<int>(__lane_id());
    out[10 * 64 + lane] = __builtin_amdgcn_readlane(value, 9) + __builtin_amdgcn_readfirstlane(value);
    masks[0] = __ballot(lane % 3 == 0);
    if (lane >= 10 && lane % 2 == 0) {
        masks[1] = __ballot(lane % 3 == 0);
        masks[2] = __activemask();
        out[11 * 64 + lane] = __builtin_amdgcn_readfirstlane(lane);
    } else {
        out[11 * 64 + lane] = -1;
    }
}

void judge_shuffles(Verdict& verdict) {
    Buffer<int> out(12 * 64);
    Buffer<unsigned long long> masks(3);
    shuffles<<<1, 64>>>(out.data(), masks.data());
    std::vector<int> wanted(12 * 64);
    std::vector<unsigned long long> votes(3);
    auto value = [](int lane) { return lane * lane + 7; };
    for (int i = 0; i < 64; ++i) {
        const int rows[] = {
            value((i * 5 + 3) % 64),
            value(i < 3 ? i : i - 3),
            value(i + 5 > 63 ? i : i + 5),
            value(i ^ 21),
            value(i / 16 * 16 + 2),
            value(i ^ 8),
            value(63 - i),
            value(i == 63 ? i : i + 1),
            3,
            i,
            value(9) + value(0),
            i >= 10 && i % 2 == 0 ? 10 : -1};
        for (int row = 0; row < 12; ++row) wanted[row * 64 + i] = rows[row];
        const unsigned long long bit = 1ull << i;
        const bool active = i >= 10 && i % 2 == 0;
        if (i % 3 == 0) votes[0] |= bit;
        if (active && i % 3 == 0) votes[1] |= bit;
        if (active) votes[2] |= bit;
    }
    verdict.equal(out.read(verdict), wanted, "shuffle");
    verdict.equal(masks.read(verdict), votes, "ballot");
}

constexpr int kOld = -1000;

// Controls of DPP (AMD CDNA3 ISA, table of DPP controls).
enum Control {
    kQuad = 0x1b,
    kShl1 = 0x101,
    kShr3 = 0x113,
    kRor5 = 0x125,
    kWaveShl = 0x130,
    kWaveRol = 0x134,
    kWaveShr = 0x138,
    kWaveRor = 0x13c,
    kMirror = 0x140,
    kHalfMirror = 0x141,
    kBroadcast15 = 0x142,
    kBroadcast31 = 0x143,
    kNewBroadcast4 = 0x154
};

template <int control, int rows, int banks, bool bound>
__device__ int move(int value) {
    return __builtin_amdgcn_update_dpp(kOld, value, control, rows, banks, bound);
}

__global__ void dpp(int* out) {
    const int lane = static_cast<int>(threadIdx.x), v = lane + 100;
    int row = 0;
    auto put = [&](int x) { out[row++ * 64 + lane] = x; };
    put(move<kQuad, 15, 15, false>(v));
    put(move<kShl1, 15, 15, false>(v));
    put(move<kShr3, 15, 15, true>(v));
    put(move<kRor5, 15, 15, false>(v));
    put(move<kWaveShl, 15, 15, false>(v));
    put(move<kWaveRol, 15, 15, false>(v));
    put(move<kWaveShr, 15, 15, true>(v));
    put(move<kWaveRor, 15, 15, false>(v));
    put(move<kMirror, 15, 15, false>(v));
    put(move<kHalfMirror, 15, 15, false>(v));
    put(move<kBroadcast15, 10, 15, false>(v));
    put(move<kBroadcast31, 12, 15, false>(v));
    put(move<kNewBroadcast4, 15, 15, false>(v));
    put(move<kQuad, 5, 3, false>(v));
    put(v + move<kShr3, 15, 15, true>(v));  // folded into the addition where the compiler can
    put(v + __builtin_amdgcn_mov_dpp(v, kMirror, 15, 15, true));
}

int source(int control, int i) {
    const int row = i / 16 * 16, at = i % 16;
    switch (control) {
        case kQuad: return i / 4 * 4 + (3 - i % 4);
        case kShl1: return at + 1 < 16 ? i + 1 : -1;
        case kShr3: return at >= 3 ? i - 3 : -1;
        case kRor5: return row + (at + 11) % 16;
        case kWaveShl: return i < 63 ? i + 1 : -1;
        case kWaveRol: return (i + 1) % 64;
        case kWaveShr: return i - 1;
        case kWaveRor: return (i + 63) % 64;
        case kMirror: return row + 15 - at;
        case kHalfMirror: return i / 8 * 8 + 7 - i % 8;
        case kBroadcast15: return row - 1;
        case kBroadcast31: return i / 32 * 32 - 1;
        default: return row + 4;
    }
}

void judge_dpp(Verdict& verdict) {
    Buffer<int> out(16 * 64);
    dpp<<<1, 64>>>(out.data());
    struct Case {
        int control, rows, banks;
        bool bound;
    };
    const Case cases[] = {{kQuad, 15, 15, false},          {kShl1, 15, 15, false},        {kShr3, 15, 15, true},
                          {kRor5, 15, 15, false},          {kWaveShl, 15, 15, false},     {kWaveRol, 15, 15, false},
                          {kWaveShr, 15, 15, true},        {kWaveRor, 15, 15, false},     {kMirror, 15, 15, false},
                          {kHalfMirror, 15, 15, false},    {kBroadcast15, 10, 15, false}, {kBroadcast31, 12, 15, false},
                          {kNewBroadcast4, 15, 15, false}, {kQuad, 5, 3, false},          {kShr3, 15, 15, true},
                          {kMirror, 15, 15, true}};
    std::vector<int> wanted(16 * 64);
    for (int row = 0; row < 16; ++row) {
        const Case& c = cases[row];
        for (int i = 0; i < 64; ++i) {
            const bool written = (c.rows >> i / 16 & 1) && (c.banks >> i % 16 / 4 & 1);
            const int from = source(c.control, i);
            const int moved = !written ? kOld : from >= 0 ? from + 100 : c.bound ? 0 : kOld;
            wanted[row * 64 + i] = row >= 14 ? i + 100 + moved : moved;
        }
    }
    verdict.equal(out.read(verdict), wanted, "DPP");
}

__global__ void permutes(int* out) {
    const int lane = static_cast<int>(threadIdx.x), v = lane * 3;
    int row = 0;
    auto put = [&](int x) { out[row++ * 64 + lane] = x; };
    put(__builtin_amdgcn_ds_bpermute((lane * 7 % 64) * 4, v));
    put(__builtin_amdgcn_ds_permute((lane * 7 % 64) * 4, v));
    put(__builtin_amdgcn_ds_swizzle(v, 0x041f));         // lane ^ 1 of 32
    put(__builtin_amdgcn_ds_swizzle(v, 0x80b1));         // a quad's lanes 1, 0, 3, 2
    put(__builtin_amdgcn_ds_swizzle(v, 0x0200 | 0x18));  // and with 24, or with 16
    put(static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u))));
    put(static_cast<int>(__builtin_amdgcn_mbcnt_lo(0x0f0f0f0fu, 3u)));
}

void judge_permutes(Verdict& verdict) {
    Buffer<int> out(7 * 64);
    permutes<<<1, 64>>>(out.data());
    std::vector<int> wanted(7 * 64);
    for (int i = 0; i < 64; ++i) {
        const unsigned below = i < 32 ? (1u << i) - 1 : ~0u;
        const int half = i / 32 * 32, at = i % 32;
        const int rows[] = {
            (i * 7 % 64) * 3,
            0,
            (i ^ 1) * 3,
            (i ^ 1) * 3,
            (half + ((at & 24) | 16)) * 3,
            i,
            3 + __builtin_popcount(0x0f0f0f0fu & below)};
        for (int row = 0; row < 7; ++row)
            if (row != 1) wanted[row * 64 + i] = rows[row];
        wanted[64 + i * 7 % 64] = i * 3;
    }
    verdict.equal(out.read(verdict), wanted, "permute");
}

__global__ void wave_sums(const float* x, float* sums, float* prefixes) {
    float total = x[threadIdx.x], prefix = total;
    for (int step = 32; step > 0; step /= 2) total += __shfl_xor(total, step);
    for (int step = 1; step < 64; step *= 2) {
        const float other = __shfl_up(prefix, static_cast<unsigned>(step));
        if (static_cast<int>(threadIdx.x % 64) >= step) prefix += other;
    }
    sums[threadIdx.x] = total;
    prefixes[threadIdx.x] = prefix;
}

void judge_sums(Verdict& verdict) {
    std::vector<float> x(256), sums(256), prefixes(256);
    for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i % 17);
    for (int i = 0; i < 256; ++i) {
        for (int j = i / 64 * 64; j < i / 64 * 64 + 64; ++j) sums[i] += x[j], prefixes[i] += j <= i ? x[j] : 0;
    }
    Buffer<float> from(x), total(256), prefix(256);
    wave_sums<<<1, 256>>>(from.data(), total.data(), prefix.data());
    verdict.equal(total.read(verdict), sums, "wave sum");
    verdict.equal(prefix.read(verdict), prefixes, "wave prefix");
}

PROGRAM {
    Verdict verdict;
    judge_shuffles(verdict);
    judge_dpp(verdict);
    judge_permutes(verdict);
    judge_sums(verdict);
    return verdict.leave(message, room);
}
