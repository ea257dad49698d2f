// SPDX-License-Identifier: MIT
// Which tile a workgroup works on.
#pragma once

#include "isa/lanes.h"

constexpr int kComputeUnits = 304;  // of an MI300X

/// MI300X deals consecutive workgroups to its eight dies (XCDs) in turn, and each die has its own 4 MB L2. Renumber them
/// so that every die gets one contiguous range of `count` tiles and neighbours share operands in one L2. A permutation of
/// `workgroup` = 0 .. count-1 for any count; workgroups that work on several tiles are a multiple of kDies.
constexpr int kDies = 8;

__device__ __forceinline__ int die_contiguous(int count, int workgroup) {
    const int die = workgroup % kDies;
    const int share = count / kDies, larger_shares = count % kDies;
    return die * share + (die < larger_shares ? die : larger_shares) + workgroup / kDies;
}

__device__ __forceinline__ int die_contiguous(int count) { return die_contiguous(count, static_cast<int>(blockIdx.x)); }

struct HeadBlock {
    int head, block;
};

/// Workgroup `workgroup` of `blocks` for each of `heads` heads, where later blocks have more to do: the longest of all heads
/// come first, so that no compute unit begins one while others run out. A permutation for any numbers. Where kDies divides
/// `heads`, a die gets all blocks of neighbouring heads.
__device__ __forceinline__ HeadBlock longest_first(int heads, int blocks, int workgroup) {
    const int round = uniform(workgroup / heads);
    return {uniform(die_contiguous(heads, workgroup - round * heads)), blocks - 1 - round};
}

/// This workgroup's block, where every head has `blocks`, all on one die, whose L2 then serves what they share. Heads follow
/// one another from workgroup `first` of all launches on, each with its last block first. Where later blocks have more to do
/// (`differ`) the order is that above; two a head gain nothing by it, and read their keys twice.
__device__ __forceinline__ HeadBlock head_block(int blocks, bool differ, int first = 0) {
    const int workgroups = static_cast<int>(gridDim.x);
    if (differ && blocks > 2) return longest_first(uniform(workgroups / blocks), blocks, static_cast<int>(blockIdx.x));
    const int index = first + die_contiguous(workgroups);
    const int head = uniform(index / blocks);
    return {head, blocks - 1 - (index - head * blocks)};
}

struct TileIndex {
    int m, n;
};

/// Walk a tiles_m x tiles_n grid in bands of `Band` tile rows, column by column inside a band: a band's rows of A stay in
/// L2 while B passes by once.
template <int Band>
__device__ __forceinline__ TileIndex banded_tile(int index, int tiles_m, int tiles_n) {
    const int per_band = Band * tiles_n;
    const int band = uniform(index / per_band);
    const int first = band * Band;
    const int height = tiles_m - first < Band ? tiles_m - first : Band;
    const int inside = index - band * per_band;
    const int n = uniform(inside / height);
    return {first + inside - n * height, n};
}
