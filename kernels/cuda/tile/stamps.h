#pragma once
#ifdef STAMPS
#include <cstdio>
__device__ int stamp_table[64];
#define STAMP(i) { const int now = clock(); stamps[i] += now - last; last = now; }
#define STAMP_START int stamps[4] = {}, last = clock();
#define STAMP_END(slot, pages) if (blockIdx.x == 5 && threadIdx.x % 128 == 0) { for (int i = 0; i < 4; ++i) stamp_table[(slot) * 4 + i] = stamps[i] / (int)(pages); }
extern "C" void mla_stamps() {
    int host[64];
    cudaDeviceSynchronize();
    cudaMemcpyFromSymbol(host, stamp_table, sizeof host);
    for (int i = 0; i < 16; ++i) if (host[4 * i] | host[4 * i + 1] | host[4 * i + 2] | host[4 * i + 3]) std::printf("  stamps %d: %d %d %d %d\n", i, host[4 * i], host[4 * i + 1], host[4 * i + 2], host[4 * i + 3]);
    std::fflush(stdout);
}
#else
#define STAMP(i)
#define STAMP_START
#define STAMP_END(name, pages)
#endif
