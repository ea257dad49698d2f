// SPDX-License-Identifier: MIT
// How a piece's tokens come to shared memory: a ring of slots of 32 tokens, filled by cp.async.
//
// Tokens of a page are contiguous, and lie in a slot as they do in memory. Slots of the cache hold NaN behind a request's length:
// those rows are not read, and are zero before a step uses them. Page numbers are read ahead of their use, and never behind the
// length.
//
//   AsyncRing ring(...);                             // once per block
//   ring.begin(source);                              // of a piece
//   for each step: tokens = ring.acquire(step);      // they are there
#pragma once

#include <cstdint>

#include "ptx/cp_async.h"
#include "tile/coded_latent_shape.h"

/// Where a piece's tokens lie in global memory.
struct TokenSource {
    const uint8_t* cache;
    const int* table;  // the request's
    int length;        // tokens of the request
    int begin, end;    // steps of the piece

    template <class Arguments>
    static __device__ __forceinline__ TokenSource of(const Arguments& a, int request, KvRange steps) {
        return {a.cache, a.block_table + static_cast<size_t>(request) * a.max_blocks, a.schedule.tokens(request),
                steps.begin, steps.end};
    }
};

/// cp.async by all threads. A step is a slot.
template <class Tile>
struct AsyncRing {
    static constexpr int kAhead = Tile::kSlots - 1;  // steps under way besides the one in use
    uint32_t base;
    int slot = 0;  // of the next step
    int page = 0;  // of the step that is copied next
    TokenSource source{};

    __device__ __forceinline__ explicit AsyncRing(uint32_t shared) : base(shared) {}

    __device__ __forceinline__ int page_of(int step) const {
        return step < source.end ? __ldg(source.table + step * Tile::kTokens / CodedRow::kPage) : 0;
    }

    /// Copies of `step` to slot `to`, from page `number`.
    __device__ __forceinline__ void fill(int step, int number, int to) {
        if (step < source.end) {
            const int token = step * Tile::kTokens;
            const size_t row = static_cast<size_t>(number) * CodedRow::kPage + token % CodedRow::kPage;
            constexpr int kChunks = CodedRow::kBytes / 16;
            const int valid = min(kSlotTokens, source.length - token) * kChunks;
            for (int i = static_cast<int>(threadIdx.x); i < kSlotTokens * kChunks; i += Tile::kThreads) {
                cp_async_16(base + to * Tile::kSlotBytes + i * 16, source.cache + row * CodedRow::kBytes + i * 16,
                            i < valid);
            }
        }
        cp_async_commit();  // also when empty: the waits count groups
    }

    /// Every warp is done with the piece before.
    __device__ __forceinline__ void begin(const TokenSource& piece) {
        source = piece;
        slot = 0;
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) fill(source.begin + ahead, page_of(source.begin + ahead), ahead);
        page = page_of(source.begin + kAhead);
    }

    /// Shared address of the step's first row.
    __device__ __forceinline__ uint32_t acquire(int step) {
        cp_async_wait<kAhead - 1>();
        Tile::meet();  // the step's tokens are there; everyone is done with the slot that is filled next
        fill(step + kAhead, page, slot + kAhead < Tile::kSlots ? slot + kAhead : slot + kAhead - Tile::kSlots);
        page = page_of(step + kAhead + 1);
        const uint32_t tokens = base + slot * Tile::kSlotBytes;
        slot = slot + 1 < Tile::kSlots ? slot + 1 : 0;
        return tokens;
    }
};
