// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Whole algorithms, the same source on host and device.
#include "program.h"

#define BOTH __host__ __device__ inline

BOTH unsigned turned(unsigned x, int by) { return x >> by | x << (32 - by); }

BOTH unsigned round_constant(
    int i) {  // fractional bits of cube roots of primes (FIPS 180-4); the first 16 are enough here
    const unsigned table[] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
                              0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
                              0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174};
    return table[i % 16];
}

/// The compression of SHA-256 with its constants repeated: as many rounds, as much mixing.
BOTH unsigned mixed(unsigned seed) {
    unsigned w[64],
        s[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (int i = 0; i < 16; ++i) w[i] = seed * (2u * static_cast<unsigned>(i) + 1) + static_cast<unsigned>(i);
    for (int i = 16; i < 64; ++i) {
        const unsigned a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
        const unsigned b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    for (int i = 0; i < 64; ++i) {
        const unsigned t1 = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                            ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_constant(i) + w[i];
        const unsigned t2 =
            (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int k = 7; k > 0; --k) s[k] = s[k - 1];
        s[4] += t1;
        s[0] = t1 + t2;
    }
    return s[0] ^ s[3] ^ s[7];
}

BOTH unsigned checksum(unsigned seed) {  // CRC-32 of 16 bytes, bit by bit
    unsigned crc = ~0u;
    for (int i = 0; i < 16; ++i) {
        crc ^= seed >> i % 4 * 8 & 255;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

BOTH unsigned escape(unsigned seed) {  // the Mandelbrot set in fixed point, so that host and device agree
    const int scale = 1 << 12, cx = static_cast<int>(seed % 97) * 128 - 8192,
              cy = static_cast<int>(seed / 97 % 89) * 96 - 4096;
    int x = 0, y = 0;
    for (unsigned n = 0; n < 60; ++n) {
        const int xx = x * x / scale, yy = y * y / scale;
        if (xx + yy > 4 * scale) return n;
        y = 2 * x * y / scale + cy;
        x = xx - yy + cx;
    }
    return 60;
}

BOTH unsigned modular(unsigned seed) {  // powers modulo a prime, by 64-bit remainders
    const unsigned long long prime = 4294967291ull;
    unsigned long long base = seed % prime, result = 1;
    for (unsigned exponent = 65537 + seed % 1000; exponent; exponent >>= 1) {
        if (exponent & 1) result = result * base % prime;
        base = base * base % prime;
    }
    return static_cast<unsigned>(result);
}

BOTH unsigned edit_distance(unsigned seed) {
    const int n = 10, m = 8;
    unsigned char costs[2][12];
    for (int j = 0; j <= m; ++j) costs[0][j] = static_cast<unsigned char>(j);
    for (int i = 1; i <= n; ++i) {
        costs[i % 2][0] = static_cast<unsigned char>(i);
        for (int j = 1; j <= m; ++j) {
            const int differs = (seed >> i * 2 & 3) != (seed >> (j * 3) % 30 & 3);
            int best = costs[(i + 1) % 2][j - 1] + differs;
            if (costs[(i + 1) % 2][j] + 1 < best) best = costs[(i + 1) % 2][j] + 1;
            if (costs[i % 2][j - 1] + 1 < best) best = costs[i % 2][j - 1] + 1;
            costs[i % 2][j] = static_cast<unsigned char>(best);
        }
    }
    return costs[n % 2][m];
}

constexpr int kCount = 128;

__global__ void integers(const unsigned* seeds, unsigned* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const unsigned seed = seeds[i];
    out[0 * kCount + i] = mixed(seed);
    out[1 * kCount + i] = checksum(seed);
    out[2 * kCount + i] = escape(seed);
    out[3 * kCount + i] = modular(seed);
    out[4 * kCount + i] = edit_distance(seed);
}

BOTH double option_price(double spot, double strike, double rate, double spread, double years) {
    const double d1 = (log(spot / strike) + (rate + 0.5 * spread * spread) * years) / (spread * sqrt(years));
    const double d2 = d1 - spread * sqrt(years);
    return spot * 0.5 * erfc(-d1 * 0.70710678118654752) -
           strike * exp(-rate * years) * 0.5 * erfc(-d2 * 0.70710678118654752);
}

BOTH float option_price_f(float spot, float strike, float rate, float spread, float years) {
    const float d1 = (logf(spot / strike) + (rate + 0.5f * spread * spread) * years) / (spread * sqrtf(years));
    const float d2 = d1 - spread * sqrtf(years);
    return spot * 0.5f * erfcf(-d1 * 0.70710678f) - strike * expf(-rate * years) * 0.5f * erfcf(-d2 * 0.70710678f);
}

/// Solves a system of 6 equations by elimination with pivots; returns the sum of the solution.
BOTH double solved(unsigned seed) {
    double m[6][7];
    for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 7; ++j)
            m[i][j] = static_cast<double>((seed >> (i * 5 + j * 3) % 28 & 15) + (i == j ? 9 : 0)) - 4;
    for (int k = 0; k < 6; ++k) {
        int pivot = k;
        for (int i = k + 1; i < 6; ++i)
            if (fabs(m[i][k]) > fabs(m[pivot][k])) pivot = i;
        for (int j = 0; j < 7; ++j) {
            const double moved = m[k][j];
            m[k][j] = m[pivot][j];
            m[pivot][j] = moved;
        }
        if (fabs(m[k][k]) < 1e-3) return 0;
        for (int i = k + 1; i < 6; ++i) {
            const double by = m[i][k] / m[k][k];
            for (int j = k; j < 7; ++j) m[i][j] -= by * m[k][j];
        }
    }
    double sum = 0, x[6];
    for (int i = 5; i >= 0; --i) {
        x[i] = m[i][6];
        for (int j = i + 1; j < 6; ++j) x[i] -= m[i][j] * x[j];
        x[i] /= m[i][i];
        sum += x[i];
    }
    return sum;
}

__global__ void reals(const unsigned* seeds, double* out, float* narrow) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const double x = seeds[i] % 1000 * 0.001;
    out[i] = option_price(80 + 40 * x, 100, 0.02, 0.1 + 0.3 * x, 0.5 + x);
    out[kCount + i] = solved(seeds[i]);
    const float f = static_cast<float>(x);
    narrow[i] = option_price_f(80 + 40 * f, 100, 0.02f, 0.1f + 0.3f * f, 0.5f + f);
}

PROGRAM {
    Verdict verdict;
    const std::vector<unsigned> seeds = random_words<unsigned>(kCount);
    Buffer<unsigned> from(seeds), out(5 * kCount);
    integers<<<2, kCount / 2>>>(from.data(), out.data());
    std::vector<unsigned> wanted(5 * kCount);
    unsigned (*const functions[])(unsigned) = {mixed, checksum, escape, modular, edit_distance};
    for (int row = 0; row < 5; ++row)
        for (int i = 0; i < kCount; ++i) wanted[row * kCount + i] = functions[row](seeds[i]);
    verdict.equal(out.read(verdict), wanted, "integers");

    Buffer<double> exact(2 * kCount);
    Buffer<float> narrow(kCount);
    reals<<<1, kCount>>>(from.data(), exact.data(), narrow.data());
    std::vector<double> values(2 * kCount), prices(kCount);
    for (int i = 0; i < kCount; ++i) {
        const double x = seeds[i] % 1000 * 0.001;
        prices[i] = values[i] = option_price(80 + 40 * x, 100, 0.02, 0.1 + 0.3 * x, 0.5 + x);
        values[kCount + i] = solved(seeds[i]);
    }
    verdict.close(exact.read(verdict), values, 1e-9, 1e-9, "reals");
    verdict.close(narrow.read(verdict), prices, 2e-5, 1e-4, "prices");
    return verdict.leave(message, room);
}
