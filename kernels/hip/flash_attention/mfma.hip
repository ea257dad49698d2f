// SPDX-License-Identifier: MIT
//!KERNEL summary FlashAttention forward on MFMA 16x16x16, bf16 and fp16: two waves on a SIMD take turns, values transposed in registers
//!KERNEL arch gfx942
//!KERNEL tune QUERY_TILES=2,1
//
// FlashAttention (forward) for MI300 (CDNA3): O and the natural-log LSE, causal (bottom-right) or full, grouped heads.
//
// Algorithm. A workgroup of eight waves owns 256 queries of one head; each wave keeps its 32 in registers (QUERY_TILES times
// 16; 16 for head_dim 256) and walks the keys in tiles. Everything is transposed: s^T = k q^T makes keys the rows and
// queries the columns of the MFMA results, so a lane's scores belong to one query, the softmax needs two lane exchanges, and
// the probabilities already lie as the second operand of o^T = v^T p^T. Scores and sums are fp32, probabilities 16-bit.
//
// A SIMD has two waves, one of them half a tile ahead: while one multiplies (values of a tile, then keys of the next one),
// the other takes its scores and brings the next tile. One barrier per tile, after which all multiply what lies in LDS.
// Maxima are compared between lanes, and sums rescaled, only where a score exceeds the largest one so far by 2^4.
//
// K tiles go to LDS as they are, V tiles transposed (4 x 8 values in registers, v_perm_b32), both XOR-swizzled, in two
// buffers each. The waves ahead fetch K and the others V, one tile before it is stored. LDS reads run four ahead of the
// products. Tiles beyond a wave's causal limit are skipped, only the tiles that cross a limit are masked; workgroups with
// most keys, of all heads, start first. Without a mask, workgroups that are left after whole rounds of the compute units come
// with half as many queries; so do all if they are few.
//
//   head_dim  threads  queries  keys per tile  LDS bytes  workgroups per compute unit
//   64        512      256      128            65 536     1
//   128       512      256      64             65 536     1
//   256       512      128      32             65 536     1
//
// Shapes. head_dim 64, 128, 256; any sequence lengths; heads_k divides heads_q; rows that see no key give 0 and -inf.
// softmax_scale must be positive. All pointers 16-byte aligned. Workspace is not used.
//
// Limits. Short queries on long keys leave compute units idle: keys are not split. Clang
// before 20 splits the vector registers into two fixed halves and spills with two query tiles: use QUERY_TILES=1 there.

#include "kernel.h"
#include "ceil_div.h"
#include "launch.h"

#include "attention/forward.h"
#include "tile/grid.h"

namespace {

struct Attention {
    const uint16_t* q;
    const uint16_t* k;
    const uint16_t* v;
    uint16_t* o;
    float* lse;
    int seqlen_q, seqlen_k, heads_q, heads_k;
    int causal;
    float scale;       // softmax_scale * log2(e)
    int query_blocks;  // workgroups per head
    int first;         // workgroup of this launch; 0 with a mask
};

template <class Half, class S>
__global__ void __launch_bounds__(S::kThreads, 2) attend(Attention problem) {
    constexpr int D = S::kD;
    __shared__ KeyValueTiles<S> tiles;

    // With a mask, blocks with most keys come first.
    const auto [any_head, block] = head_block(problem.query_blocks, problem.causal, problem.first);
    const int batch = uniform(any_head / problem.heads_q);
    const int head = any_head - batch * problem.heads_q;
    const int head_k = uniform(head / (problem.heads_q / problem.heads_k));

    const size_t queries =
        (static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_q) * static_cast<size_t>(problem.heads_q) +
         static_cast<size_t>(head)) *
        D;
    const size_t keys =
        (static_cast<size_t>(batch) * static_cast<size_t>(problem.seqlen_k) * static_cast<size_t>(problem.heads_k) +
         static_cast<size_t>(head_k)) *
        D;
    const HeadRows rows = {
        problem.q + queries,
        problem.k + keys,
        problem.v + keys,
        problem.o + queries,
        problem.lse + static_cast<size_t>(any_head) * static_cast<size_t>(problem.seqlen_q),
        problem.seqlen_q,
        problem.seqlen_k,
        problem.heads_q * D * 2,
        problem.heads_k * D * 2,
        problem.causal,
        problem.scale};
    attend_queries<Half>(tiles, rows, block * S::kQueries);
}

template <class Half, class S>
void launch(const Attention& problem, long long workgroups, void* queue) {
    LAUNCH((attend<Half, S>), dim3(static_cast<unsigned>(workgroups)), dim3(S::kThreads), 0, queue)(problem);
}

/// Workgroups that come after all full rounds of the compute units have half as many queries, if those then fit one round.
template <class Half, int D>
int launch(Attention problem, int batch, void* queue) {
    using S = ForwardShape<D>;
    problem.query_blocks = ceil_div(problem.seqlen_q, S::kQueries);
    const long long blocks = static_cast<long long>(problem.query_blocks) * problem.heads_q * batch;
    if (2 * blocks * S::kThreads > 0xffffffffLL) return kUnsupportedShape;  // a grid has 32 bits of threads
    const long long late = blocks < kComputeUnits || !problem.causal ? blocks % kComputeUnits : 0;
    const bool halves = S::kQueryTiles == 2 && 2 * late <= kComputeUnits;
    const long long whole = halves ? blocks - late : blocks;
    if (whole > 0) launch<Half, S>(problem, whole, queue);
    if (whole < blocks) {
        problem.query_blocks *= 2;
        problem.first = static_cast<int>(2 * whole);
        launch<Half, ForwardShape<D, 1>>(problem, 2 * late, queue);
    }
    return LAUNCH_STATUS();
}

template <class Half>
int launch(const Attention& problem, int batch, int head_dim, void* queue) {
    switch (head_dim) {
        case 64: return launch<Half, 64>(problem, batch, queue);
        case 128: return launch<Half, 128>(problem, batch, queue);
        case 256: return launch<Half, 256>(problem, batch, queue);
        default: return kUnsupportedShape;
    }
}

}  // namespace

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k,
    int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    (void)workspace, (void)workspace_bytes;
    constexpr int kMaxHeads = 1 << 14;  // 128 rows of all heads are addressed with 31 bits
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0 ||
        heads_q > kMaxHeads || !(softmax_scale > 0.0f))
        return kUnsupportedShape;
    const Attention problem = {
        static_cast<const uint16_t*>(q),
        static_cast<const uint16_t*>(k),
        static_cast<const uint16_t*>(v),
        static_cast<uint16_t*>(o),
        lse,
        seqlen_q,
        seqlen_k,
        heads_q,
        heads_k,
        causal,
        softmax_scale * kLog2E,
        0,
        0};
    return half ? launch<Fp16>(problem, batch, head_dim, queue) : launch<Bf16>(problem, batch, head_dim, queue);
}
