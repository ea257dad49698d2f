// SPDX-License-Identifier: MIT
// fp8_gemm/wgmma_tma.cu with one instance whose promotion is off, as plan 0 of gemm/plan_entries.h: the tensor cores' own
// accumulator runs over all of K, and the last block's scales multiply the sum, so that it is right only for scales that do
// not change along K. What it loses on those is what the promotion to fp32 every 128 of K is for.
#define Shapes ShippedShapes
#include "fp8_gemm/wgmma_tma.cu"
#undef Shapes

using Unpromoted = WgmmaShape<1, 1, 16, kColumns, kClusterReduce, 1, 1, false, 2>;

template <>
__device__ __forceinline__ void WgmmaConsumer<Unpromoted>::one_by_one(
    WgmmaSums<Unpromoted>& sums, int blocks, int runs) {
    Partial partial;
    Scales scales;
    for (int block = 0; block < blocks; ++block) {
        begin(scales);
        const uint32_t tile = memory.tile(filled.stage);
        const uint64_t a = wgmma_operand(tile + who.group * (64 * Unpromoted::kK));
        const uint64_t b = wgmma_operand(tile + Unpromoted::kRowBytes);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Unpromoted::kK / 32; ++step) {
            Wgmma<Unpromoted::kN>::product(partial, a + 2 * step, b + 2 * step, block > 0 || step > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_results(partial);
        free_stage();
        filled.advance();
    }
    scales.promote(sums.total[0], partial, 0, runs);
}

using Shapes = WgmmaTable<Unpromoted>;
