// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Packed structures: compilers read their members where they lie, as the hardware allows for anything but atomics. The check
// of alignment says so.
#include "program.h"

constexpr int kCount = 128;

struct __attribute__((packed)) Loose {
    unsigned char a;
    int b;
    short c;
    double d;
    float e[3];
};

__global__ void loosely(const Loose* from, double* sums, Loose* to) {
    const int i = static_cast<int>(threadIdx.x);
    const Loose x = from[i];
    sums[i] = x.a + x.b + x.c + x.d + x.e[2];
    to[i].b = x.b + 1;
    to[i].c = static_cast<short>(x.c * 2);
    to[i].d = x.d - 1;
    to[i].e[1] = x.e[0] + x.e[1];
}

__global__ void in_shared(const unsigned char* bytes, unsigned long long* out) {
    __shared__ unsigned char room[kCount + 8];
    const int i = static_cast<int>(threadIdx.x);
    room[i] = bytes[i];
    if (i < 8) room[kCount + i] = static_cast<unsigned char>(i);
    __syncthreads();
    unsigned long long value;
    __builtin_memcpy(&value, room + i, 8);
    out[i] = value;
}

PROGRAM {
    Verdict verdict;
    std::vector<Loose> loose(kCount);
    std::vector<double> sums(kCount);
    for (int i = 0; i < kCount; ++i) {
        loose[i] = {
            static_cast<unsigned char>(i),
            i * 1000,
            static_cast<short>(-i),
            i * 0.125,
            {1, 2, static_cast<float>(i) * 4}};
        sums[i] = i + i * 1000 - i + i * 0.125 + i * 4;
    }
    std::vector<unsigned char> raw(kCount * sizeof(Loose));
    std::memcpy(raw.data(), loose.data(), raw.size());
    Buffer<unsigned char> from(raw), to(raw);
    Buffer<double> totals(kCount);
    loosely<<<1, kCount>>>(reinterpret_cast<Loose*>(from.data()), totals.data(), reinterpret_cast<Loose*>(to.data()));
    for (Loose& x : loose) x.b = x.b + 1, x.c = static_cast<short>(x.c * 2), x.d = x.d - 1, x.e[1] = x.e[0] + x.e[1];
    std::memcpy(raw.data(), loose.data(), raw.size());
    verdict.equal(totals.read(verdict), sums, "unaligned members");
    verdict.equal(to.read(verdict), raw, "unaligned stores");

    std::vector<unsigned char> bytes = random_words<unsigned char>(kCount);
    Buffer<unsigned char> shared(bytes);
    Buffer<unsigned long long> out(kCount);
    in_shared<<<1, kCount>>>(shared.data(), out.data());
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<unsigned char>(i));
    std::vector<unsigned long long> wanted(kCount);
    for (int i = 0; i < kCount; ++i) std::memcpy(&wanted[i], bytes.data() + i, 8);
    verdict.equal(out.read(verdict), wanted, "unaligned in shared memory");
    return verdict.leave(message, room);
}
