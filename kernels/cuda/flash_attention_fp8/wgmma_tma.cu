// SPDX-License-Identifier: MIT
//!KERNEL summary FP8 wgmma on TMA rings, V transposed beside the first tiles, P in registers as it comes, scales in the exponent
//!KERNEL arch sm_90a
//!KERNEL tune SLACK_TENTHS=18,0
//!KERNEL tune STAGES=3,2
//!KERNEL tune PING_PONG_128=0,1
//!KERNEL tune COUNT=1,0
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune IN_BLOCK=1,0,2
//!KERNEL tune TAILS=1,0
//!KERNEL define ONLY_DIM=0
//
//   producer loop  attention/fp8_forward.h (produce_fp8_flash)
//   main loop      attention/fp8_mainloop.h (consume_fp8_flash)
//   epilogue       attention/fp8_softmax.h (store_fp8_rows)
//
// Attention forward from e4m3 for Hopper, both products on FP8 tensor cores.
//
// Algorithm. A block holds a tile of query rows of one head and walks over the keys from the last it sees to the first. One
// thread has TMA fill rings of Q, K and V and announces tiles. Consumer warpgroups of 64 rows each multiply S = Q K^T (wgmma),
// turn S into P in registers, which rounded to e4m3 is the A operand of O += P V.
//
// V. FP8 wgmma reads its operands with the summed dimension contiguous, here the keys: V has to be transposed. Three warps of
// each block do it, in place (attention/fp8_transpose.h). At head_dim 128 and 256 all blocks share the work: a block takes the
// next piece of V, transposes it and stores it in the workspace; a count tells who needs it that it is there
// (attention/fp8_forward.h, transpose_fp8_pieces). With few queries, few keys, without a workspace, and at head_dim 64, where
// exponentials rule, each block transposes the tiles it needs.
// Either way each 16 keys come out as 0 1 8 9, 2 3 10 11, ...: the order in which the accumulators of S lie in the registers of an
// A operand. So P needs no exchange between lanes.
//
// Range. P is scaled so that a row's largest lies between 2^7 and 2^8.8 (e4m3 ends at 448). The maximum follows only when a
// score exceeds it by 1.8 in base 2; most steps then correct nothing. Row sums are of P before it is rounded.
//
// Scales of queries and keys are part of the factor that turns S into exponents. That of values is applied at the end, or, where
// it changes by block, added to the exponent as its logarithm: O stays one accumulator, and the largest P V, not P, bounds the
// range. Blocks of 128 keys are one step then, whose scales the producer puts into shared memory.
//
//   head_dim  mask, keys      queries x keys   turns   Q from      V transposed   maxima   order of tiles
//       64    full                192 x 128   yes     registers   in the block   threes   persistent
//       64    full, to 4096       192 x 128   no      registers   in the block   threes   persistent; tails of 64
//       64    causal              128 x 128   yes     registers   in the block            count (above 1024 queries: 192, threes)
//      128    full                128 x 192   no      registers   shared         threes   persistent; tails of 64 and 128
//      128    full, to 1024       128 x 128   yes     registers   in the block   threes   persistent; tails of 64
//      128    causal              128 x 192   no      registers   shared         threes   count
//      128    causal, to 2048     128 x 128   no      registers   in the block   threes   count
//      256    full                128 x 128   yes     shared      shared         threes   persistent
//      256    causal              128 x 128   yes     shared      shared         threes   count
//      256    full, to 1280       128 x 128   yes     shared      in the block   threes   persistent
//      256    causal, to 3072     128 x 128   yes     shared      in the block   threes   count
//      all    any                  64 x 128           shared      in the block            a block per tile: few queries, no workspace
//
// (The last one has 64 keys at head_dim 256.)
//
// Persistent: as many blocks as multiprocessors, with equal shares; pairs: of a long and a short tile. Count: who is free takes
// the longest tile left, by a count in the workspace.
//
// Tails: what is left of the keys behind the last whole step, if no more than so many, is multiplied by itself, in
// instances of their own. Where V is shared these have three stages of keys and values (STAGES), the others two.
//
// Threes: maxima are looked for three at a time, and lanes compare theirs only where a vote finds one that rises.
//
// With scales per block: 192 x 128 (64), 128 x 128 (128, 256), in turns. Overlap within a warpgroup and turns between them are
// those of flash_attention/wgmma_tma.cu; corrections of O run beside S.
//
// Registers: the compiler gets 168 (128 with three consumers); the producer warpgroup keeps 40 (24 at 256, 32) and a consumer
// takes 232 (240, 160). EARLY_START launches with programmatic dependence.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors. Results repeat to the bit.
#include "kernel.h"

#include <cstdint>

#include "attention/fp8_forward.h"
#include "online_softmax.h"

using namespace attention;

namespace {

constexpr int kLongQueries = 1024;  // beyond, causal tiles may be large: few of them are short

constexpr int kPingPong128 = PING_PONG_128 ? kFp8PingPong : 0;
constexpr int kPingPongEarly = kFp8PingPong | kFp8EarlyFactors, kEarlyShared = kFp8EarlyFactors | kFp8Shared;

/// Consumers, keys, what else: Fp8FlashShape. In short ones each block transposes the values that it needs: no tile waits
/// for another block, and V is not written to memory. At 64, where all do, they take no turns.
template <int kHeadDim>
struct Tiles;
template <>
struct Tiles<64> {
    using Full = Fp8FlashShape<64, 3, 128, kPingPongEarly | kFp8HeldQuery | kFp8Threes>;
    using Short = Fp8FlashShape<64, 3, 128, kFp8EarlyFactors | kFp8HeldQuery | kFp8Threes>;
    using LongCausal = Full;
    using Causal = Fp8FlashShape<64, 2, 128, kPingPongEarly | kFp8HeldQuery>;
    using Blocks = Fp8FlashShape<64, 3, 128, kPingPongEarly | kFp8BlockScales>;
    using ShortCausal = Causal;
    using Few = Fp8FlashShape<64, 1, 128, kFp8BlockScales>;
};
template <>
struct Tiles<128> {
    using Full = Fp8FlashShape<128, 2, 192, kEarlyShared | kFp8HeldQuery | kFp8Threes | kPingPong128>;
    using LongCausal = Full;
    using Causal = Full;
    using Blocks = Fp8FlashShape<128, 2, 128, kEarlyShared | kFp8PingPong | kFp8BlockScales>;
    using ShortCausal = Fp8FlashShape<128, 2, 128, kFp8EarlyFactors | kFp8HeldQuery | kFp8Threes | kPingPong128>;
    using Short = Fp8FlashShape<128, 2, 128, kPingPongEarly | kFp8HeldQuery | kFp8Threes>;
    using Few = Fp8FlashShape<128, 1, 128, kFp8BlockScales>;
};
template <>
struct Tiles<256> {
    using Full = Fp8FlashShape<256, 2, 128, kEarlyShared | kFp8PingPong | kFp8Threes>;
    using LongCausal = Full;
    using Causal = Full;
    using Blocks = Fp8FlashShape<256, 2, 128, kEarlyShared | kFp8PingPong | kFp8BlockScales>;
    using ShortCausal = Fp8FlashShape<256, 2, 128, kPingPongEarly | kFp8Threes>;
    using Short = ShortCausal;
    using Few = Fp8FlashShape<256, 1, 64, kFp8EarlyFactors | kFp8BlockScales>;
};

/// Up to how many keys rows are short.
template <int kHeadDim>
int short_up_to(bool causal) {
    if (!IN_BLOCK || (kHeadDim == 64 && causal)) return 0;
    if (IN_BLOCK > 1) return 0x7fffffff;  // to race it at every length
    if (kHeadDim == 64) return 4096;
    if (kHeadDim == 128) return causal ? 2048 : 1024;
    return causal ? 3072 : 1280;
}

/// Rows without a mask: those that end in part of a step take an instance with a tail, if there is one. Long rows at 64
/// would gain little; tails at 256 were not raced.
template <class Shape>
int launch_full(const Fp8FlashArguments& a, int multiprocessors, void* queue) {
    constexpr Fp8TileOrder kPersistent = Fp8TileOrder::kPersistent;
    constexpr bool kTails = TAILS && (Shape::kHeadDim == 128 || (Shape::kHeadDim == 64 && !Shape::kPingPong));
    const int rest = a.seqlen_k > Shape::kKeys ? a.seqlen_k % Shape::kKeys : 0;
    if constexpr (kTails) {
        if (rest > 0 && rest <= 64) {
            return launch_fp8_flash<typename Shape::template Tailed<64>>(a, kPersistent, multiprocessors, queue);
        }
        if constexpr (Shape::kKeys > 128) {
            if (rest > 64 && rest <= 128) {
                return launch_fp8_flash<typename Shape::template Tailed<128>>(a, kPersistent, multiprocessors, queue);
            }
        }
    }
    return launch_fp8_flash<Shape>(a, kPersistent, multiprocessors, queue);
}

template <int kHeadDim>
int choose(const Fp8FlashArguments& a, int multiprocessors, void* queue) {
    using T = Tiles<kHeadDim>;
    constexpr Fp8TileOrder kPersistent = Fp8TileOrder::kPersistent;
    const long long units = static_cast<long long>(a.batch) * a.heads_q * ceil_div(a.seqlen_q, 64);
    const TransposedValues turned = {a.batch, a.seqlen_k, a.heads_k, kHeadDim};
    const bool room = !T::Full::kShared || a.workspace_bytes >= turned.bytes() + turned.numbers() * sizeof(unsigned);
    if (a.seqlen_q <= 64 || units <= multiprocessors || !room) {
        return launch_fp8_flash<typename T::Few>(a, Fp8TileOrder::kOwnBlocks, multiprocessors, queue);
    }
    if (a.scales == Fp8FlashArguments::kPerBlock) {
        return launch_fp8_flash<typename T::Blocks>(a, kPersistent, multiprocessors, queue);
    }
    constexpr Fp8TileOrder kCausal = COUNT ? Fp8TileOrder::kCount : kPersistent;
    const bool is_short = a.seqlen_k <= short_up_to<kHeadDim>(a.causal);
    if (!a.causal) {
        return is_short ? launch_full<typename T::Short>(a, multiprocessors, queue)
                        : launch_full<typename T::Full>(a, multiprocessors, queue);
    }
    if (is_short) return launch_fp8_flash<typename T::ShortCausal>(a, kCausal, multiprocessors, queue);
    return a.seqlen_q > kLongQueries ? launch_fp8_flash<typename T::LongCausal>(a, kCausal, multiprocessors, queue)
                                     : launch_fp8_flash<typename T::Causal>(a, kCausal, multiprocessors, queue);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int flash_attention_fp8(
    const void* q, const void* k, const void* v, const float* q_scale, const float* k_scale, const float* v_scale,
    void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int scales,
    int causal, float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0) {
        return kUnsupportedShape;
    }
    if (scales < 0 || scales > 2 || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(k) || !aligned(v) || !aligned(o)) return kUnsupportedShape;
    const Fp8FlashArguments a = {q,           k,
                                 v,           q_scale,
                                 k_scale,     v_scale,
                                 o,           lse,
                                 batch,       seqlen_q,
                                 seqlen_k,    heads_q,
                                 heads_k,     scales,
                                 causal != 0, softmax_scale * kLog2E,
                                 workspace,   aligned(workspace) ? workspace_bytes : 0};
    int device = 0, multiprocessors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return static_cast<int>(error);
#if ONLY_DIM != 0  // quicker builds for tests and races
    return head_dim == ONLY_DIM ? choose<ONLY_DIM>(a, multiprocessors, queue) : kUnsupportedShape;
#else
    switch (head_dim) {
        case 64: return choose<64>(a, multiprocessors, queue);
        case 128: return choose<128>(a, multiprocessors, queue);
        case 256: return choose<256>(a, multiprocessors, queue);
        default: return kUnsupportedShape;
    }
#endif
}
