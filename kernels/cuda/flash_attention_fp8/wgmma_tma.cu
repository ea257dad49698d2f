// SPDX-License-Identifier: MIT
//!KERNEL summary FP8 wgmma on TMA rings, V transposed in shared memory by the producers, P in registers, scales in the exponent
//!KERNEL arch sm_90a
//!KERNEL tune SLACK_TENTHS=18,0
//!KERNEL tune EARLY_START=1,0
//
// Attention forward from e4m3 for Hopper, both products on FP8 tensor cores.
#include "kernel.h"

#include <cstdint>

#include "online_softmax.h"
#include "tile/wgmma_flash_fp8_launch.h"

#ifndef T64
#define T64 3, 128, true, true, false, true
#endif
#ifndef T128
#define T128 2, 192, false, true, true, true
#endif
#ifndef T256
#define T256 2, 128, true, true, false, true
#endif
#ifndef C64
#define C64 3, 128, true, true, false, true
#endif
#ifndef C128
#define C128 2, 192, true, true, false, true
#endif
#ifndef C256
#define C256 2, 128, true, true, false, true
#endif
#ifndef B128
#define B128 2, 128, true, true, false, true
#endif
#ifndef CORDER
#define CORDER kPersistent
#endif
#ifndef TORDER
#define TORDER kPersistent
#endif

namespace {

template <int kHeadDim>
struct Tiles;
template <>
struct Tiles<64> {
    using Full = Fp8FlashShape<64, T64, false>;
    using Causal = Fp8FlashShape<64, C64, false>;
    using Blocks = Fp8FlashShape<64, 3, 128, true, true, false, true, true>;
    using Few = Fp8FlashShape<64, 1, 128, false, false, false, false, true>;
};
template <>
struct Tiles<128> {
    using Full = Fp8FlashShape<128, T128, false>;
    using Causal = Fp8FlashShape<128, C128, false>;
    using Blocks = Fp8FlashShape<128, B128, true>;
    using Few = Fp8FlashShape<128, 1, 128, false, false, false, false, true>;
};
template <>
struct Tiles<256> {
    using Full = Fp8FlashShape<256, T256, false>;
    using Causal = Fp8FlashShape<256, C256, false>;
    using Blocks = Fp8FlashShape<256, 2, 128, true, true, false, true, true>;
    using Few = Fp8FlashShape<256, 1, 64, false, true, false, false, true>;
};

template <int kHeadDim>
int choose(const Fp8FlashArguments& a, size_t workspace_bytes, int multiprocessors, void* queue) {
    using T = Tiles<kHeadDim>;
    const long long units = static_cast<long long>(a.batch) * a.heads_q * ceil_div(a.seqlen_q, 64);
    const ValueTransposition copy = {nullptr, nullptr, a.batch, a.seqlen_k, a.heads_k, kHeadDim};
    if (a.seqlen_q <= 64 || units <= multiprocessors || workspace_bytes < copy.bytes()) {
        return launch_fp8_flash<typename T::Few>(a, Fp8TileOrder::kOwnBlocks, multiprocessors, queue);
    }
    const Fp8TileOrder order = a.causal ? Fp8TileOrder::CORDER : Fp8TileOrder::TORDER;
    if (a.scales == Fp8FlashArguments::kPerBlock) {
        return launch_fp8_flash<typename T::Blocks>(a, order, multiprocessors, queue);
    }
    return a.causal ? launch_fp8_flash<typename T::Causal>(a, order, multiprocessors, queue)
                    : launch_fp8_flash<typename T::Full>(a, order, multiprocessors, queue);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int flash_attention_fp8(
    const void* q, const void* k, const void* v, const float* q_scale, const float* k_scale, const float* v_scale, void* o,
    float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim, int scales, int causal,
    float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0) {
        return kUnsupportedShape;
    }
    if (scales < 0 || scales > 2 || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(k) || !aligned(v) || !aligned(o)) return kUnsupportedShape;
    const Fp8FlashArguments a = {
        q, k, v, q_scale, k_scale, v_scale, o, lse, batch, seqlen_q, seqlen_k, heads_q, heads_k, scales, causal != 0,
        softmax_scale * kLog2E, workspace};
    int device = 0, multiprocessors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return static_cast<int>(error);
#ifdef ONLY_DIM
    return head_dim == ONLY_DIM ? choose<ONLY_DIM>(a, workspace_bytes, multiprocessors, queue) : kUnsupportedShape;
#else
    switch (head_dim) {
        case 64: return choose<64>(a, workspace_bytes, multiprocessors, queue);
        case 128: return choose<128>(a, workspace_bytes, multiprocessors, queue);
        case 256: return choose<256>(a, workspace_bytes, multiprocessors, queue);
        default: return kUnsupportedShape;
    }
#endif
}
