// SPDX-License-Identifier: MIT
//!KERNEL summary one pass by keys: TMA rings of Q and dO, wgmma with P and dS in registers, dQ by a warpgroup of its own
//!KERNEL arch sm_90a
//!KERNEL tune IN_ORDER=0,1
//!KERNEL tune STAGGERED=1,0
//!KERNEL tune TENDED_KEYS=2048,1,1000000
//!KERNEL tune EARLY_START=1,0
//
//   producer loop  attention/backward.h (load_queries, load_others)
//   main loop      attention/backward_mainloop.h (consume_keys), attention/backward_roles.h (consume_as),
//                  attention/backward.h (multiply_queries)
//   epilogue       attention/backward_mainloop.h (store_accumulators), attention/backward_rows.h (write_queries)
//
// Attention backward for Hopper.
//
// Algorithm. Three kernels. `prepare_rows` computes delta = rowsum(dO * O), takes lse to base 2 and clears sums and counts.
// `wgmma_flash_backward` gives a block tiles of 128 keys of one key head. Two warpgroups have 64 of the keys each, walk over
// the queries of all heads of the group and work transposed: S^T = K Q^T and dP^T = V dO^T by wgmma, P^T = exp2(S^T * scale -
// lse) and dS^T = P^T (dP^T - delta) in registers, where rounded pairs are the A operands of dV += P^T dO and dK += dS^T Q. dS
// also goes to shared memory, transposed by stmatrix; a third warpgroup multiplies dQ = dS K of all 128 keys and has TMA add
// it to fp32 sums in L2. `finish_rows` scales and rounds them. Five products; groups of heads need nothing extra.
//
// Tasks. Blocks are persistent and take tiles of keys from a counter, section by section: as many heads as give every block a
// tile, so that what they read and add to stays in L2, and some more at the end, where causal tiles, the long ones first, let
// blocks end together. Where tiles are too few for the multiprocessors, as those of a single key head, a task is a part of a
// tile's work, some heads of the group or some queries, and parts add dK and dV in fp32 in the workspace; `finish_rows` rounds.
// So are the last tiles where there is no mask: those left over when all multiprocessors have had as many as each other.
//
// Overlap. The key warpgroups share nothing but the rings, so one's exponentials meet the other's products, and the next S is
// issued before dK. dQ lags behind them by up to two steps. The next tile's queries load while the last one ends, and so do
// its keys and values where there is room for two tiles of them; else they come to L2 meanwhile. One warp of a block, which
// would have nothing to do, clears the sums that are needed two sections later and, where tiles take long enough, writes dq of
// the section before: `prepare_rows` clears the sums of the first two sections, and `finish_rows` writes dq of the last one.
//
//   head_dim   keys x queries   keys + values   ring     registers: keys, dQ, loads   shared memory
//      64        128 x 128          2 + 2       2 + 2          208, 64, 32               226 KB
//     128        128 x 64           1 + 1       3 + 3          208, 64, 32               226 KB
//     256         64 x 64           1 + 1       2 + 2          208, 64, 32               226 KB
//
// Roles. At head dimension 256 registers hold dK or dV of 64 keys, not both. There the two warpgroups have the same 64 keys: one
// multiplies S^T and dV, the other dP^T and dK, and rounded P passes between them through shared memory. No product is done
// twice; each product by rows comes in two halves, as ptxas takes no instruction that needs more registers than a launch gives.
// Shared memory is what a step waits for, so the warps of dQ keep dS in registers for all columns.
//
// Sums. dQ, and dK and dV of tiles in parts, are added in the order in which blocks come: results differ in the last bits
// from run to run. IN_ORDER makes them
// repeat: key tiles take turns at each tile of queries, and a thread that waits for them adds dQ. Causal tiles begin with the
// last keys and go up, so that nobody waits long; the last section's begin with the first keys and go down, so that the
// longest do not end last. STAGGERED lets the key tiles of a head begin at different queries (when not
// IN_ORDER), so that blocks do not add to the same sums at the same time; not causal ones of 1025 to 4096 keys at head
// dimension 128, which were faster without.
//
// fp16. Weights are kept 2^10 times as large: dS is made of the rounded ones, and small ones lose bits in fp16.
//
// Shapes: all of kernel.h with 16-byte aligned tensors and the problem's workspace.
#include "kernel.h"

#include <cstddef>

#include "attention/backward.h"
#include "attention/backward_call.h"
#include "status.h"

using namespace attention;

namespace {

constexpr Order kOrder = IN_ORDER ? Order::kUp : STAGGERED ? Order::kAround : Order::kDown;

template <class Element>
using D64 = BackwardShape<Element, 64, 128, 2, 2>;
template <class Element>
using D128 = BackwardShape<Element, 128, 64, 3, 1>;
template <class Element>
using D256 = BackwardShape<Element, 256, 64, 2, 1>;

template <class Element>
int dispatch(const BackwardCall& a, void* queue) {
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return static_cast<int>(status);
    switch (a.head_dim) {
        case 64: return launch_flash_backward<D64<Element>, kOrder>(a, multiprocessors, queue);
        case 128: return launch_flash_backward<D128<Element>, kOrder>(a, multiprocessors, queue);
        case 256: return launch_flash_backward<D256<Element>, kOrder>(a, multiprocessors, queue);
        default: return kUnsupportedShape;
    }
}

}  // namespace

extern "C" int flash_attention_bwd(
    const void* q, const void* k, const void* v, const void* o, const void* dout, const float* lse, void* dq, void* dk,
    void* dv, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int half, int causal,
    float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    const BackwardCall a = {q,           k,
                            v,           o,
                            dout,        lse,
                            dq,          dk,
                            dv,          batch,
                            seqlen_q,    seqlen_k,
                            heads_q,     heads_k,
                            head_dim,    half != 0,
                            causal != 0, softmax_scale,
                            workspace,   workspace_bytes};
    if (!a.sound()) return kUnsupportedShape;
    return a.half ? dispatch<Fp16>(a, queue) : dispatch<Bf16>(a, queue);
}
