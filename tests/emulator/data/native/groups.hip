// SPDX-License-Identifier: MIT
// Cooperative groups: sums by tiles, blocks and the whole grid.
#include <hip/hip_cooperative_groups.h>

#include <cstdio>

namespace cg = cooperative_groups;

__device__ int sum(const cg::thread_group& group, int* scratch, int value) {
    const unsigned rank = group.thread_rank();
    scratch[rank] = value;
    for (unsigned half = group.size() / 2; half > 0; half /= 2) {
        group.sync();
        if (rank < half) scratch[rank] += scratch[rank + half];
    }
    group.sync();
    return scratch[0];
}

__global__ void run(int* out) {
    __shared__ int scratch[256];
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    int value = static_cast<int>(block.thread_rank());
    for (unsigned by = tile.size() / 2; by > 0; by /= 2) value += tile.shfl_down(value, by);
    if (tile.thread_rank() == 0) atomicAdd(&out[0], value);
    const int all = sum(block, scratch, 1);
    block.sync();
    const int part = sum(cg::tiled_partition<32>(block), scratch + block.thread_rank() / 32 * 32, 1);
    if (threadIdx.x % 2) atomicAdd(&out[1], static_cast<int>(cg::coalesced_threads().size()));
    const cg::grid_group grid = cg::this_grid();
    out[8 + grid.thread_rank()] = all + part;
    grid.sync();
    out[8 + grid.size() + grid.thread_rank()] = out[8 + grid.size() - 1 - grid.thread_rank()];
}

int main() {
    constexpr int kBlocks = 4, kThreads = 256, kAll = kBlocks * kThreads;
    int* out = nullptr;
    if (hipMallocManaged(&out, (8 + 2 * kAll) * sizeof *out) || hipMemset(out, 0, 32)) return 2;
    void* arguments[] = {&out};
    if (hipLaunchCooperativeKernel(reinterpret_cast<void*>(run), dim3(kBlocks), dim3(kThreads), arguments, 0, nullptr)) return 3;
    if (hipDeviceSynchronize()) return 4;
    int wrong = 0;
    for (int i = 0; i < kAll; ++i) wrong += out[8 + kAll + i] != kThreads + 32;
    std::printf("%d %d %d\n", out[0], out[1], wrong);
    return wrong != 0;
}
