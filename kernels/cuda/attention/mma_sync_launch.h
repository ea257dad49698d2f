// SPDX-License-Identifier: MIT
// Host side of FlashAttention-2 on mma.sync (attention/mma_sync_forward.h): tiles per head_dim, splits of the keys, launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attention/mma_sync_forward.h"
#include "ceil_div.h"
#include "common/combine_splits.h"
#include "launch.h"

namespace attention {

/// Hopper's tiles as measured on an H200 (benchmarks/flash_attention.md): warps along the queries at head_dim 64, keys of a step at
/// 128 and 256.
constexpr int kHopperWarps64 = 4, kHopperKeys128 = 64, kHopperKeys256 = 80;

// The oldest architecture of this build: nvcc defines the list for host and device passes alike. A build for Hopper has
// Hopper's tiles; one for Ada, which also runs on later devices, has both and takes those for which there is room.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kHopper = kArchitectures[0] >= 900;

template <typename Element, int kHeadDim>
struct Choice;

template <typename Element>
struct Choice<Element, 64> {
    using Ada = ForwardTile<Element, 64, 8, 1, 64, true, 2>;
    using Hopper = ForwardTile<Element, 64, kHopperWarps64, 8 / kHopperWarps64, 64, true, 2>;
    using Few = ForwardTile<Element, 64, 4, 1, 64, true, kHopper ? 3 : 2>;
};
template <typename Element>
struct Choice<Element, 128> {
    using Ada = ForwardTile<Element, 128, 8, 1, 64, true, 1>;
    using Hopper = ForwardTile<Element, 128, 4, 2, kHopperKeys128, false, 2>;
    using Few = ForwardTile<Element, 128, 4, 1, 64, true, kHopper ? 2 : 1>;
};
template <typename Element>
struct Choice<Element, 256> {
    using Ada = ForwardTile<Element, 256, 4, 1, 32, false, 1>;
    using Hopper = ForwardTile<Element, 256, 4, 1, kHopperKeys256, false, 2, 1>;
    using Few = ForwardTile<Element, 256, 4, 1, 32, false, kHopper ? 2 : 1>;
};

// In key tiles; a merge costs a launch and the round trip of the parts. Tiles of few rows take about half as long.
constexpr SplitCost kWholeCost = {3.0, 4.0, 0.1}, kFewCost = {6.0, 8.0, 0.2};

/// log2 of how many of `group` heads that read the same keys share a tile of `rows` rows: a power of two that divides both.
inline int most_heads_packed(int group, int rows) {
    int pack = 0;
    while (group % (2 << pack) == 0 && rows % (2 << pack) == 0) ++pack;
    return pack;
}

template <typename Tile>
struct Plan {
    long long rows, units;  // of the output; query tiles
    int splits;

    Plan(const ForwardArguments& a, int multiprocessors, SplitCost cost, size_t workspace_bytes)
        : rows(static_cast<long long>(a.batch) * a.seqlen_q * a.heads_q),
          units(
              static_cast<long long>(a.batch) * (a.heads_q >> a.pack) * ceil_div(a.seqlen_q << a.pack, Tile::kQueries)),
          splits(choose_splits(
              units, ceil_div(a.seqlen_k, Tile::kKeys), multiprocessors * Tile::kBlocks,
              SplitWorkspace::capacity(workspace_bytes, rows, Tile::kHeadDim), cost)) {}
};

// The kernel is a parameter of the function, not of the template: nvcc 13.0 makes no code for one that is named there alone.
template <typename Tile, typename Arguments>
int launch_kernel(
    void (*kernel)(Arguments), std::remove_const_t<Arguments> a, const Plan<Tile>& plan, void* workspace, void* queue) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    if (status != cudaSuccess) return status;

    if (plan.units > 0x7fffffffLL) return kUnsupportedShape;
    a.query_tiles = ceil_div(a.seqlen_q << a.pack, Tile::kQueries);
    a.splits = plan.splits;
    if (a.splits > 1) a.parts = SplitWorkspace::at(workspace, a.splits, plan.rows, Tile::kHeadDim);
    const dim3 grid(static_cast<unsigned>(plan.units), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    const CombineArguments<UniformSplits> merge = {
        {a.splits, plan.rows}, a.parts, a.o, a.lse, plan.rows, a.seqlen_q, a.heads_q, 1};
    return launch_combine<typename Tile::Element, Tile::kHeadDim>(merge, a.splits, queue);
}

template <typename Tile>
int launch(const ForwardArguments& a, const Plan<Tile>& plan, void* workspace, void* queue) {
    return launch_kernel<Tile>(flash_forward<Tile>, a, plan, workspace, queue);
}

/// log2 of how many heads share a tile of `rows` rows: as many as take the fewest tiles.
inline int choose_packed(const ForwardArguments& a, int rows) {
    const auto tiles = [&](int pack) { return ceil_div(a.seqlen_q << pack, rows) * (a.heads_q >> pack); };
    int pack = most_heads_packed(a.heads_q / a.heads_k, rows);
    while (pack > 0 && tiles(pack - 1) <= tiles(pack)) --pack;
    return pack;
}

/// Few queries: heads that read the same keys share tiles where that takes fewer of them.
template <typename Tile>
int launch_packed(ForwardArguments a, int multiprocessors, void* workspace, size_t workspace_bytes, void* queue) {
    a.pack = choose_packed(a, Tile::kQueries);
    if (a.pack == 0) {
        return launch<Tile>(a, Plan<Tile>(a, multiprocessors, kFewCost, workspace_bytes), workspace, queue);
    }
    using Packed = PackedTile<Tile>;
    return launch<Packed>(a, Plan<Packed>(a, multiprocessors, kFewCost, workspace_bytes), workspace, queue);
}

inline bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

/// The arguments of kernel.h for the device, but for tiles and splits. Returns false for shapes that no variant takes.
inline bool describe_forward(
    ForwardArguments* arguments, const void* q, const void* k, const void* v, void* o, float* lse, int batch,
    int seqlen_q, int seqlen_k, int heads_q, int heads_k, int causal, float softmax_scale) {
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0) return false;
    if (!(softmax_scale > 0.0f) || !aligned(q) || !aligned(k) || !aligned(v) || !aligned(o)) return false;
    ForwardArguments a{};
    a.q = static_cast<const uint8_t*>(q);
    a.k = static_cast<const uint8_t*>(k);
    a.v = static_cast<const uint8_t*>(v);
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.batch = batch;
    a.seqlen_q = seqlen_q;
    a.seqlen_k = seqlen_k;
    a.heads_q = heads_q;
    a.heads_k = heads_k;
    a.causal = causal != 0;
    a.scale = softmax_scale * kLog2E;
    *arguments = a;
    return true;
}

/// The multiprocessors of the current device; 0 and an error if it cannot be asked.
inline int count_multiprocessors(int* error) {
    int device = 0, count = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    *error = static_cast<int>(status);
    return status == cudaSuccess ? count : 0;
}

/// Whether a multiprocessor of the current device has the shared memory that Hopper's tiles were made for. Ada's have 100 KB.
inline bool has_room(int* error) {
    if constexpr (kHopper) return true;
    int device = 0, bytes = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    }
    *error = static_cast<int>(status);
    return status == cudaSuccess && bytes >= 220 * 1024;
}

}  // namespace attention
