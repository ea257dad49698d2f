// SPDX-License-Identifier: MIT
// One instance of the Hopper product: its tile, its warps, and where everything lies in shared memory.
//
// "Rows" and "columns" are those of the tile, i.e. wgmma's M and N. Usually rows are tokens (rows of a and c) and columns
// are weights (rows of b); with few tokens (small M) the operands trade places, since wgmma's M is at least 64 and its N is not.
#pragma once

#include <cstdint>
#include <initializer_list>

#ifndef EARLY_START
#error \
    "EARLY_START is a tunable of the kernel file: 0 starts after the launch before, 1 beside its end, 2 also fetches weights meanwhile"
#endif

namespace gemm {

enum class Tokens { kAreRows, kAreColumns };

/// What becomes of a finished tile.
enum class Epilogue {
    kTmaStore,       // bf16 through shared memory and TMA; blocks are persistent and walk many tiles
    kClusterReduce,  // the blocks of a cluster each had a part of K: they add their sums through distributed shared memory
};

constexpr int greatest_common_divisor(int a, int b) { return b == 0 ? a : greatest_common_divisor(b, a % b); }

/// Most units (gemm/cluster_reduce.h) of a tile of `units` that a block receives, whatever number of parts K is in.
constexpr int most_received(int units) {
    int most = 0;
    for (const int parts : {2, 3, 4, 5, 8}) {
        const int received = (parts - 1) * ((units + parts - 1) / parts);
        if (received > most) most = received;
    }
    return most;
}

/// kConsumers warpgroups with kSlices x 64 rows each, kN columns, and a ring of as many K blocks as fit.
///
/// kPartials: 1 waits for each wgmma before promoting its sums; 2 has the next one running meanwhile.
/// kPingPong: two consumers issue their products alternately, so that one promotes while the other multiplies.
/// kPair: 2 joins two blocks with neighbouring column tiles into a cluster; each loads half of the common rows for both.
/// kResident: blocks per multiprocessor to compile for.
template <
    int kConsumers_, int kSlices_, int kN_, Tokens kTokens_, Epilogue kEpilogue_, int kPair_ = 1, int kPartials_ = 1,
    bool kPingPong_ = false, int kResident_ = 1>
struct WgmmaShape {
    static constexpr int kConsumers = kConsumers_, kSlices = kSlices_, kN = kN_;
    static constexpr int kPair = kPair_, kPartials = kPartials_, kResident = kResident_;
    static constexpr bool kPingPong = kPingPong_;
    static constexpr bool kTokensAreRows = kTokens_ == Tokens::kAreRows;
    static constexpr bool kClusterReduce = kEpilogue_ == Epilogue::kClusterReduce;
    // How a consumer walks: as gemm/mainloop.h says, or by one of the loops of gemm/mainloop.h. Plain 128 x 192 tiles gain nothing
    // by the former, and lose where K is short.
    static constexpr bool kPipelined =
        kPartials == 1 && kTokensAreRows && !kPingPong && !kClusterReduce && (kPair == 2 || kN <= 160);
    static constexpr bool kMnMajorRows = false;  // see MnMajorRows in gemm/mn_major_a.h

    static constexpr int kK = 128;
    static constexpr int kRowsPerConsumer = 64 * kSlices;
    static constexpr int kM = kRowsPerConsumer * kConsumers;
    static constexpr int kConsumerThreads = 128 * kConsumers;
    // One warp drives TMA and one copies scales. To hand on their registers they need a whole warpgroup.
    static constexpr bool kMovesRegisters = kConsumers > 1 && kResident == 1;
    static constexpr int kThreads = kConsumerThreads + (kMovesRegisters ? 128 : 64);
    static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 240;
    static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 24;

    static constexpr int kLaunchRegisters =
        65536 / kThreads / 8 * 8;  // what __launch_bounds__ lets a thread start with
    static_assert(
        !kMovesRegisters || kConsumers * kConsumerRegisters + kProducerRegisters <= (kConsumers + 1) * kLaunchRegisters,
        "more registers asked for than given: a wait for ever");

    // Scales of the weights change every 128 of them: columns in runs of kRun share one.
    static constexpr int kRun = greatest_common_divisor(kN, 128);
    static constexpr int kTokens = kTokensAreRows ? kM : kN;

    // A stage holds the K block of all rows, then that of all columns: 128 bytes each, in TMA's 128-byte swizzle.
    static constexpr int kRowBytes = kM * kK;
    static constexpr int kTileBytes = kRowBytes + kN * kK;
    // Tiles on their way out: boxes 64 rows high and kBox columns wide, swizzled. A cluster reduction has
    // memory for other blocks' sums there: a unit is 8 columns of a slice, four sums of each consumer thread.
    static constexpr int kBox = kN % 64 == 0 ? 64 : kN % 32 == 0 ? 32 : 16;
    static constexpr int kSliceBytes = 64 * kN * 2;
    static constexpr int kUnits = kSlices * kN / 8, kUnitBytes = kConsumerThreads * 16;
    static constexpr int kOutBytes = kClusterReduce ? most_received(kUnits) * kUnitBytes : kM * kN * 2;
    // Per stage: a scale per token, then the two of the weights.
    static constexpr int kScales = kTokens + 4;
    static constexpr int kStageBytes = kTileBytes + kScales * 4 + 2 * 8;  // and two barriers

    static constexpr int kRoom = 228 * 1024 / kResident - 1024;  // of a multiprocessor, which keeps 1 KB per block
    static constexpr int kStages = (kRoom - kOutBytes - 8) / kStageBytes;
    static constexpr int kRingBytes = kStages * kTileBytes;
    static constexpr int kScalesAt = kRingBytes + kOutBytes;
    static constexpr int kBarriersAt = kScalesAt + kStages * kScales * 4;
    static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8 + 8;  // one more for a cluster reduction

    static_assert(kN % 16 == 0 && kN >= 16 && kN <= 192, "accumulators and partial sums must fit the registers");
    static_assert(kM / kPair <= 256, "a TMA box has at most 256 rows");
    static_assert(kTokensAreRows || kM <= 128, "weights as rows share one scale");
    static_assert(kN <= 128 + kRun, "a tile may touch two groups of 128 weights, not three");
    static_assert(kPair == 1 || (kPair == 2 && !kClusterReduce), "an reduce uses the cluster for parts of K");
    static_assert(kPartials == 1 || (kPartials == 2 && kSlices == 1), "no registers for more");
    static_assert(
        !kPingPong || (kConsumers == 2 && !kClusterReduce), "turns are between two that scheduler many tiles");
    static_assert(
        !kClusterReduce || kUnits * kUnitBytes <= kRingBytes, "the ring must hold the sums on their way to others");
    static_assert(kStages >= 3 && kSharedBytes <= kRoom, "TMA must run well ahead");
};

/// Addresses in one block's shared memory.
template <class Shape>
struct WgmmaMemory {
    uint8_t* start;
    uint32_t address;

    __device__ __forceinline__ uint32_t tile(int stage) const { return address + stage * Shape::kTileBytes; }
    __device__ __forceinline__ uint32_t full(int stage) const { return address + Shape::kBarriersAt + stage * 8; }
    __device__ __forceinline__ uint32_t empty(int stage) const { return full(Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t received() const { return full(2 * Shape::kStages); }
    __device__ __forceinline__ uint32_t out() const { return address + Shape::kRingBytes; }
    __device__ __forceinline__ float* scales(int stage) const {
        return reinterpret_cast<float*>(start + Shape::kScalesAt) + stage * Shape::kScales;
    }
};

}  // namespace gemm
