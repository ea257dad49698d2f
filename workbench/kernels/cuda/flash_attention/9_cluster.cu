// SPDX-License-Identifier: MIT
//!KERNEL summary as 7, pairs of blocks load keys and values for each other
//!KERNEL arch sm_90a
//!KERNEL step 9 K and V loaded once for two blocks
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 55-65TFLOP/s@H100
//
// Two blocks of a cluster take neighbouring tiles of queries of a head, which see the same keys but for the mask. One block's TMA
// brings K to both, the other's V. So both walk as many tiles of keys as the one that sees more, and wait for each other before a
// stage is loaded again. Whoever sees no key of a tile, or has no query, lets it pass.
//
// A block's own shared addresses carry its rank above bit 17. In a descriptor those bits would change the pitch of V: cut off.
#include "common/launch_cluster.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "tma_maps.h"
#include "wgmma_rows.h"

constexpr int kRows = 128, kTileKeys = 128, kThreads = 256, kStages = 2, kBlocks = 2;
constexpr int kQueryBytes = kRows * 128, kTileBytes = kTileKeys * 128;
constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes + 1024;
constexpr uint32_t kAddress = 0x3ffff;

template <class T>
__global__ void __launch_bounds__(kThreads) cluster_step(const Step<T> p, const __grid_constant__ Maps maps) {
    __shared__ uint64_t full[kStages];
    uint32_t query = shared_address(swizzled_shared());
    query = (query + 1023) / 1024 * 1024;
    const uint32_t stages = query + kQueryBytes;
    const int tile = blockIdx.x * kRows, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4,
              lane = threadIdx.x % 32, rank = cluster_rank();
    const int row = tile + group * 64 + warp * 16 + lane / 4;
    const int end = tile < p.queries ? p.seen_by_tile(tile, kRows) : 0;
    const int pair_end = p.seen_by_tile((blockIdx.x - rank) * kRows, kBlocks * kRows);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) mbarrier_init(shared_address(&full[i]), 1);
        mbarrier_fence_init();
    }
    cluster_barrier();
    const auto fetch = [&](int step) {  // by thread 0
        const int first = step * kTileKeys, stage = step % kStages;
        if (first >= pair_end) return;
        const bool queries = step == 0 && tile < p.queries;
        const uint32_t barrier = shared_address(&full[stage]), to = stages + stage * 2 * kTileBytes;
        mbarrier_arrive_expect(barrier, 2 * kTileBytes + (queries ? kQueryBytes : 0));
        if (queries) tma_load_5d(query, maps.query, barrier, 0, tile, 0, p.head(), p.sequence());
        constexpr uint16_t both = 3;
        if (rank == 0) tma_load_5d_multicast(to, maps.keys, barrier, 0, first, 0, p.key_head(), p.sequence(), both);
        else
            tma_load_5d_multicast(to + kTileBytes, maps.values, barrier, 0, first, 0, p.key_head(), p.sequence(), both);
    };
    if (threadIdx.x == 0) {
        for (int step = 0; step < kStages; ++step) fetch(step);
    }
    __syncwarp();
    float out[kHeadDim / 2] = {}, scores[kTileKeys / 2];
    uint32_t packed[kTileKeys / 16][4];
    SoftmaxRow rows[2];
    for (int step = 0; step * kTileKeys < pair_end; ++step) {
        const uint32_t keys = (stages + step % kStages * 2 * kTileBytes) & kAddress;
        const int first = step * kTileKeys;
        mbarrier_wait(shared_address(&full[step % kStages]), step / kStages % 2);
        if (first < end) {
            issue_scores<T, kTileKeys>(scores, (query & kAddress) + group * 64 * 128, keys);
            wgmma_wait<0>();
            wgmma_results(scores);
            const int limits[2] = {p.seen(row) - first, p.seen(row + 8) - first};
            softmax_step<T, kTileKeys>(scores, packed, out, rows, limits, lane, p.scale);
            issue_output<T, kTileKeys>(out, packed, keys + kTileBytes);
            wgmma_wait<0>();
            wgmma_results(out);
        }
        cluster_barrier();  // both blocks have read this stage
        if (threadIdx.x == 0) fetch(step + kStages);
        __syncwarp();
    }
    store_rows(p, row, out, rows, lane);
}

template <class T>
int launch(const Call& call, void* queue) {
    Maps maps;
    if (const int error = encode(&maps, call, kRows, kTileKeys); error != 0) return error;
    const int pairs = ceil_div(call.queries, kBlocks * kRows);
    const dim3 grid(static_cast<unsigned>(kBlocks * pairs), static_cast<unsigned>(call.batch * call.heads));
    return launch_cluster(cluster_step<T>, grid, kThreads, kBlocks, kSharedBytes, false, queue, call.step<T>(), maps);
}

LADDER_ENTRY(launch)
