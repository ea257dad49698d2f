// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Workgroups that work together in shared memory, and everything a thread can ask about its place and time.
#include "program.h"

#include <algorithm>

__global__ void sort_block(unsigned* keys) {
    __shared__ unsigned shared[512];
    const unsigned i = threadIdx.x;
    for (unsigned k = i; k < 512; k += blockDim.x) shared[k] = keys[blockIdx.x * 512 + k];
    __syncthreads();
    for (unsigned size = 2; size <= 512; size *= 2)
        for (unsigned step = size / 2; step > 0; step /= 2) {
            const unsigned low = 2 * i - (i & (step - 1)), high = low + step;
            const bool up = (low & size) == 0;
            if ((shared[low] > shared[high]) == up) {
                const unsigned moved = shared[low];
                shared[low] = shared[high];
                shared[high] = moved;
            }
            __syncthreads();
        }
    for (unsigned k = i; k < 512; k += blockDim.x) keys[blockIdx.x * 512 + k] = shared[k];
}

void judge_sort(Verdict& verdict) {
    std::vector<unsigned> keys = random_words<unsigned>(1024);
    Buffer<unsigned> device(keys);
    sort_block<<<2, 256>>>(device.data());
    std::sort(keys.begin(), keys.begin() + 512);
    std::sort(keys.begin() + 512, keys.end());
    verdict.equal(device.read(verdict), keys, "bitonic sort");
}

__global__ void tiled_product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][17], right[16][17];
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    const int row = static_cast<int>(blockIdx.y) * 16 + y, column = static_cast<int>(blockIdx.x) * 16 + x;
    float sum = 0;
    for (int start = 0; start < n; start += 16) {
        left[y][x] = row < n && start + x < n ? a[row * n + start + x] : 0;
        right[y][x] = column < n && start + y < n ? b[(start + y) * n + column] : 0;
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}

void judge_product(Verdict& verdict) {
    const int n = 37;
    std::vector<float> a(n * n), b(n * n), wanted(n * n);
    for (int i = 0; i < n * n; ++i) a[i] = static_cast<float>(i % 13 - 6), b[i] = static_cast<float>(i % 11 - 5);
    for (int i = 0; i < n * n; ++i)
        for (int k = 0; k < n; ++k) wanted[i] += a[i / n * n + k] * b[k * n + i % n];
    Buffer<float> left(a), right(b), out(n * n);
    tiled_product<<<dim3(3, 3), dim3(16, 16)>>>(left.data(), right.data(), out.data(), n);
    verdict.equal(out.read(verdict), wanted, "tiled product");
}

/// A complex Fourier transform of 256 points by a block of 128.
__global__ void transform(const float2* in, float2* out) {
    __shared__ float2 points[256];
    const unsigned t = threadIdx.x;
    for (unsigned i = t; i < 256; i += 128) points[__brev(i) >> 24] = in[i];
    for (unsigned half = 1; half < 256; half *= 2) {
        __syncthreads();
        const unsigned at = t % half, low = t / half * 2 * half + at, high = low + half;
        const float angle = -3.14159265358979f * static_cast<float>(at) / static_cast<float>(half);
        float sine, cosine;
        sincosf(angle, &sine, &cosine);
        const float2 p = points[low], q = points[high];
        const float2 turned = make_float2(q.x * cosine - q.y * sine, q.x * sine + q.y * cosine);
        points[low] = make_float2(p.x + turned.x, p.y + turned.y);
        points[high] = make_float2(p.x - turned.x, p.y - turned.y);
    }
    __syncthreads();
    for (unsigned i = t; i < 256; i += 128) out[i] = points[i];
}

void judge_transform(Verdict& verdict) {
    const std::vector<float> x = converted<float>(uniform_numbers(512, -1, 1));
    Buffer<float> in(x), out(512);
    transform<<<1, 128>>>(reinterpret_cast<float2*>(in.data()), reinterpret_cast<float2*>(out.data()));
    std::vector<double> wanted(512);
    for (int k = 0; k < 256; ++k)
        for (int i = 0; i < 256; ++i) {
            const double angle = -2 * 3.14159265358979323846 * (k * i % 256) / 256, re = x[2 * i], im = x[2 * i + 1];
            wanted[2 * k] += re * std::cos(angle) - im * std::sin(angle);
            wanted[2 * k + 1] += re * std::sin(angle) + im * std::cos(angle);
        }
    verdict.close(out.read(verdict), wanted, 1e-5, 2e-5, "Fourier transform");
}

__global__ void life(const unsigned char* from, unsigned char* to, int width, int height) {
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
              y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
    int around = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (dx != 0 || dy != 0) around += from[(y + dy + height) % height * width + (x + dx + width) % width];
    to[y * width + x] = around == 3 || (around == 2 && from[y * width + x]);
}

void judge_life(Verdict& verdict) {
    const int width = 16, height = 12;
    std::vector<unsigned char> field(width * height), moved(width * height);
    for (int cell : {1, 18, 32, 33, 34}) field[cell] = 1;
    Buffer<unsigned char> one(field), two(field.size());
    for (int step = 0; step < 4; ++step) {
        const bool odd = step % 2;
        life<<<dim3(2, 3), dim3(8, 4)>>>(odd ? two.data() : one.data(), odd ? one.data() : two.data(), width, height);
    }
    for (int cell : {1, 18, 32, 33, 34}) moved[cell + width + 1] = 1;  // a glider, four steps on
    verdict.equal(one.read(verdict), moved, "game of life");
}

__global__ void places(unsigned* out, unsigned* shape) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        blockIdx.x | blockIdx.y << 4 | blockIdx.z << 8 | threadIdx.x << 12 | threadIdx.y << 16 | threadIdx.z << 20;
    if (block == 0 && thread == 0) {
        const unsigned values[] = {
            gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z, static_cast<unsigned>(warpSize)};
        for (int i = 0; i < 7; ++i) shape[i] = values[i];
    }
}

void judge_places(Verdict& verdict) {
    const dim3 grid(3, 2, 4), block(5, 3, 7);
    Buffer<unsigned> out(24 * 105), shape(7);
    places<<<grid, block>>>(out.data(), shape.data());
    std::vector<unsigned> wanted;
    for (unsigned b = 0; b < 24; ++b)
        for (unsigned t = 0; t < 105; ++t)
            wanted.push_back(b % 3 | b / 3 % 2 << 4 | b / 6 << 8 | t % 5 << 12 | t / 5 % 3 << 16 | t / 15 << 20);
    verdict.equal(out.read(verdict), wanted, "places");
    verdict.equal(shape.read(verdict), {3, 2, 4, 5, 3, 7, 64}, "shape");
}

__global__ void clocks(long long* out, unsigned* ids) {
    const long long start = clock64(), wall = wall_clock64();
    __builtin_amdgcn_s_sleep(1);
    const unsigned long long cycles = __builtin_readcyclecounter();
    out[0] = clock64() - start;
    out[1] = wall_clock64() - wall;
    out[2] = static_cast<long long>(__builtin_readcyclecounter() - cycles);
    ids[threadIdx.x / 64] = __builtin_amdgcn_s_getreg(4 | 0 << 6 | 3 << 11);  // HW_ID: the wave's slot
    __builtin_amdgcn_s_setprio(3);
    ids[8] = __builtin_amdgcn_s_getreg(20 | 0 << 6 | 3 << 11);  // XCC_ID
    __builtin_amdgcn_s_setprio(0);
}

void judge_clocks(Verdict& verdict) {
    Buffer<long long> out(3);
    Buffer<unsigned> ids(9);
    clocks<<<1, 128>>>(out.data(), ids.data());
    const std::vector<long long> elapsed = out.read(verdict);
    for (long long ticks : elapsed) verdict.require(ticks >= 0 && ticks < 1ll << 40, "a clock that runs backwards");
    verdict.require(ids.read(verdict)[8] < 8, "an MI300X has eight XCCs");
}

PROGRAM {
    Verdict verdict;
    judge_sort(verdict);
    judge_product(verdict);
    judge_transform(verdict);
    judge_life(verdict);
    judge_places(verdict);
    judge_clocks(verdict);
    return verdict.leave(message, room);
}
