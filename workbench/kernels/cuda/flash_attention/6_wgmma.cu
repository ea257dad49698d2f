// SPDX-License-Identifier: MIT
//!KERNEL summary both products by wgmma, one warpgroup, copies by ordinary loads and stores
//!KERNEL arch sm_90a
//!KERNEL step 6 wgmma, nothing overlaps
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 25-35TFLOP/s@H100
//
// Scores stay in registers: their layout is known, and packed in pairs they are the A operand of P V. Tiles are written in the
// swizzle that wgmma reads; nothing overlaps.
#include "common/swizzle.h"
#include "ptx/ldst.h"
#include "ptx/tma.h"
#include "wgmma_rows.h"

constexpr int kRows = 64, kTileKeys = 128, kThreads = 128;
constexpr int kQueryBytes = kRows * 128, kTileBytes = kTileKeys * 128;
constexpr int kSharedBytes = kQueryBytes + 2 * kTileBytes + 1024;

/// Rows of 128 bytes in the 128-byte swizzle; rows past `count` are zero.
template <int kCount, class T, class Row>
__device__ void copy_rows(uint8_t* tile, const T* from, int count, Row row) {
    for (int i = threadIdx.x; i < kCount * 8; i += kThreads) {
        const int r = i / 8, chunk = i % 8;
        uint4 bytes = make_uint4(0, 0, 0, 0);
        if (r < count) bytes = *reinterpret_cast<const uint4*>(from + row(r) + chunk * 8);
        *reinterpret_cast<uint4*>(tile + Swizzle<8>::offset(r, chunk)) = bytes;
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) wgmma_step(const Step<T> p) {
    uint8_t* raw = swizzled_shared();
    raw += (1024 - shared_address(raw) % 1024) % 1024;
    uint8_t *const query = raw, *const keys = raw + kQueryBytes, *const values = keys + kTileBytes;
    const int tile = blockIdx.x * kRows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = tile + warp * 16 + lane / 4;
    copy_rows<kRows>(query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    float out[kHeadDim / 2] = {}, scores[kTileKeys / 2];
    uint32_t packed[kTileKeys / 16][4];
    SoftmaxRow rows[2];
    const int end = p.seen_by_tile(tile, kRows);
    for (int first = 0; first < end; first += kTileKeys) {
        copy_rows<kTileKeys>(keys, p.k, p.keys - first, [&](int r) { return p.key_row(first + r); });
        copy_rows<kTileKeys>(values, p.v, p.keys - first, [&](int r) { return p.key_row(first + r); });
        fence_async_shared();  // wgmma reads shared memory as asynchronous copies do
        __syncthreads();
        issue_scores<T, kTileKeys>(scores, shared_address(query), shared_address(keys));
        wgmma_wait<0>();
        wgmma_results(scores);
        const int limits[2] = {p.seen(row) - first, p.seen(row + 8) - first};
        softmax_step<T, kTileKeys>(scores, packed, out, rows, limits, lane, p.scale);
        issue_output<T, kTileKeys>(out, packed, shared_address(values));
        wgmma_wait<0>();
        wgmma_results(out);
        __syncthreads();
    }
    store_rows(p, row, out, rows, lane);
}

LADDER_STEP(wgmma_step, kRows, kThreads, kSharedBytes)
