// SPDX-License-Identifier: MIT
// One instance of the Hopper attention forward from e4m3: its tile, its warps, where everything lies in shared memory, and the
// order in which blocks take tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "ptx/atomic.h"

#ifndef STAGES
#error "STAGES is a tunable of the kernel file: stages of keys and values with a tail, where V comes transposed"
#endif

namespace attention {

constexpr int kScaleBlock = 128;  // tokens that share a scale, where blocks do
constexpr int kPieceSide = 128;   // keys and columns of a piece of V that is transposed for all blocks

/// What an instance does, to be combined.
enum Fp8FlashOptions {
    kFp8PingPong =
        1,  // consumers issue their products in turns, so that one's softmax runs beside the other's products
    kFp8EarlyFactors =
        2,              // the output takes the last step's correction beside the product with the keys, not before it
    kFp8HeldQuery = 4,  // queries are read once, into registers, instead of from shared memory in every step
    // Values come transposed from the workspace, where idle warps of all blocks put them meanwhile, each piece once; else three
    // warps of each block transpose the tiles that it needs.
    kFp8Shared = 8,
    kFp8BlockScales = 16,  // scales of keys and values change every 128 of them; without it there is one per head
    kFp8Threes = 32,       // maxima are looked for three at a time and compared by a vote: see weigh_scores
};

/// kGroups consumer warpgroups with 64 query rows each, kKeys keys at a time. kTail > 0: of the last step, which comes
/// first, only kTail keys are multiplied. Such an instance is for rows without a mask which see at least one step more.
template <int kHeadDim_, int kGroups_, int kKeys_, int kOptions_, int kTail_ = 0>
struct Fp8FlashShape {
    static constexpr int kHeadDim = kHeadDim_, kGroups = kGroups_, kKeys = kKeys_, kTail = kTail_;
    template <int kKeysOfTail>
    using Tailed = Fp8FlashShape<kHeadDim_, kGroups_, kKeys_, kOptions_, kKeysOfTail>;
    static constexpr bool kShared = (kOptions_ & kFp8Shared) != 0, kBlockScales = (kOptions_ & kFp8BlockScales) != 0;
    static constexpr int kStages = !kShared && kHeadDim < 256 ? 4 : kTail > 0 ? STAGES : 2;  // of keys
    static constexpr bool kPingPong = (kOptions_ & kFp8PingPong) != 0 && kGroups > 1;
    static constexpr bool kRescaleEarly = (kOptions_ & kFp8EarlyFactors) != 0;
    static constexpr bool kHeldQuery = (kOptions_ & kFp8HeldQuery) != 0;
    static constexpr bool kThrees = (kOptions_ & kFp8Threes) != 0;
    static constexpr int kQueries = 64 * kGroups;
    static constexpr int kConsumerThreads = 128 * kGroups;
    static constexpr int kTransposers = 3;  // warps of the last warpgroup, whose first one drives TMA
    static constexpr int kThreads = kConsumerThreads + 128;
    static constexpr bool kMovesRegisters = kGroups > 1;  // a single consumer has all it can address
    static constexpr int kConsumerRegisters = kGroups == 3 ? 160 : kHeadDim == 256 ? 240 : 232;
    static constexpr int kProducerRegisters = kGroups == 3 ? 32 : kHeadDim == 256 ? 24 : 40;
    static constexpr int kExchanges = kProducerRegisters < 40 ? 2 : 4;  // that a transposer has under way

    // Q and K are [kHeadDim / kRowBytes][rows] of kRowBytes bytes, swizzled.
    static constexpr int kRowBytes = kHeadDim < 128 ? kHeadDim : 128;
    static constexpr int kRowChunks = kRowBytes / 16;
    static constexpr int kQueryBytes = kQueries * kHeadDim, kKeyBytes = kKeys * kHeadDim;
    static constexpr int kQueryPitch = kQueries * kRowBytes, kKeyPitch = kKeys * kRowBytes;  // between rows' pieces
    // V transposed is [kKeys / kValueRow][kHeadDim] rows of kValueRow keys, swizzled. As it comes it is [kKeys / kValueRow]
    // [kHeadDim / kValueRow][kValueRow keys] rows of kValueRow bytes: squares, which are transposed in place.
    static constexpr int kValueRow = kHeadDim % 128 != 0 || kKeys % 128 != 0 ? 64 : 128;
    static constexpr int kValuePitch = kHeadDim * kValueRow;
    static constexpr int kValueBytes = kKeys * kHeadDim;

    static constexpr int kRoom = 227 * 1024;  // what a block can have
    // A tile of values is held from its load to its product, with the transposition in between if the block does that.
    static constexpr int kValueStages = kShared ? kStages : kValueBytes >= 32 << 10 ? 3 : 4;
    static constexpr int kRingBytes = kStages * kKeyBytes + kValueStages * kValueBytes;
    // What is transposed for all blocks goes piece by piece through shared memory.
    static constexpr int kPieceBytes = kShared ? kPieceSide * kPieceSide : 0;
    static constexpr int kQueryStages = kRingBytes + 2 * kQueryBytes + 2 * kPieceBytes + 1024 <= kRoom ? 2 : 1;
    static constexpr bool kThirdPiece = kRingBytes + kQueryStages * kQueryBytes + 3 * kPieceBytes + 1024 <= kRoom;
    static constexpr int kPieceStages = !kShared ? 0 : kThirdPiece ? 3 : 2;
    static constexpr int kKeysAt = kQueryStages * kQueryBytes, kValuesAt = kKeysAt + kStages * kKeyBytes;
    static constexpr int kPiecesAt = kValuesAt + kValueStages * kValueBytes;
    static constexpr int kBarriersAt = kPiecesAt + kPieceStages * kPieceBytes;
    static constexpr int kPairs = kQueryStages + kStages + kValueStages;  // of a full and an empty barrier
    static constexpr int kRawBarriers = kShared ? kPieceStages + 1 : kValueStages;
    static constexpr int kTilesAt = kBarriersAt + ceil_div(2 * kPairs + kRawBarriers, 4) * 32;
    // A piece is announced when its load starts, and looked up until its store is done.
    static constexpr int kPieceSlots = kShared ? 2 * kPieceStages : 0;
    // Tiles are announced with their queries. Output is written after the next tile's queries have been read: so a tile's slot
    // is free once those of the tile after that have been.
    static constexpr int kTileSlots = kQueryStages + 2;
    static constexpr int kEndsAt = kTilesAt + kTileSlots * 32;
    static constexpr int kStepScalesAt = kEndsAt + ceil_div(kValueStages, 4) * 16;
    static constexpr int kPieceSlotsAt = kStepScalesAt + kStages * 16;
    static constexpr int kSharedBytes = kPieceSlotsAt + kPieceSlots * 16;

    static_assert(kHeadDim == 64 || kHeadDim % 128 == 0, "rows of whole swizzle patterns");
    static_assert(kHeadDim <= 256, "wgmma has at most 256 columns");
    static_assert(kKeys % 32 == 0 && kKeys <= 256, "P V advances 32 keys at a time, a TMA box has at most 256 rows");
    static_assert(kTail % 32 == 0 && kTail < kKeys, "a tail is part of a step");
    static_assert(!kBlockScales || kScaleBlock % kKeys == 0, "a step has one scale");
    static_assert(kKeys % kValueRow == 0 && kHeadDim % kValueRow == 0, "whole squares");
    static_assert(kGroups >= 1 && kGroups <= 3, "registers");
    static_assert(kSharedBytes <= kRoom, "shared memory");
};

/// A place in a ring and the parity of its use there, from how many came before. Not for wgmma's operands: a quotient by more than
/// two takes their addresses out of the uniform registers. RingPosition goes on without one.
template <int kStages>
struct Fp8Place {
    int stage;
    uint32_t parity;

    __device__ __forceinline__ explicit Fp8Place(uint32_t count)
        : stage(static_cast<int>(count % kStages)), parity(count / kStages % 2) {}
};

/// One tile of queries, how many steps of keys it sees (-1: there was no further tile), and unless scales change from block to
/// block the factor that turns its scores into exponents of two and the scale of its values.
struct alignas(32) Fp8FlashTile {
    int batch, head, first_query, steps;
    float factor, value_scale;
};

/// The scales of one step, where they change by block.
struct alignas(16) Fp8StepScales {
    float keys;
    float value_log, value_inverse;  // of the values' scale: in base 2, and 1 / it
    float unused;                    // read with the others, as 16 bytes
};

/// A piece of V: the head, of all batches (-1: there was no further piece), the block of keys, and which of its columns.
struct alignas(16) Fp8Piece {
    int head, block, columns, unused;
};

/// Addresses in one block's shared memory. Every ring has a full and an empty barrier per stage.
template <class Shape>
struct Fp8FlashMemory {
    uint8_t* pointer;
    uint32_t start;

    __device__ __forceinline__ Fp8FlashTile& tile(uint32_t count) const {
        return reinterpret_cast<Fp8FlashTile*>(pointer + Shape::kTilesAt)[count % Shape::kTileSlots];
    }
    /// Those of the keys in this stage and of their values.
    __device__ __forceinline__ Fp8StepScales& step_scales(int stage) const {
        return reinterpret_cast<Fp8StepScales*>(pointer + Shape::kStepScalesAt)[stage];
    }
    /// Whether this stage of the values is none: the end.
    __device__ __forceinline__ int& ends(int stage) const {
        return reinterpret_cast<int*>(pointer + Shape::kEndsAt)[stage];
    }

    __device__ __forceinline__ Fp8Piece& announced_piece(uint32_t count) const {
        return reinterpret_cast<Fp8Piece*>(pointer + Shape::kPieceSlotsAt)[count % Shape::kPieceSlots];
    }

    __device__ __forceinline__ uint32_t query(int stage) const { return start + stage * Shape::kQueryBytes; }
    __device__ __forceinline__ uint32_t keys(int stage) const {
        return start + Shape::kKeysAt + stage * Shape::kKeyBytes;
    }
    __device__ __forceinline__ uint32_t values(int stage) const {
        return start + Shape::kValuesAt + stage * Shape::kValueBytes;
    }
    /// A piece of V.
    __device__ __forceinline__ uint32_t piece(int stage) const {
        return start + Shape::kPiecesAt + stage * Shape::kPieceBytes;
    }
    /// Barriers in pairs: full and empty of queries, keys, values ready for the product.
    __device__ __forceinline__ uint32_t barrier(int before, int stage, int empty) const {
        return start + Shape::kBarriersAt + 16 * (before + stage) + 8 * empty;
    }
    static constexpr int kKeysBefore = Shape::kQueryStages, kValuesBefore = kKeysBefore + Shape::kStages;
    __device__ __forceinline__ uint32_t query_full(int stage) const { return barrier(0, stage, 0); }
    __device__ __forceinline__ uint32_t query_empty(int stage) const { return barrier(0, stage, 1); }
    __device__ __forceinline__ uint32_t keys_full(int stage) const { return barrier(kKeysBefore, stage, 0); }
    __device__ __forceinline__ uint32_t keys_empty(int stage) const { return barrier(kKeysBefore, stage, 1); }
    __device__ __forceinline__ uint32_t values_full(int stage) const { return barrier(kValuesBefore, stage, 0); }
    __device__ __forceinline__ uint32_t values_empty(int stage) const { return barrier(kValuesBefore, stage, 1); }
    /// Values, or a piece of them, have come and are yet to be transposed.
    __device__ __forceinline__ uint32_t raw_full(int stage) const {
        return start + Shape::kBarriersAt + 16 * Shape::kPairs + 8 * stage;
    }
    /// Where V is transposed for all blocks: all of it is.
    __device__ __forceinline__ uint32_t all_turned() const { return raw_full(Shape::kPieceStages); }
};

/// How far apart an operand's scales are; 0 where neighbours share one.
struct ScaleGrid {
    int batch, block, head;

    __device__ __forceinline__ int at(int b, int token, int h) const {
        return b * batch + token / kScaleBlock * block + h * head;
    }
};

/// V as it is transposed by all blocks: pieces of kPieceSide keys and columns, in the order in which tiles want them. The
/// numbers are zero when the kernel starts.
struct Fp8Pieces {
    unsigned* taken;  // pieces that a block has taken
    int* done;        // pieces that are transposed
    int* ready;       // [heads][blocks] of them, by block of keys
    int heads, blocks, count;
    int chunk;  // heads whose last keys come before any other keys of theirs

    template <int kColumns>
    __device__ __forceinline__ Fp8Piece piece(int index) const {
        const unsigned of_head = static_cast<unsigned>(index) / kColumns,
                       of_chunk = static_cast<unsigned>(chunk * blocks);
        const unsigned first = of_head / of_chunk * static_cast<unsigned>(chunk), rest = of_head % of_chunk;
        const unsigned together = min(static_cast<unsigned>(chunk), static_cast<unsigned>(heads) - first);
        return {
            static_cast<int>(first + rest % together), blocks - 1 - static_cast<int>(rest / together), index % kColumns,
            0};
    }
};

/// What the kernel needs beside the tensor maps.
struct Fp8FlashProblem {
    uint8_t* o;  // [batch, queries, heads, head_dim] bf16
    float* lse;  // [batch, heads, queries]
    const float *query_scales, *key_scales, *value_scales;
    ScaleGrid query_grid, key_grid;  // that of the keys is the values', too
    int batch, queries, keys, heads, heads_per_key_head, key_heads;
    bool causal;
    float scale;      // softmax_scale * log2(e)
    int tiles;        // of one head
    int half;         // of them, rounded up
    int section;      // heads (of all batches) whose tiles are taken together, so that their keys and values share L2
    int in_section;   // tiles
    int units;        // of work, in all
    unsigned* taken;  // units taken beyond each block's first, by whoever is free; null: every block has its share
    Fp8Pieces pieces;
    bool pairs;  // a unit is a long and a short tile of one head, which add up to the same length everywhere
};

/// The tiles of one block, in order, for the thread that announces them.
template <class Shape>
struct Fp8FlashScheduler {
    int unit;
    bool second = false;   // of a pair
    unsigned fetched = 0;  // asked for before it is needed, since the answer takes a while

    __device__ __forceinline__ Fp8FlashScheduler() : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const Fp8FlashProblem& p) const { return unit < p.units; }
    /// Once per tile, any time before next().
    __device__ __forceinline__ void fetch(const Fp8FlashProblem& p) {
        if (p.taken != nullptr) fetched = fetch_add(p.taken, 1u);
    }
    __device__ __forceinline__ void next(const Fp8FlashProblem& p) {
        second = p.pairs && !second && remainder(unit, p.half) != p.tiles - p.half;
        if (!second) unit = static_cast<int>(gridDim.x) + (p.taken != nullptr ? static_cast<int>(fetched) : unit);
    }

    // Nothing here is negative; without signs a division takes fewer registers, which the producer has few of.
    static __device__ __forceinline__ int quotient(int a, int b) {
        return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
    }
    static __device__ __forceinline__ int remainder(int a, int b) { return a - quotient(a, b) * b; }

    __device__ __forceinline__ Fp8FlashTile tile(const Fp8FlashProblem& p) const {
        int head, index;  // index: place among the head's tiles, the longest first
        if (p.pairs) {
            const int pair = remainder(unit, p.half);
            head = quotient(unit, p.half);
            index = second ? p.tiles - 1 - pair : pair;
        } else {
            const int first = quotient(unit, p.in_section) * p.section, rest = remainder(unit, p.in_section);
            const int heads = min(p.section, p.batch * p.heads - first);
            head = first + remainder(rest, heads);
            index = quotient(rest, heads);
        }
        Fp8FlashTile t{};
        t.batch = quotient(head, p.heads);
        t.head = remainder(head, p.heads);
        t.first_query = (p.causal ? p.tiles - 1 - index : index) * Shape::kQueries;
        // Causal: query i sees keys j <= i + keys - queries.
        const int last = min(t.first_query + Shape::kQueries, p.queries) - 1;
        const int seen = p.causal ? min(p.keys, last + 1 + p.keys - p.queries) : p.keys;
        t.steps = seen <= 0 ? 0 : ceil_div(seen, Shape::kKeys);
        return t;
    }
};

}  // namespace attention
