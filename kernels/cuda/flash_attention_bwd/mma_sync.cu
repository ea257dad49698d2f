// SPDX-License-Identifier: MIT
// Attention backward on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary attention backward on mma.sync.m16n8k16, a pass by queries and one by keys: deterministic, no atomics
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  attention/mma_sync_backward.h (backward_queries, backward_keys)
//   main loop      attention/mma_sync_backward.h (backward_queries, backward_keys)
//   epilogue       attention/mma_sync_backward.h (store_rows)
//
// Algorithm. Two kernels. `backward_queries`: a block owns 128 query rows of one head, with Q and dO in shared memory, and
// walks over the keys: S = Q K^T and dP = dO V^T accumulate in registers, P = exp2(S * scale - lse), dS = P (dP - delta)
// is rounded in place, where two neighbouring accumulators already are the A fragment of dQ += dS K. It also computes
// delta = rowsum(dO * O) and leaves it in the workspace, with lse in base 2. `backward_keys`: a block owns 128 keys of one
// key head and walks over the queries of all heads of the group with everything transposed: S^T = K Q^T, dP^T = V dO^T, so
// that P^T and dS^T are the A fragments of dV += P^T dO and dK += dS^T Q. P and dS never leave the registers, every sum has
// one owner and one order, and groups of heads need nothing extra.
//
// Cost. Seven products where a single pass needs five: S and dP are computed twice, in exchange for no atomic additions to
// dQ in fp32, no zeroing before and no conversion after them.
//
//   head_dim   fixed x moving rows   warps x rows          shared memory
//      64           128 x 64            8 x 16                 65 KB
//     128           128 x 32            8 x 16                 97 KB
//     256            64 x 16            4 x 16, keys twice     98 KB
//
// At head dimension 256 registers hold dK or dV of 16 keys. There two warps share them: one computes S^T, P and dV, the other
// dP^T, dS and dK; P passes between them through shared memory, rounded.
//
// Memory. Moving tiles are double-buffered: the copy of tile n+1 (cp.async, 16 bytes, zero-fill behind the end) runs under
// the products of tile n; one barrier per tile. Rows are swizzled by 16-byte chunks (common/wide_rows.h).
//
// Shapes: all of kernel.h with 16-byte aligned tensors.
// Limits: on Hopper a third of wgmma_tma.cu's rate (benchmarks/flash_attention_bwd.md); not yet run on Ada.
#include "kernel.h"

#include <cstddef>
#include <cstdint>

#include "attention/backward_call.h"
#include "attention/mma_sync_backward.h"
#include "ceil_div.h"
#include "launch.h"
#include "status.h"

using namespace attention;

namespace {

template <typename Tile>
int launch(const BackwardCall& call, void* queue) {
    static_assert(Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    const size_t rows = static_cast<size_t>(call.batch) * call.heads * call.queries;
    if (call.workspace_bytes < 2 * rows * sizeof(float)) return kWorkspaceTooSmall;
    const auto bytes = [](const void* tensor) { return static_cast<const uint8_t*>(tensor); };
    float* const numbers = static_cast<float*>(call.workspace);
    const BackwardArguments a = {
        bytes(call.q),
        bytes(call.k),
        bytes(call.v),
        bytes(call.o),
        bytes(call.dout),
        call.lse,
        static_cast<uint8_t*>(call.dq),
        static_cast<uint8_t*>(call.dk),
        static_cast<uint8_t*>(call.dv),
        numbers,
        numbers + rows,
        call.batch,
        call.queries,
        call.keys,
        call.heads,
        call.key_heads,
        call.causal,
        call.softmax_scale};
    const auto by_queries = backward_queries<Tile>;
    const auto by_keys = backward_keys<Tile>;
    cudaError_t status =
        cudaFuncSetAttribute(by_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(by_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    }
    if (status != cudaSuccess) return status;
    const long long query_tiles = static_cast<long long>(a.batch) * a.heads_q * ceil_div(a.seqlen_q, Tile::kFixed);
    const long long key_tiles = static_cast<long long>(a.batch) * a.heads_k * ceil_div(a.seqlen_k, Tile::kFixed);
    if (query_tiles > 0x7fffffffLL || key_tiles > 0x7fffffffLL) return kUnsupportedShape;
    LAUNCH(by_queries, dim3(static_cast<unsigned>(query_tiles)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk) return launched;
    LAUNCH(by_keys, dim3(static_cast<unsigned>(key_tiles)), dim3(Tile::kKeyThreads), Tile::kSharedBytes, queue)(a);
    return LAUNCH_STATUS();
}

template <typename Element>
int dispatch(const BackwardCall& a, void* queue) {
    switch (a.head_dim) {
        case 64: return launch<BackwardTile<Element, 64, 8, 64>>(a, queue);
        case 128: return launch<BackwardTile<Element, 128, 8, 32>>(a, queue);
        case 256: return launch<BackwardTile<Element, 256, 4, 16>>(a, queue);
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
