// SPDX-License-Identifier: MIT
// Cooperative groups, after the public reference of HIP's classes. For compilers without ROCm's own header.
#pragma once

#include <hip/hip_runtime.h>

namespace cooperative_groups {

namespace warpwave {

enum class Kind : unsigned { Block, Lanes, Grid };

__device__ inline unsigned rank_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ inline unsigned block_in_grid() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
__device__ inline unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ inline unsigned blocks_of_grid() { return gridDim.x * gridDim.y * gridDim.z; }

// A wave's lanes run together: only the compiler and LDS must keep the order.
__device__ inline void sync_lanes() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    __builtin_amdgcn_wave_barrier();
}

static __device__ unsigned arrived, generation;

// All blocks of a cooperative launch are on the device at once, so one thread of each may wait for the others.
__device__ inline void sync_grid() {
    __syncthreads();
    if (rank_in_block() == 0) {
        const unsigned before = __hip_atomic_load(&generation, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        if (__hip_atomic_fetch_add(&arrived, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) == blocks_of_grid() - 1) {
            __hip_atomic_store(&arrived, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
            __hip_atomic_fetch_add(&generation, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        } else {
            while (__hip_atomic_load(&generation, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == before)
                __builtin_amdgcn_s_sleep(1);
        }
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    }
    __syncthreads();
}

}  // namespace warpwave

/// Any group: what the others convert to.
class thread_group {
public:
    __device__ unsigned size() const { return size_; }
    __device__ unsigned num_threads() const { return size_; }
    __device__ unsigned thread_rank() const {
        if (kind_ == warpwave::Kind::Block) return warpwave::rank_in_block();
        if (kind_ == warpwave::Kind::Grid)
            return warpwave::block_in_grid() * warpwave::threads_of_block() + warpwave::rank_in_block();
        const unsigned lane = __lane_id();
        return static_cast<unsigned>(__popcll(lanes_ & ((1ull << lane) - 1)));
    }
    __device__ bool is_valid() const { return true; }
    __device__ void sync() const {
        if (kind_ == warpwave::Kind::Block) __syncthreads();
        else if (kind_ == warpwave::Kind::Grid) warpwave::sync_grid();
        else warpwave::sync_lanes();
    }

protected:
    __device__ thread_group(warpwave::Kind kind, unsigned size, unsigned long long lanes = 0)
        : kind_(kind), size_(size), lanes_(lanes) {}
    warpwave::Kind kind_;
    unsigned size_;
    unsigned long long lanes_;  // of the wave, where the group is a part of one

    template <unsigned, class>
    friend class thread_block_tile;
    friend __device__ inline thread_group tiled_partition(const thread_group&, unsigned);
};

class thread_block : public thread_group {
public:
    __device__ thread_block() : thread_group(warpwave::Kind::Block, warpwave::threads_of_block()) {}
    __device__ static void sync() { __syncthreads(); }
    __device__ static unsigned size() { return warpwave::threads_of_block(); }
    __device__ static unsigned num_threads() { return warpwave::threads_of_block(); }
    __device__ static unsigned thread_rank() { return warpwave::rank_in_block(); }
    __device__ static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    __device__ static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    __device__ static dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
};

class grid_group : public thread_group {
public:
    __device__ grid_group()
        : thread_group(warpwave::Kind::Grid, warpwave::blocks_of_grid() * warpwave::threads_of_block()) {}
};

/// The lanes of a wave that are at this place together.
class coalesced_group : public thread_group {
public:
    __device__ explicit coalesced_group(unsigned long long lanes)
        : thread_group(warpwave::Kind::Lanes, static_cast<unsigned>(__popcll(lanes)), lanes) {}
    template <class T>
    __device__ T shfl(T value, unsigned rank) const {
        unsigned long long rest = lanes_;
        for (unsigned i = 0; i < rank % size_; ++i) rest &= rest - 1;
        return __shfl(value, __ffsll(rest) - 1);
    }
    __device__ int any(int predicate) const { return (__ballot(predicate) & lanes_) != 0; }
    __device__ int all(int predicate) const { return (__ballot(predicate) & lanes_) == lanes_; }
};

/// `Size` lanes in a row: a power of two up to 64.
template <unsigned Size, class Parent = void>
class thread_block_tile : public thread_group {
public:
    __device__ thread_block_tile()
        : thread_group(
              warpwave::Kind::Lanes, Size,
              (Size == 64 ? ~0ull : (1ull << Size % 64) - 1) << (__lane_id() / Size * Size)) {}
    template <class Other>
    __device__ thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    __device__ static constexpr unsigned size() { return Size; }
    __device__ static constexpr unsigned num_threads() { return Size; }
    __device__ static unsigned thread_rank() { return warpwave::rank_in_block() % Size; }
    __device__ static unsigned meta_group_rank() { return warpwave::rank_in_block() / Size; }
    __device__ static unsigned meta_group_size() { return (warpwave::threads_of_block() + Size - 1) / Size; }
    __device__ void sync() const { warpwave::sync_lanes(); }
    template <class T>
    __device__ T shfl(T value, int rank) const {
        return __shfl(value, rank, Size);
    }
    template <class T>
    __device__ T shfl_up(T value, unsigned by) const {
        return __shfl_up(value, by, Size);
    }
    template <class T>
    __device__ T shfl_down(T value, unsigned by) const {
        return __shfl_down(value, by, Size);
    }
    template <class T>
    __device__ T shfl_xor(T value, unsigned mask) const {
        return __shfl_xor(value, static_cast<int>(mask), Size);
    }
    __device__ unsigned long long ballot(int predicate) const {
        return (__ballot(predicate) & lanes_) >> (__lane_id() / Size * Size);
    }
    __device__ int any(int predicate) const { return (__ballot(predicate) & lanes_) != 0; }
    __device__ int all(int predicate) const {
        const unsigned long long mine = __ballot(1) & lanes_;
        return (__ballot(predicate) & mine) == mine;
    }
};

__device__ inline thread_block this_thread_block() { return {}; }
__device__ inline grid_group this_grid() { return {}; }
__device__ inline coalesced_group coalesced_threads() { return coalesced_group(__ballot(1)); }

template <unsigned Size, class Parent>
__device__ inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

__device__ inline thread_group tiled_partition(const thread_group&, unsigned size) {
    const unsigned long long lanes = size >= 64 ? ~0ull : (1ull << size) - 1;
    return thread_group(warpwave::Kind::Lanes, size, lanes << (__lane_id() / size * size));
}

template <class Group>
__device__ inline void sync(const Group& group) {
    group.sync();
}

}  // namespace cooperative_groups
