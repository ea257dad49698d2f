// SPDX-License-Identifier: MIT
// How a piece's tokens come to shared memory: a ring of slots of 32 tokens, filled by bulk copies or by cp.async.
//
// Tokens of a page are contiguous, and lie in a slot as they do in memory, so a slot is one bulk copy. Slots hold NaN behind
// a request's length: those rows are not read, and are zero before a step uses them. Page numbers are read ahead of their
// use, and never behind the length.
//
//   Ring ring(...);                                  // once per block
//   ring.begin(source);                              // of a piece
//   for each step: tokens = ring.acquire(step);      // they are there
//                  ...
//                  ring.release();                   // this warp is done with the oldest step it has
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "ptx/cp_async.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
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

/// Place in a ring of slots, and the parity of its current round.
template <int kSlots>
struct RingPlace {
    int slot = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance() {
        if (++slot == kSlots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/// Shared addresses of a step's slots.
template <class Tile>
struct StepTokens {
    uint32_t slots[Tile::kStepSlots];

    /// Address of a token's row. (No index that is computed: the array would leave the registers.)
    __device__ __forceinline__ uint32_t row(int token) const {
        const uint32_t slot = token < kSlotTokens ? slots[0] : slots[Tile::kStepSlots - 1];
        return slot + token % kSlotTokens * CodedRow::kBytes;
    }
};

/// Bulk copies (sm_90), for the warps that compute: every thread waits for the slots' barriers.
template <class Tile>
struct BulkRing {
    uint32_t base;  // shared address
    RingPlace<Tile::kSlots> next, oldest;
    TokenSource source{};

    __device__ __forceinline__ explicit BulkRing(uint32_t shared) : base(shared) {}

    /// Full barriers of all slots, then empty ones.
    __device__ __forceinline__ uint32_t full(int slot) const { return base + Tile::kBarriers + slot * 8; }
    __device__ __forceinline__ uint32_t empty(int slot) const { return full(Tile::kSlots + slot); }

    __device__ __forceinline__ void begin(const TokenSource& piece) { source = piece; }

    __device__ __forceinline__ StepTokens<Tile> acquire(int step) {
        StepTokens<Tile> tokens;
#pragma unroll
        for (int i = 0; i < Tile::kStepSlots; ++i) {
            mbarrier_wait(full(next.slot), next.parity);
            tokens.slots[i] = base + next.slot * Tile::kSlotBytes;
            next.advance();
        }
        const int valid = source.length - step * Tile::kTokens;
        if (valid < Tile::kTokens) {  // the request's last step: codes, scales and rotary columns behind it become zero
            constexpr int kChunks = CodedRow::kBytes / 16;
            int i = valid * kChunks + static_cast<int>(threadIdx.x);
#pragma unroll 1
            for (; i < Tile::kTokens * kChunks; i += Tile::kWorkers) {
                const uint32_t to = tokens.row(i / kChunks) - base + i % kChunks * 16;
                *reinterpret_cast<uint4*>(dynamic_shared() + to) = make_uint4(0, 0, 0, 0);
            }
            fence_async_shared();  // a later copy into these slots comes behind these writes
            Tile::meet();
        }
        return tokens;
    }

    __device__ __forceinline__ void release() {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < Tile::kStepSlots; ++i) {
            if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(oldest.slot));
            oldest.advance();
        }
    }
};

/// The warp that issues bulk copies: slot after slot of all pieces, as soon as the slot is empty.
template <class Tile>
struct BulkProducer {
    const BulkRing<Tile> ring;
    const int lane;
    RingPlace<Tile::kSlots> place;

    /// Page number of this lane in the run of 32 that starts `first` pages into the piece.
    __device__ __forceinline__ int read_pages(const TokenSource& source, int first) const {
        const int page = source.begin * Tile::kTokens / CodedRow::kPage + first + lane;
        return page * CodedRow::kPage < min(source.length, source.end * Tile::kTokens) ? __ldg(source.table + page) : 0;
    }

    __device__ __forceinline__ void produce(const TokenSource& source) {
        int pages = read_pages(source, 0), next_pages = read_pages(source, 32);
        const int first = source.begin * Tile::kTokens, first_page = first / CodedRow::kPage;
        for (int token = first; token < source.end * Tile::kTokens; token += kSlotTokens) {
            const int page = token / CodedRow::kPage - first_page;
            if (token % CodedRow::kPage == 0 && page > 0 && page % 32 == 0) {
                pages = next_pages;
                next_pages = read_pages(source, page + 32);
            }
            const int number = __shfl_sync(0xffffffffu, pages, page % 32);
            const size_t row = static_cast<size_t>(number) * CodedRow::kPage + token % CodedRow::kPage;
            const uint32_t bytes = max(0, min(kSlotTokens, source.length - token)) * CodedRow::kBytes;
            const uint32_t full = ring.full(place.slot);
            mbarrier_wait(ring.empty(place.slot), place.parity ^ 1);
            if (lane == 0) {
                mbarrier_arrive_expect(full, bytes);
                if (bytes > 0) {
                    bulk_load(ring.base + place.slot * Tile::kSlotBytes, source.cache + row * CodedRow::kBytes, bytes, full);
                }
            }
            place.advance();
        }
    }
};

/// cp.async by all threads (Ada). A step is a slot.
template <class Tile>
struct AsyncRing {
    static constexpr int kAhead = Tile::kSlots - Tile::kBuffers;  // steps under way besides those in use
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

    __device__ __forceinline__ StepTokens<Tile> acquire(int step) {
        cp_async_wait<kAhead - 1>();
        Tile::meet();  // the step's tokens are there; everyone is done with the slot that is filled next
        fill(step + kAhead, page, slot + kAhead < Tile::kSlots ? slot + kAhead : slot + kAhead - Tile::kSlots);
        page = page_of(step + kAhead + 1);
        const StepTokens<Tile> tokens = {{base + slot * Tile::kSlotBytes}};
        slot = slot + 1 < Tile::kSlots ? slot + 1 : 0;
        return tokens;
    }

    __device__ __forceinline__ void release() {}
};
