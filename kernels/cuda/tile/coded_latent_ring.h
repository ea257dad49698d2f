// SPDX-License-Identifier: MIT
// How a piece's tokens come to shared memory: a ring of slots of 32 tokens, filled by bulk copies or by cp.async.
//
// Tokens of a page are contiguous, and lie in a slot as they do in memory, so a slot is one bulk copy. Slots hold NaN behind
// a request's length: those rows are not read, and are zero before a step uses them. Page numbers are read ahead of their
// use, and never behind the length.
//
//   Ring ring(...);                      // once per block
//   ring.begin(piece ...);               // copies start
//   for each step: ring.acquire(step);   // its tokens are there, the ones before are let go
//   ring.end();
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "ptx/cp_async.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "tile/coded_latent_shape.h"

/// Where a piece's tokens lie in global memory.
struct TokenSource {
    const uint8_t* cache;
    const int* table;  // the request's
    int length;        // tokens of the request
    int begin, end;    // steps of the piece
};

/// Bulk copies (sm_90): warp 0 issues them, every thread waits for the slots' barriers.
template <class Tile>
struct BulkRing {
    uint32_t base;          // shared address
    int slot = 0;           // the step's first
    uint32_t parity = 0;    // of that slot's current round
    // Warp 0: what is copied next.
    int filled_slot = 0, filled = 0;       // ring slot; slots of the piece so far
    int pages = 0, next_pages = 0;         // page numbers, one per lane: of this run of 32 pages and the next one
    TokenSource source{};

    __device__ __forceinline__ explicit BulkRing(uint32_t shared) : base(shared) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < Tile::kSlots; ++i) mbarrier_init(barrier(i), 1);
            mbarrier_fence_init();
        }
        __syncthreads();
    }

    __device__ __forceinline__ uint32_t barrier(int slot_) const { return base + Tile::kBarriers + slot_ * 8; }
    /// Slot `i` of the step.
    __device__ __forceinline__ uint32_t tokens(int i) const {
        const int at = slot + i < Tile::kSlots ? slot + i : slot + i - Tile::kSlots;
        return base + at * Tile::kSlotBytes;
    }

    /// Page numbers of this lane in the run that starts `first` pages into the piece.
    __device__ __forceinline__ int read_pages(int first) const {
        const int page = source.begin * Tile::kTokens / CodedRow::kPage + first + static_cast<int>(threadIdx.x) % 32;
        return page * CodedRow::kPage < source.length && page * CodedRow::kPage < source.end * Tile::kTokens
            ? __ldg(source.table + page) : 0;
    }

    /// Ask for the piece's slots up to `count`. Warp 0.
    __device__ __forceinline__ void fill(int count) {
        count = min(count, (source.end - source.begin) * Tile::kStepSlots);
        for (; filled < count; ++filled) {
            const int token = source.begin * Tile::kTokens + filled * kSlotTokens;
            const int page = token / CodedRow::kPage - source.begin * Tile::kTokens / CodedRow::kPage;
            const bool starts_page = token % CodedRow::kPage == 0;
            if (starts_page && filled > 0 && page % 32 == 0) {
                pages = next_pages;
                next_pages = read_pages(page + 32);
            }
            const int number = __shfl_sync(0xffffffffu, pages, page % 32);
            if (threadIdx.x == 0) {
                const uint32_t bytes = max(0, min(kSlotTokens, source.length - token)) * CodedRow::kBytes;
                mbarrier_arrive_expect(barrier(filled_slot), bytes);
                if (bytes > 0) {
                    const size_t row = static_cast<size_t>(number) * CodedRow::kPage + token % CodedRow::kPage;
                    bulk_copy(base + filled_slot * Tile::kSlotBytes, source.cache + row * CodedRow::kBytes, bytes,
                              barrier(filled_slot));
                }
            }
            filled_slot = filled_slot + 1 < Tile::kSlots ? filled_slot + 1 : 0;
        }
    }

    /// Start a piece. Every thread is done with the one before.
    __device__ __forceinline__ void begin(const TokenSource& piece) {
        source = piece;
        filled = 0;
        if (threadIdx.x < 32) {
            pages = read_pages(0);
            next_pages = read_pages(32);
            fill(Tile::kSlots);
        }
    }

    /// Wait for the tokens of a step. All threads.
    __device__ __forceinline__ void acquire(int step) {
        const int before = (step - source.begin) * Tile::kStepSlots;  // slots of the piece that are used up
        if (before > 0) {
            __syncthreads();  // everyone is done with the step before
            if (threadIdx.x < 32) fill(before + Tile::kSlots);
            advance();
        }
        const bool wraps = Tile::kStepSlots > 1 && slot + 1 == Tile::kSlots;
        mbarrier_wait(barrier(slot), parity);
        if (Tile::kStepSlots > 1) mbarrier_wait(barrier(wraps ? 0 : slot + 1), wraps ? parity ^ 1 : parity);
        const int valid = source.length - step * Tile::kTokens;
        if (valid < Tile::kTokens) {  // the request's last step: codes, scales and rotary columns behind it become zero
            constexpr int kChunks = CodedRow::kBytes / 16;
            for (int i = valid * kChunks + static_cast<int>(threadIdx.x); i < Tile::kTokens * kChunks; i += Tile::kThreads) {
                const int half = i / (kSlotTokens * kChunks), at = slot + half < Tile::kSlots ? slot + half : 0;
                uint8_t* const to = dynamic_shared() + at * Tile::kSlotBytes + i % (kSlotTokens * kChunks) * 16;
                *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
            }
            fence_async_shared();  // a later copy into these slots comes behind these writes
            __syncthreads();
        }
    }

    __device__ __forceinline__ void advance() {
        slot += Tile::kStepSlots;
        if (slot >= Tile::kSlots) {
            slot -= Tile::kSlots;
            parity ^= 1;
        }
    }

    /// All steps of the piece have been acquired; everyone is done with the last one.
    __device__ __forceinline__ void end() { advance(); }
};

/// cp.async by all threads (Ada).
template <class Tile>
struct AsyncRing {
    uint32_t base;
    int slot = 0;
    int page = 0;  // of the step that is copied next
    TokenSource source{};

    __device__ __forceinline__ explicit AsyncRing(uint32_t shared) : base(shared) {}

    __device__ __forceinline__ uint32_t tokens(int) const { return base + slot * Tile::kSlotBytes; }

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

    __device__ __forceinline__ void begin(const TokenSource& piece) {
        source = piece;
        slot = 0;
#pragma unroll
        for (int ahead = 0; ahead < Tile::kSlots - 1; ++ahead) {
            fill(source.begin + ahead, page_of(source.begin + ahead), ahead);
        }
        page = page_of(source.begin + Tile::kSlots - 1);
    }

    __device__ __forceinline__ void acquire(int step) {
        if (step > source.begin) slot = slot + 1 < Tile::kSlots ? slot + 1 : 0;
        cp_async_wait<Tile::kSlots - 2>();
        __syncthreads();  // the step's tokens are there; everyone is done with the slot that is filled next
        fill(step + Tile::kSlots - 1, page, slot > 0 ? slot - 1 : Tile::kSlots - 1);
        page = page_of(step + Tile::kSlots);
    }

    __device__ __forceinline__ void end() { cp_async_wait<0>(); }
};
