// SPDX-License-Identifier: MIT
// Numbers of 8 and 16 bits: a line per number, with what the device and the host make of it.
#include <hip/hip_fp8.h>

#include <cstdio>

constexpr int kNumbers = 4096;

struct Line {
    float from;
    unsigned char e4m3, e5m2;
    unsigned short bf16;
    float back4, back5;
};

__host__ __device__ Line line(int i) {
    const unsigned bits = (110u + static_cast<unsigned>(i) % 25) << 23 | static_cast<unsigned>(i) * 2654435761u >> 9 |
                          (static_cast<unsigned>(i) & 1) << 31;
    const float from = i < 256 ? 0.0f : __builtin_bit_cast(float, bits);
    __hip_fp8_e4m3_fnuz four(from);
    __hip_fp8_e5m2_fnuz five(from);
    if (i < 256) four.__x = five.__x = static_cast<unsigned char>(i);      // first all codes, then numbers
    return {from, four.__x, five.__x, __float2bfloat16(from).__x, four, five};
}

__global__ void run(Line* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = line(i);
}

int main() {
    Line* out = nullptr;
    if (hipMallocManaged(&out, kNumbers * sizeof *out)) return 2;
    run<<<kNumbers / 256, 256>>>(out);
    for (int i = 0; i < kNumbers; ++i)
        for (const Line& each : {out[i], line(i)})
            std::printf("%a %d %d %d %a %a\n", static_cast<double>(each.from), each.e4m3, each.e5m2, each.bf16,
                        static_cast<double>(each.back4), static_cast<double>(each.back5));
    return 0;
}
