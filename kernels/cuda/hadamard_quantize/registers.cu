// SPDX-License-Identifier: MIT
// Rotation and fp8 codes of 128 tokens of a head per block, all in registers.
//
//!KERNEL summary fast Hadamard transform in registers and by shuffles, then e4m3 codes; x read once for scales by block
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  the loads at the head of quantize_block in kernels/common/hadamard_quantize.h
//   main loop      transform, there
//   epilogue       the stores at the end of quantize_block, there
//
// Shapes: all of kernel.h with 16-byte aligned tensors.
// Limits: scales by head or tensor read x twice; five shuffles an element take about as long as its bytes; not timed yet.
#include "hadamard_quantize.h"

#include "ptx/convert.h"

namespace {

struct Cuda {
    template <int kMask>
    static __device__ __forceinline__ float from_lane_xor(float value) {
        return __shfl_xor_sync(0xffffffffu, value, kMask);
    }

    /// A zero has no sign: what rounds to one is made positive first.
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d) {
        const auto shorn = [](float value) {
            constexpr float kHalfOfSmallest = 1.0f / 1024;
            return fabsf(value) <= kHalfOfSmallest ? 0.0f : value;
        };
        return pack_e4m3(shorn(a), shorn(b), shorn(c), shorn(d));
    }
};

}  // namespace

extern "C" int hadamard_quantize(
    const void* x, const float* signs, unsigned char* codes, float* scale, int batch, int tokens, int heads,
    int head_dim, int rotated, int scales, float largest, void* workspace, size_t workspace_bytes, void* queue) {
    return launch_quantize<Cuda>(
        x, signs, codes, scale, batch, tokens, heads, head_dim, rotated, scales, largest, workspace, workspace_bytes,
        queue);
}
