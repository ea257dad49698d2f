// SPDX-License-Identifier: MIT
// MLA decode over an e4m3 cache on wgmma: tokens are the rows of both products, codes reach them through registers as fp16.
//
//!KERNEL summary split-KV MLA decode over e4m3 codes on wgmma.m64nNk16.f16 with A in registers; pages by bulk copies
//!KERNEL arch sm_90a
//!KERNEL tune FEW_SLACK=3,0
//!KERNEL tune EARLY_START=1,0
#include "kernel.h"

#include <cstdint>

#include "tile/wgmma_coded.h"
#include "tile/wgmma_coded_wide.h"

#ifndef FEW_SLACK
#define FEW_SLACK 3  // pages by which chunks may grow so that equal requests need not be merged
#endif
#ifndef EARLY_START
#define EARLY_START 1  // kernels start beside the end of the one before
#endif
#ifndef SLOTS16
#define SLOTS16 9
#endif
#ifndef WIDE
#define WIDE 1
#endif

namespace {

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    using Rows16 = CodedPages<1, SLOTS16>;
    if (batch < 1 || seqlen_q < 1 || heads_q < 1 || num_blocks < 1 || max_blocks_per_seq < 1) return kUnsupportedShape;
    // The line of all pages is counted in int.
    if (static_cast<long long>(batch) * (max_blocks_per_seq + 2LL) > (1 << 28)) return kUnsupportedShape;
    const long long rows = static_cast<long long>(seqlen_q) * heads_q;
    if (rows % 16 != 0 || rows > (1 << 20) || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(kv_cache) || !aligned(o) || !aligned(workspace)) return kUnsupportedShape;
    CodedArguments<PageSchedule> a{};
    a.q = static_cast<const uint8_t*>(q);
    a.cache = static_cast<const uint8_t*>(kv_cache);
    a.block_table = block_table;
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.schedule.seqlens = seqlens;
    a.schedule.batch = batch;
    a.schedule.longest = max_blocks_per_seq * CodedRow::kPage;
    a.seqlen_q = seqlen_q;
    a.heads = heads_q;
    a.max_blocks = max_blocks_per_seq;
    a.causal = causal != 0;
    a.scale = softmax_scale * kLog2E;
#if WIDE
    using Rows64 = CodedWide<64, 6>;
    using Rows32 = CodedWide<32, 8>;
    if (rows % 64 == 0) {
        return launch_coded_pages<Rows64>(
            coded_wide<Rows64>, a, FEW_SLACK, EARLY_START != 0, workspace, workspace_bytes, queue);
    }
    if (rows % 32 == 0) {
        return launch_coded_pages<Rows32>(
            coded_wide<Rows32>, a, FEW_SLACK, EARLY_START != 0, workspace, workspace_bytes, queue);
    }
#endif
    return launch_coded_pages<Rows16>(coded_pages<Rows16>, a, FEW_SLACK, EARLY_START != 0, workspace, workspace_bytes, queue);
}
