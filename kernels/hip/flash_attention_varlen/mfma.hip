// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention forward over packed sequences on MFMA 16x16x16: blocks of queries found by a scan, longest first
//!KERNEL arch gfx942
//!KERNEL tune QUERY_TILES=2,1
//
// FlashAttention (forward) of sequences of different lengths for MI300 (CDNA3): O and the natural-log LSE, causal
// (bottom-right) or full, grouped heads.
//
// Algorithm. A workgroup takes 256 queries (128 for head_dim 256) of one head of one sequence, as in
// flash_attention/mfma.hip, of which this uses all that works on tiles. Lengths are on the device only: the grid has as many
// workgroups as blocks there can be, total_q / 256 + batch for each head. Each finds its block by a prefix sum over the
// sequences' blocks, 64 sequences at a time; those without one end. Where more workgroups come than run at once, a first
// kernel sorts up to 1024 sequences by keys, so that the blocks with most keys start first and short ones fill the gaps.
//
// Shapes. head_dim 64, 128, 256; any numbers of queries and keys; heads_k divides heads_q; rows that see no key give 0 and
// -inf. softmax_scale must be positive. All pointers 16-byte aligned. Keys that no query sees are not read.
// Workspace: 4 bytes per sequence, else nothing is sorted.
//
// Limits. Short queries on long keys leave compute units idle: keys are not split, and heads that share keys do not share a
// workgroup. Clang before 20 splits the vector registers into two fixed halves and spills with two query tiles: use
// QUERY_TILES=1 there.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "attention/forward.h"
#include "tile/grid.h"
#include "tile/packed_sequences.h"

namespace {

struct Attention {
    const uint16_t* q;
    const uint16_t* k;
    const uint16_t* v;
    uint16_t* o;
    float* lse;
    SequenceStarts starts;
    const int* order;  // of sequences; null: as they are
    int total_q, heads_q, heads_k;
    int causal;
    float scale;      // softmax_scale * log2(e)
    int most_blocks;  // of queries, of one head
};

/// Where a row of `heads` * D values begins.
template <int D>
__device__ __forceinline__ size_t row_of(int row, int heads, int head) {
    return (static_cast<size_t>(row) * static_cast<size_t>(heads) + static_cast<size_t>(head)) * D;
}

template <class Half, int D>
__global__ void __launch_bounds__(ForwardShape<D>::kThreads, 2) attend(Attention problem) {
    using S = ForwardShape<D>;
    __shared__ KeyValueTiles<S> tiles;

    // All blocks of a head on one die, whose L2 then holds its K and V.
    const int index = die_contiguous(static_cast<int>(gridDim.x));
    const int head = uniform(index / problem.most_blocks);
    const SequenceBlock block =
        find_block<S::kQueries>(problem.starts, problem.order, index - head * problem.most_blocks);
    if (block.sequence < 0) return;
    const int head_k = uniform(head / (problem.heads_q / problem.heads_k));
    const int first_query = uniform(problem.starts.q[block.sequence]);
    const int first_key = uniform(problem.starts.k[block.sequence]);
    const size_t queries = row_of<D>(first_query, problem.heads_q, head);
    const size_t keys = row_of<D>(first_key, problem.heads_k, head_k);
    const HeadRows rows = {
        problem.q + queries,
        problem.k + keys,
        problem.v + keys,
        problem.o + queries,
        problem.lse + static_cast<size_t>(head) * static_cast<size_t>(problem.total_q) + first_query,
        uniform(problem.starts.queries(block.sequence)),
        uniform(problem.starts.keys(block.sequence)),
        problem.heads_q * D * 2,
        problem.heads_k * D * 2,
        problem.causal,
        problem.scale};
    attend_queries<Half>(tiles, rows, block.first);
}

template <class Half, int D>
int launch(Attention problem, int* workspace, void* queue) {
    using S = ForwardShape<D>;
    const int batch = problem.starts.batch;
    problem.most_blocks =
        static_cast<int>((problem.total_q + static_cast<long long>(batch) * (S::kQueries - 1)) / S::kQueries);
    const long long blocks = static_cast<long long>(problem.most_blocks) * problem.heads_q;
    if (blocks * S::kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    if (workspace && batch > 1 && batch <= kMostSorted && blocks > kComputeUnits) {
        LAUNCH(sort_by_keys, dim3(1), dim3(kMostSorted), 0, queue)(problem.starts, workspace);
        problem.order = workspace;
    }
    LAUNCH((attend<Half, D>), dim3(static_cast<unsigned>(blocks)), dim3(S::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

template <class Half>
int launch(const Attention& problem, int head_dim, int* workspace, void* queue) {
    switch (head_dim) {
        case 64: return launch<Half, 64>(problem, workspace, queue);
        case 128: return launch<Half, 128>(problem, workspace, queue);
        case 256: return launch<Half, 256>(problem, workspace, queue);
        default: return kUnsupportedShape;
    }
}

}  // namespace

extern "C" int flash_attention_varlen(
    const void* q, const void* k, const void* v, const int* cu_seqlens_q, const int* cu_seqlens_k, void* o, float* lse,
    int batch, int total_q, int total_k, int max_seqlen_q, int max_seqlen_k, int heads_q, int heads_k, int head_dim,
    int half, int causal, float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    (void)total_k, (void)max_seqlen_q, (void)max_seqlen_k;
    constexpr int kMaxHeads = 1 << 14;  // 128 rows of all heads are addressed with 31 bits
    constexpr int kMaxQueries = 1 << 30;
    if (batch < 1 || batch > kMaxQueries / 128 || total_q < 0 || total_q > kMaxQueries || heads_k < 1 || heads_q < 1 ||
        heads_q % heads_k != 0 || heads_q > kMaxHeads || !(softmax_scale > 0.0f))
        return kUnsupportedShape;
    if (total_q == 0) return kOk;
    const Attention problem = {
        static_cast<const uint16_t*>(q),
        static_cast<const uint16_t*>(k),
        static_cast<const uint16_t*>(v),
        static_cast<uint16_t*>(o),
        lse,
        {cu_seqlens_q, cu_seqlens_k, batch},
        nullptr,
        total_q,
        heads_q,
        heads_k,
        causal,
        softmax_scale * kLog2E,
        0};
    const bool room = workspace_bytes >= static_cast<size_t>(batch) * sizeof(int);
    int* order = room ? static_cast<int*>(workspace) : nullptr;
    return half ? launch<Fp16>(problem, head_dim, order, queue) : launch<Bf16>(problem, head_dim, order, queue);
}
