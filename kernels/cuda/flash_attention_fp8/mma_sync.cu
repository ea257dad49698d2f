// SPDX-License-Identifier: MIT
// Attention forward from e4m3 for Ada, both products on FP8 tensor cores.
//
//!KERNEL summary FP8 mma.sync.m16n8k32 on cp.async double buffers, V by ldmatrix on byte pairs, tiles promoted to fp32
//!KERNEL arch sm_89
//
//   producer loop  attention/fp8_mma_sync.h (fp8_forward)
//   main loop      attention/fp8_mma_sync.h (fp8_forward)
//   epilogue       attention/fp8_mma_sync.h (store_code_rows)
//
// Algorithm. That of flash_attention/mma_sync.cu: a block owns a tile of query rows of one head and walks over the keys in tiles
// of 64 or 32, each warp keeps 16 rows. S = Q K^T accumulates in registers, becomes P there and, rounded to e4m3, is the A operand of
// O += P V without an exchange between lanes. K is a B operand as it lies in memory. V is not: four keys of a column belong in one
// register. A transposing ldmatrix on pairs of bytes and a byte permute for each register make it so (multiply_value_codes).
//
// Precision. Ada's FP8 adder keeps 13 bits of fraction. Scores, of head_dim products, stay in it; the problem's bound
// allows for that. A tile's keys of P V are added up from zero and promoted to fp32 by the multiply-add that corrects O anyway.
//
// Range. Weights are 2^8 times exp(score - maximum): the largest of a row is 256, of e4m3's 448. Row sums are of P before it is
// rounded.
//
// Scales of queries and keys are part of the factor that turns S into exponents; a tile of keys has one. O is in units of the
// current scale of values; where that changes, the correction of O carries the ratio.
//
//   tile      head_dim   queries x keys   warps   Q from      blocks/SM   shared memory
//   whole         64        128 x 64        8     shared          2           24 KB
//   whole        128        128 x 64        8     registers       1           48 KB
//   whole        256        128 x 32        8     registers       1           64 KB
//   few rows      64         64 x 64        4     registers       3           20 KB
//   few rows     128         64 x 64        4     registers       2           40 KB
//   few rows     256         64 x 32        4     registers       2           48 KB
//
// Few queries: heads that read the same keys share tiles, and keys are split between blocks, as in flash_attention/mma_sync.cu.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors. Results repeat to the bit.
// Limits: nothing overlaps softmax with products inside a warp. sm_90 has no such instruction: wgmma_tma.cu is for Hopper.
#include "kernel.h"

#include "attention/fp8_mma_sync.h"
#include "attention/mma_sync_launch.h"

using namespace attention;

namespace {

template <class Tile>
int launch_codes(const Fp8ForwardArguments& a, const Plan<Tile>& plan, void* workspace, void* queue) {
    return launch_kernel<Tile>(fp8_forward<Tile>, a, plan, workspace, queue);
}

/// Whole tiles, or those for few queries: where more rows than theirs would be empty, or where they all run at once and
/// ask for no splits.
template <int kHeadDim, int kKeys, int kWholeBlocks, int kFewBlocks>
int choose(Fp8ForwardArguments a, void* workspace, size_t workspace_bytes, void* queue) {
    using Whole = Fp8ForwardTile<kHeadDim, 8, kKeys, kWholeBlocks, kWholeBlocks == 1, false>;
    using Few = Fp8ForwardTile<kHeadDim, 4, kKeys, kFewBlocks, true, true>;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const bool short_queries = a.seqlen_q <= Few::kQueries;
    if (short_queries) a.pack = choose_packed(a, Few::kQueries);
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (short_queries || (few.units <= multiprocessors && few.splits == 1)) {
        return launch_codes<Few>(a, few, workspace, queue);
    }
    return launch_codes<Whole>(a, Plan<Whole>(a, multiprocessors, kWholeCost, workspace_bytes), workspace, queue);
}

}  // namespace

extern "C" int flash_attention_fp8(
    const void* q, const void* k, const void* v, const float* q_scale, const float* k_scale, const float* v_scale,
    void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int scales,
    int causal, float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    Fp8ForwardArguments a{};
    if (scales < 0 || scales > 2 ||
        !describe_forward(&a, q, k, v, o, lse, batch, seqlen_q, seqlen_k, heads_q, heads_k, causal, softmax_scale)) {
        return kUnsupportedShape;
    }
    a.q_scale = OperandScales::of(q_scale, scales, seqlen_q, heads_q);
    a.k_scale = OperandScales::of(k_scale, scales, seqlen_k, heads_k);
    a.v_scale = OperandScales::of(v_scale, scales, seqlen_k, heads_k);
    switch (head_dim) {
        case 64: return choose<64, 64, 2, 3>(a, workspace, workspace_bytes, queue);
        case 128: return choose<128, 64, 1, 2>(a, workspace, workspace_bytes, queue);
        case 256: return choose<256, 32, 1, 2>(a, workspace, workspace_bytes, queue);
        default: return kUnsupportedShape;
    }
}
