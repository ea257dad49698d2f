// SPDX-License-Identifier: MIT
//!KERNEL summary fast Hadamard transform in registers and by ds_swizzle, then e4m3fnuz codes; x read once for scales by block
//!KERNEL arch gfx942
//
// Rotation and fp8 codes of 128 tokens of a head per workgroup, all in registers: kernels/common/hadamard_quantize.h.
//
// Shapes: all of kernel.h with 16-byte aligned tensors.
// Limits: scales by head or tensor read x twice; exchanges go through LDS hardware; not timed yet on a real MI300.
#include "hadamard_quantize.h"

#include "isa/lanes.h"

namespace {

struct Hip {
    template <int kMask>
    static __device__ __forceinline__ float from_lane_xor(float value) {
        return ::from_lane_xor<kMask>(value);
    }

    /// e4m3fnuz has one zero, 0.
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d) {
        return float_to_e4m3fnuz(a) | float_to_e4m3fnuz(b) << 8 | float_to_e4m3fnuz(c) << 16 |
               static_cast<uint32_t>(float_to_e4m3fnuz(d)) << 24;
    }
};

}  // namespace

extern "C" int hadamard_quantize(
    const void* x, const float* signs, unsigned char* codes, float* scale, int batch, int tokens, int heads,
    int head_dim, int rotated, int scales, float largest, void* workspace, size_t workspace_bytes, void* queue) {
    return launch_quantize<Hip>(
        x, signs, codes, scale, batch, tokens, heads, head_dim, rotated, scales, largest, workspace, workspace_bytes,
        queue);
}
