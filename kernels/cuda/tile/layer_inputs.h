// SPDX-License-Identifier: MIT
// The kernel in front of the attention of an MLA layer: everything between its projections, in one launch.
//
// Sections of its work, one after the other: cosines and sines of all positions; the rotary columns of the queries, rotated
// to the newest position and put behind their latent ones; the newest token's row, put into the cache; and the cache, which
// is one array per request, described as pages in order.
#pragma once

#include <cstdint>

#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/wgmma_latent_rotate.h"

struct LayerInputs {
    const uint8_t* q;         // [batch, heads, 192] bf16: 128 columns that are not rotated, 64 that are
    uint8_t* queries;         // [batch, heads, 576] bf16: the last 64 columns are written
    const uint8_t* row;       // [batch, 576] bf16
    uint8_t* cache;           // [batch, max_len, 576] bf16: row `length` is written
    uint8_t* rotations;       // [pages * 64, 64] bf16: 32 cosines, 32 sines
    int* block_table;         // [batch, pages]
    int* seqlens;             // [batch]
    int batch, heads, length, max_len, pages;
};

/// 9984^(-i/32) in bf16: RoPE's 10000 is 9984 in bf16, and so is everything that follows from it.
__device__ constexpr uint16_t kFrequencies[32] = {
    0x3f80, 0x3f40, 0x3f10, 0x3ed8, 0x3ea2, 0x3e73, 0x3e36, 0x3e09, 0x3dcd, 0x3d9a, 0x3d66, 0x3d2d, 0x3d02, 0x3cc2, 0x3c92,
    0x3c5b, 0x3c24, 0x3bf6, 0x3bb8, 0x3b8a, 0x3b4f, 0x3b1c, 0x3ae9, 0x3aaf, 0x3a83, 0x3a45, 0x3a14, 0x39dd, 0x39a6, 0x3979,
    0x393b, 0x390c};

/// Round to bf16 and back.
__device__ __forceinline__ float through_bf16(float x) { return bf16_low(Bf16::pack(x, 0.0f)); }

/// The angles of pairs `pair` and `pair` + 1 at a position, whose cosines and sines are packed in bf16.
__device__ __forceinline__ void angles(int position, int pair, uint32_t& cosines, uint32_t& sines) {
    const float at = through_bf16(static_cast<float>(position));
    const float low = through_bf16(at * bf16_low(kFrequencies[pair]));
    const float high = through_bf16(at * bf16_low(kFrequencies[pair + 1]));
    cosines = Bf16::pack(cosf(low), cosf(high));
    sines = Bf16::pack(sinf(low), sinf(high));
}

constexpr int kLayerThreads = 256;

/// Threads of work: two pairs' angles, four pairs of a query, 16 bytes of a row, a page or a length.
struct LayerSections {
    long long angles, queries, rows, pages, lengths;

    __host__ __device__ explicit LayerSections(const LayerInputs& a)
        : angles(a.pages * 64LL * 16), queries(a.batch * 8LL * a.heads), rows(a.batch * 72LL),
          pages(static_cast<long long>(a.batch) * a.pages), lengths(a.batch) {}
    __host__ __device__ long long all() const { return angles + queries + rows + pages + lengths; }
};

__global__ void __launch_bounds__(kLayerThreads) prepare_attention(const __grid_constant__ LayerInputs a) {
    const LayerSections sections(a);
    long long at = static_cast<long long>(blockIdx.x) * kLayerThreads + threadIdx.x;
    if (at < sections.angles) {
        const int position = static_cast<int>(at / 16), pair = static_cast<int>(at % 16) * 2;
        uint32_t* const to = reinterpret_cast<uint32_t*>(a.rotations + static_cast<size_t>(position) * 128) + pair / 2;
        angles(position, pair, to[0], to[16]);
        return;
    }
    at -= sections.angles;
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
        reinterpret_cast<uint4*>(a.cache + target)[chunk] = reinterpret_cast<const uint4*>(a.row + request * 1152)[chunk];
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

constexpr int kRotatedRequests = 8;  // of a block of rotate_cache

/// The rotary columns of all tokens up to the newest, rotated, in an array of their own: `rotary` [batch, pages * 64, 64] bf16.
/// Rows behind the newest token are not written. A block takes a page's positions of some requests.
__global__ void __launch_bounds__(kLayerThreads) rotate_cache(
    const __grid_constant__ LayerInputs a, uint8_t* rotary, int blocks_per_page) {
    __shared__ uint32_t turns[64 * 32];  // of a position 16 words of cosines, 16 of sines
    const int page = static_cast<int>(blockIdx.x) / blocks_per_page;
    const int first = static_cast<int>(blockIdx.x) % blocks_per_page * kRotatedRequests;
    const int thread = static_cast<int>(threadIdx.x);
    for (int item = thread; item < 64 * 16; item += kLayerThreads) {
        uint32_t* const to = turns + item / 16 * 32 + item % 16;
        angles(page * 64 + item / 16, item % 16 * 2, to[0], to[16]);
    }
    __syncthreads();
    for (int request = first; request < min(first + kRotatedRequests, a.batch); ++request) {
#pragma unroll
        for (int item = thread; item < 64 * 8; item += kLayerThreads) {
            const int token = page * 64 + item / 8, chunk = item % 8;
            if (token > a.length) continue;
            const size_t row = static_cast<size_t>(request) * a.max_len + token;
            const uint8_t* const cached = token == a.length ? a.row + request * size_t{1152} : a.cache + row * 1152;
            const uint2* const from = reinterpret_cast<const uint2*>(cached + 1024) + chunk;
            uint2 low = from[0], high = from[8];
            const uint2* const turn = reinterpret_cast<const uint2*>(turns + item / 8 * 32) + chunk;
            rotate_pairs(low, high, turn[0], turn[8]);
            const size_t target = static_cast<size_t>(request) * a.pages * 64 + token;
            uint2* const to = reinterpret_cast<uint2*>(rotary + target * 128) + chunk;
            to[0] = low;
            to[8] = high;
        }
    }
}

/// Returns the vendor's status.
inline int launch_rotate_cache(const LayerInputs& a, uint8_t* rotary, void* queue) {
    const int blocks_per_page = ceil_div(a.batch, kRotatedRequests);
    LAUNCH(rotate_cache, dim3(static_cast<unsigned>(a.pages * blocks_per_page)), dim3(kLayerThreads), 0, queue)
    (a, rotary, blocks_per_page);
    return LAUNCH_STATUS();
}

/// Returns the vendor's status.
inline int launch_prepare_attention(const LayerInputs& a, void* queue) {
    const long long blocks = ceil_div<long long>(LayerSections(a).all(), kLayerThreads);
    LAUNCH(prepare_attention, dim3(static_cast<unsigned>(blocks)), dim3(kLayerThreads), 0, queue)(a);
    return LAUNCH_STATUS();
}
