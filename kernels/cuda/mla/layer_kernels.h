// SPDX-License-Identifier: MIT
// Kernels of an MLA layer beside the attention: its inputs, and plain products in place of the vendor's library.
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "mla/layer_product.h"
#include "ptx/mma.h"

namespace mla {

// Products by a kernel of our own, one output to a thread: slow, and nothing of it hidden from
// tools. (compute-sanitizer's racecheck does not get past the vendor's library: benchmarks/amd_mla_decode.md.)

constexpr int kPlainThreads = 128;

/// Element (blockIdx.y, column) of product blockIdx.z; sums in fp32, in the order of k.
__global__ void __launch_bounds__(kPlainThreads) plain_product(const __grid_constant__ LayerProduct p) {
    const int column = static_cast<int>(blockIdx.x) * kPlainThreads + static_cast<int>(threadIdx.x);
    if (column >= p.n) return;
    const long long product = blockIdx.z, row = blockIdx.y;
    const uint16_t* const x = static_cast<const uint16_t*>(p.x) + product * p.x_step + row * p.x_pitch;
    const uint16_t* const w =
        static_cast<const uint16_t*>(p.w) + product * p.w_step + (p.plain ? column : column * p.w_pitch);
    const long long next = p.plain ? p.w_pitch : 1;
    float sum = 0.0f;
    for (int k = 0; k < p.k; ++k) {
        sum += __uint_as_float(static_cast<uint32_t>(x[k]) << 16) *
               __uint_as_float(static_cast<uint32_t>(w[k * next]) << 16);
    }
    static_cast<uint16_t*>(p.y)[product * p.y_step + row * p.y_pitch + column] =
        static_cast<uint16_t>(Bf16::pack(sum, 0.0f));
}

/// Returns the vendor's status.
inline int launch_plain_product(const LayerProduct& p, void* queue) {
    const dim3 grid(
        static_cast<unsigned>(ceil_div(p.n, kPlainThreads)), static_cast<unsigned>(p.m),
        static_cast<unsigned>(p.count));
    LAUNCH(plain_product, grid, dim3(kPlainThreads), 0, queue)(p);
    return LAUNCH_STATUS();
}

// The kernel in front of the attention of an MLA layer: everything between its projections, in one launch.
//
// Some blocks rotate the rotary columns of the cached tokens to their positions and write them to an array of their own; the
// others rotate those of the queries to the newest position and put them behind the latent ones, put the newest token's row
// into the cache, and describe the cache, which is one array per request, as pages in order.

struct LayerInputs {
    const uint8_t* q;    // [batch, heads, 192] bf16: 128 columns that are not rotated, 64 that are
    uint8_t* queries;    // [batch, heads, 576] bf16: the last 64 columns are written
    const uint8_t* row;  // [batch, 576] bf16, the newest token's
    uint8_t* cache;      // [batch, max_len, 576] bf16: row `length` is written
    uint8_t* rotary;     // [batch, pages * 64, 64] bf16: rows behind `length` are not written
    int* block_table;    // [batch, pages]
    int* seqlens;        // [batch]
    int batch, heads, length, max_len, pages;
};

/// 9984^(-i/32) in bf16: RoPE's 10000 is 9984 in bf16, and so is everything that follows from it.
__device__ constexpr uint16_t kFrequencies[32] = {0x3f80, 0x3f40, 0x3f10, 0x3ed8, 0x3ea2, 0x3e73, 0x3e36, 0x3e09,
                                                  0x3dcd, 0x3d9a, 0x3d66, 0x3d2d, 0x3d02, 0x3cc2, 0x3c92, 0x3c5b,
                                                  0x3c24, 0x3bf6, 0x3bb8, 0x3b8a, 0x3b4f, 0x3b1c, 0x3ae9, 0x3aaf,
                                                  0x3a83, 0x3a45, 0x3a14, 0x39dd, 0x39a6, 0x3979, 0x393b, 0x390c};

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

/// Round to bf16 and back.
__device__ __forceinline__ float through_bf16(float x) { return bf16_low(Bf16::pack(x, 0.0f)); }

/// Less whole turns. Exact but for 2^-22: x and `turns` have at most 11 bits, 6.28125 has 8, the rest of a turn is small.
__device__ __forceinline__ float less_turns(float x) {
    const float turns = rintf(x * 0.15915494f);
    return fmaf(turns, -0.0019353072f, x - turns * 6.28125f);
}

/// The angles of pairs `pair` and `pair` + 1 at a position, whose cosines and sines are packed in bf16.
__device__ __forceinline__ void angles(int position, int pair, uint32_t& cosines, uint32_t& sines) {
    const float at = through_bf16(static_cast<float>(position));
    const float low = less_turns(through_bf16(at * bf16_low(kFrequencies[pair])));
    const float high = less_turns(through_bf16(at * bf16_low(kFrequencies[pair + 1])));
    cosines = Bf16::pack(__cosf(low), __cosf(high));  // 2^-21 at most off, within half a turn
    sines = Bf16::pack(__sinf(low), __sinf(high));
}

/// Rotate four pairs, 8 bytes of columns i and 8 of columns i + 32: (a, b) becomes (a cos - b sin, b cos + a sin), rounded once.
__device__ __forceinline__ void rotate_pairs(uint2& first, uint2& second, uint2 cosines, uint2 sines) {
    const auto rotate = [](uint32_t& a, uint32_t& b, uint32_t c, uint32_t s) {
        const float a0 = bf16_low(a), a1 = bf16_high(a), b0 = bf16_low(b), b1 = bf16_high(b);
        a = Bf16::pack(a0 * bf16_low(c) - b0 * bf16_low(s), a1 * bf16_high(c) - b1 * bf16_high(s));
        b = Bf16::pack(b0 * bf16_low(c) + a0 * bf16_low(s), b1 * bf16_high(c) + a1 * bf16_high(s));
    };
    rotate(first.x, second.x, cosines.x, sines.x);
    rotate(first.y, second.y, cosines.y, sines.y);
}

constexpr int kLayerThreads = 256;
constexpr int kRotatedRequests = 8;  // of a block: they share the angles of a page's positions

/// A page's positions of some requests. `block` counts requests first.
__device__ __forceinline__ void rotate_cached(const LayerInputs& a, int block) {
    __shared__ uint32_t turns[64 * 32];  // of a position 16 words of cosines, 16 of sines
    const int shares = ceil_div(a.batch, kRotatedRequests);
    const int page = block / shares, begin = block % shares * kRotatedRequests;
    const int thread = static_cast<int>(threadIdx.x);
    for (int item = thread; item < 64 * 16; item += kLayerThreads) {
        uint32_t* const to = turns + item / 16 * 32 + item % 16;
        angles(page * 64 + item / 16, item % 16 * 2, to[0], to[16]);
    }
    __syncthreads();
    const int requests = min(kRotatedRequests, a.batch - begin);
#pragma unroll 4
    for (int item = thread; item < requests * 64 * 8; item += kLayerThreads) {
        const int request = begin + item / (64 * 8), in_page = item / 8 % 64, token = page * 64 + in_page,
                  chunk = item % 8;
        if (token > a.length) continue;
        const size_t row = static_cast<size_t>(request) * a.max_len + token;
        const uint8_t* const cached = token == a.length ? a.row + request * size_t{1152} : a.cache + row * 1152;
        const uint2* const from = reinterpret_cast<const uint2*>(cached + 1024) + chunk;
        const uint2* const turn = reinterpret_cast<const uint2*>(turns + in_page * 32) + chunk;
        uint2 low = from[0], high = from[8];
        rotate_pairs(low, high, turn[0], turn[8]);
        const size_t target = static_cast<size_t>(request) * a.pages * 64 + token;
        uint2* const to = reinterpret_cast<uint2*>(a.rotary + target * 128) + chunk;
        to[0] = low;
        to[8] = high;
    }
}

/// Threads of the other work, section after section: four pairs of a query, 16 bytes of a row, a page, a length.
struct LayerSections {
    long long queries, rows, pages, lengths;

    __host__ __device__ explicit LayerSections(const LayerInputs& a)
        : queries(a.batch * 8LL * a.heads), rows(a.batch * 72LL), pages(static_cast<long long>(a.batch) * a.pages),
          lengths(a.batch) {}
    __host__ __device__ long long all() const { return queries + rows + pages + lengths; }
};

__device__ __forceinline__ void prepare_rest(const LayerInputs& a, long long at) {
    const LayerSections sections(a);
    if (at < sections.queries) {
        const long long head = at / 8;
        const int chunk = static_cast<int>(at % 8);
        const uint2* const from = reinterpret_cast<const uint2*>(a.q + head * 384 + 256) + chunk;
        uint2* const to = reinterpret_cast<uint2*>(a.queries + head * 1152 + 1024) + chunk;
        uint2 low = from[0], high = from[8], cosines, sines;
        angles(a.length, chunk * 4, cosines.x, sines.x);
        angles(a.length, chunk * 4 + 2, cosines.y, sines.y);
        rotate_pairs(low, high, cosines, sines);
        to[0] = low;
        to[8] = high;
        return;
    }
    at -= sections.queries;
    if (at < sections.rows) {
        const long long request = at / 72;
        const int chunk = static_cast<int>(at % 72);
        const size_t target = (static_cast<size_t>(request) * a.max_len + a.length) * 1152;
        reinterpret_cast<uint4*>(a.cache + target)[chunk] =
            reinterpret_cast<const uint4*>(a.row + request * 1152)[chunk];
        return;
    }
    at -= sections.rows;
    if (at < sections.pages) {
        a.block_table[at] = static_cast<int>(at / a.pages * (a.max_len / 64) + at % a.pages);
        return;
    }
    at -= sections.pages;
    if (at < sections.lengths) a.seqlens[at] = a.length + 1;
}

/// The first `rotating` blocks have the cache.
__global__ void __launch_bounds__(kLayerThreads)
    prepare_attention(const __grid_constant__ LayerInputs a, int rotating) {
    const int block = static_cast<int>(blockIdx.x);
    if (block < rotating) rotate_cached(a, block);
    else prepare_rest(a, static_cast<long long>(block - rotating) * kLayerThreads + threadIdx.x);
}

/// Returns the vendor's status.
inline int launch_prepare_attention(const LayerInputs& a, void* queue) {
    const int rotating = a.pages * ceil_div(a.batch, kRotatedRequests);
    const long long rest = ceil_div<long long>(LayerSections(a).all(), kLayerThreads);
    LAUNCH(prepare_attention, dim3(static_cast<unsigned>(rotating + rest)), dim3(kLayerThreads), 0, queue)(a, rotating);
    return LAUNCH_STATUS();
}

}  // namespace mla
