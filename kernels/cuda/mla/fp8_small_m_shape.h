// SPDX-License-Identifier: MIT
// MLA decode of 16 rows over e4m3 codes on wgmma: shared memory, and each warp's schedule, worked out early.
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "mla/fp8_shape.h"
#include "mla/wgmma_shape.h"
#include "ptx/atomic.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"

namespace mla {

// MLA decode over e4m3 codes on wgmma with tokens as the rows of both products: what lies where in shared memory.
//
// See mla_decode_fp8/wgmma_bulk.cu for the algorithm.

/// 16 query rows by whole pages of 64 tokens, which two warpgroups take in turns. kSlots slots of half a page lie in shared memory,
/// rows as they are in the cache.
template <int kSlots_>
struct Fp8SmallMShape {
    static constexpr int kSlots = kSlots_;
    using Row = Fp8Row;
    using Schedule =
        DecodeScheduleOf<PageSchedule::kTokens, PageSchedule::kStartSteps, PageSchedule::kLeastSteps, true, false>;
    using Arguments = Fp8Arguments<Schedule>;
    static constexpr int kRows = 16, kTokens = PageSchedule::kTokens;
    // Queries in the 128-byte swizzle: for each scale's 128 columns a panel of their larger e4m3 terms and one of the smaller ones
    // (mla/fp8_small_m_products.h), then the rotary columns, bf16.
    static constexpr int kPanels = 2 * Row::kGroups + 1;
    static constexpr int kPanelBytes = kRows * 128;
    static constexpr int kBlocks = Row::kLatent / 64;  // 64 columns of the output: the rows of one product
    static constexpr int kSums = 8;                    // accumulators of a product in a thread
    static constexpr int kConsumers = 256, kThreads = kConsumers + 128;
    static constexpr int kConsumerRegisters = 224, kProducerRegisters = 56;
    static constexpr bool kDropFirst = false;  // whether L2 is told to drop pages first

    static constexpr int kWeights =
        kPanels * kPanelBytes;  // [group of warps][scale][row][token], fp16, behind the queries
    static constexpr int kWeightPlane = kRows * 128;
    static constexpr int kSlot = kWeights + 2 * Row::kGroups * kWeightPlane;
    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    static constexpr int kMaxima = kSlot + kSlots * kSlotBytes;      // [group][warp][row] floats
    static constexpr int kTotals = kMaxima + 2 * 4 * kRows * 4;      // [group][warp][row]: shares of sums
    static constexpr int kReferences = kTotals + 2 * 4 * kRows * 4;  // [group][row]
    static constexpr int kFactors = kReferences + 2 * kRows * 4;     // [row]: what the queries were divided by
    static constexpr int kLargest = kFactors + kRows * 4;            // [group][warp]: of the scales
    static constexpr int kUnits = kLargest + 2 * 4 * 4;              // [group]: of the weights
    static constexpr int kBarriers = kUnits + 16;
    static constexpr uint32_t kPageBarriers = 8, kEmpty = 8;  // kEmpty: the first one behind them
    static constexpr int kSame =
        kBarriers + (kPageBarriers + kSlots + 3) * 8;  // behind [page] full, [slot] empty, [group] read, checked
    static constexpr int kPlans = (kSame + 8 + 15) / 16 * 16;  // [warp]: Fp8SmallMPlan::Kept
    static constexpr int kPlanBytes = 48;
    static constexpr int kLengths = kPlans + kConsumers / 32 * kPlanBytes;
    static constexpr int kMostLengths = 1024;                 // of so many requests
    static constexpr int kCut = kLengths + kMostLengths * 4;  // [2]: CutRequest
    static constexpr int kSharedBytes = kCut + 2 * 12;

    /// At the end of a piece the warpgroups exchange halves of the output's columns, fp32, in place of queries and weights. The
    /// pitch spreads the accumulators of a warp over all banks.
    static constexpr int kHalf = Row::kLatent / 2, kClusterReducePitch = kHalf + 4;  // floats
    static constexpr int kClusterReduceBytes = kRows * kClusterReducePitch * 4;
    static_assert(2 * kClusterReduceBytes <= kSlot, "the exchange fits where queries and weights were");

    /// A part that blocks of a cluster add up, fp32, in place of pages: a row is its columns, then its LSE.
    static constexpr int kPartPitch = Row::kLatent + 4;  // floats, spread over the banks as above
    static_assert(kRows * kPartPitch * 4 <= kSlots * kSlotBytes, "a part fits where pages were");
    static_assert(
        kPageBarriers % 2 == 0 && 2 * kPageBarriers > kSlots,
        "a barrier's pages are one group's, and one of them is under way");
    static_assert(kSlotBytes % 128 == 0 && kBarriers % 16 == 0, "bulk copies and barriers are aligned");
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};

/// A request that is cut: the chunks that have pages of it, the first one and how many.
struct CutRequest {
    int request, first, count;
};

template <class Shape>
struct Fp8SmallMMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint8_t* at(uint32_t shared) const { return start + (shared - base); }
    __device__ __forceinline__ uint32_t query(int panel) const { return base + panel * Shape::kPanelBytes; }
    __device__ __forceinline__ uint32_t weights(int group, int scale) const {
        return base + Shape::kWeights + (group * Fp8Row::kGroups + scale) * Shape::kWeightPlane;
    }
    __device__ __forceinline__ uint32_t slot(uint32_t index) const {
        return base + Shape::kSlot + index * Shape::kSlotBytes;
    }
    __device__ __forceinline__ float* exchange(int half) const {
        return reinterpret_cast<float*>(start + half * Shape::kClusterReduceBytes);
    }
    __device__ __forceinline__ float* maxima(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kMaxima) + (group * 4 + warp) * Shape::kRows;
    }
    __device__ __forceinline__ float* totals(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kTotals) + (group * 4 + warp) * Shape::kRows;
    }
    __device__ __forceinline__ float* references(int group) const {
        return reinterpret_cast<float*>(start + Shape::kReferences) + group * Shape::kRows;
    }
    __device__ __forceinline__ float* factors() const { return reinterpret_cast<float*>(start + Shape::kFactors); }
    __device__ __forceinline__ float* largest(int group) const {
        return reinterpret_cast<float*>(start + Shape::kLargest) + group * 4;
    }
    __device__ __forceinline__ float* part() const { return reinterpret_cast<float*>(start + Shape::kSlot); }
    /// Lengths as they were when the block started, and whether they still are.
    __device__ __forceinline__ int* lengths() const { return reinterpret_cast<int*>(start + Shape::kLengths); }
    template <class Plan>
    __device__ __forceinline__ Plan& plan(int warp) const {
        static_assert(sizeof(Plan) <= Shape::kPlanBytes, "plans fit");
        return *reinterpret_cast<Plan*>(start + Shape::kPlans + warp * Shape::kPlanBytes);
    }
    __device__ __forceinline__ int* same() const { return reinterpret_cast<int*>(start + Shape::kSame); }
    /// Of a block's cut requests, the one that it starts or the one that it does not; none where the count is 0.
    __device__ __forceinline__ CutRequest& cut(bool starts) const {
        return reinterpret_cast<CutRequest*>(start + Shape::kCut)[starts ? 1 : 0];
    }
    __device__ __forceinline__ float* units() const { return reinterpret_cast<float*>(start + Shape::kUnits); }

    /// A page has landed, both halves of it. A barrier has pages of one group only. Slots, an odd number, have those of both in turns,
    /// which read at their own pace, and copies land in any order: a group that is ahead would find its parity at a slot's barrier before the
    /// other group's page had landed there.
    __device__ __forceinline__ uint32_t full(uint32_t page) const { return barrier(page % Shape::kPageBarriers); }
    static __device__ __forceinline__ uint32_t full_parity(uint32_t page) { return page / Shape::kPageBarriers % 2; }
    /// What a page's copy to a slot reports to.
    __device__ __forceinline__ uint32_t landed(uint32_t, uint32_t page) const { return full(page); }
    /// Half a page is read.
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return barrier(Shape::kEmpty + slot); }
    /// A warpgroup's weights are read.
    __device__ __forceinline__ uint32_t read(int group) const { return barrier(Shape::kEmpty + Shape::kSlots + group); }
    /// same() is known.
    __device__ __forceinline__ uint32_t checked() const { return barrier(Shape::kEmpty + Shape::kSlots + 2); }

private:
    __device__ __forceinline__ uint32_t barrier(uint32_t number) const { return base + Shape::kBarriers + number * 8; }
};

// What a warp of the MLA decode over e4m3 codes has to do, worked out before the kernel before has ended (16 rows).
//
// A block knows its first piece only after some 2000 cycles of arithmetic on the requests' lengths. So it copies the lengths to shared
// memory as they are when it starts, which may be before the kernel that writes them has ended, and works with these; then it waits
// for that kernel, reads them again, and starts anew if any is another. Not with few requests (Fp8Arguments::guess).

/// Ask a chunk's first page into L2 as soon as a block starts: a hint, by lengths and page numbers as they are then, which may be before
/// the kernel that writes them has ended. Only where requests are equal and as long as they may be: what a chunk begins with is then known
/// without arithmetic. Memory has nothing else to do between two launches; of two pages or more, what the end of the kernel before waits
/// for would be behind them in the queue. One warp.
template <class Shape>
__device__ __forceinline__ void fetch_first_page(const typename Shape::Arguments& a, int chunk, int lane) {
    constexpr uint32_t kBytes = Fp8Row::kPage * Fp8Row::kBytes;
    const auto& schedule = a.schedule;
    if (schedule.share_inverse == 0) return;
    const int request = chunk * schedule.share_inverse >> 20, share = chunk - request * schedule.shares;
    if (request >= schedule.batch) return;
    // What the chunks of a request have too many is missing at the first one's start.
    const int page = max(0, share * schedule.full_chunk - (schedule.shares * schedule.full_chunk - schedule.full));
    const int number = peek(a.block_table + request * a.max_blocks + page);
    bool same = true;
#pragma unroll 1
    for (int first = lane; first < schedule.batch; first += 128) {
        int length[4];  // read at once
#pragma unroll
        for (int i = 0; i < 4; ++i) length[i] = peek(schedule.seqlens + min(first + 32 * i, schedule.batch - 1));
#pragma unroll
        for (int i = 0; i < 4; ++i) same = same && ceil_div(length[i], Shape::kTokens) == schedule.full;
    }
    if (__any_sync(0xffffffffu, !same) || lane != 0 || number < 0 || number >= a.pages) return;
    prefetch_l2(a.cache + static_cast<size_t>(number) * kBytes, kBytes);
}

template <class Shape>
struct Fp8SmallMPlan {
    using Arguments = typename Shape::Arguments;

    const Fp8SmallMMemory<Shape>& memory;
    const Arguments& a;
    DecodeScheduler scheduler;  // behind the piece
    DecodePiece piece;          // the first one
    bool any;                   // whether there is one
    bool copied;                // whether the copied lengths are right

    /// What lies in shared memory while a warp multiplies, for which it would have no registers.
    struct Kept {
        DecodeScheduler scheduler;
        DecodePiece piece;
        bool copied;
    };
    __device__ __forceinline__ void keep(int warp) const {
        Kept& kept = memory.template plan<Kept>(warp);
        kept.scheduler = scheduler, kept.piece = piece, kept.copied = copied;
        __syncwarp();  // all lanes write the same, and each reads what another may have written
    }
    __device__ __forceinline__ void take_back(int warp) {
        const Kept& kept = memory.template plan<Kept>(warp);
        // The compiler must see that warps stay whole, or it works out the products' addresses thread by thread.
        scheduler.request = warp_uniform(kept.scheduler.request), scheduler.start = warp_uniform(kept.scheduler.start);
        scheduler.begin = warp_uniform(kept.scheduler.begin), scheduler.end = warp_uniform(kept.scheduler.end);
        scheduler.extra = warp_uniform(kept.scheduler.extra), scheduler.known = warp_uniform(kept.scheduler.known);
        scheduler.shares = warp_uniform(kept.scheduler.shares);
        piece.request = warp_uniform(kept.piece.request);
        piece.steps.begin = warp_uniform(kept.piece.steps.begin), piece.steps.end = warp_uniform(kept.piece.steps.end);
        const int flags = warp_uniform((kept.piece.first ? 1 : 0) + (kept.piece.last ? 2 : 0) + (kept.copied ? 4 : 0));
        piece.first = (flags & 1) != 0, piece.last = (flags & 2) != 0, copied = (flags & 4) != 0, any = true;
    }

    static __device__ __forceinline__ bool copies(const Arguments& a) {
        return a.guess && a.schedule.batch <= Shape::kMostLengths;
    }

    /// By all threads of the block: the lengths as they are now.
    static __device__ __forceinline__ void copy_lengths(const Fp8SmallMMemory<Shape>& memory, const Arguments& a) {
        if (!copies(a)) return;
#pragma unroll 1
        for (int b = static_cast<int>(threadIdx.x); b < a.schedule.batch; b += Shape::kThreads) {
            memory.lengths()[b] = peek(a.schedule.seqlens + b);
        }
    }

    /// How the batch is cut; reads the lengths where they are at hand.
    __device__ __forceinline__ typename Shape::Schedule schedule() const {
        typename Shape::Schedule schedule = a.schedule;
        if (copied) schedule.seqlens = memory.lengths();
        return schedule;
    }
    /// Whether requests are cut alike, one for each cluster.
    __device__ __forceinline__ bool alike() const { return a.cluster > 1 && scheduler.shares != 0; }
    __device__ __forceinline__ void next() { any = scheduler.next(schedule(), piece); }

    /// Who shares the piece's request, where the last to be ready merges: only chunks with pages of it. A piece that is the only one of
    /// them, or starts a request without tokens, becomes whole; one without pages then has nothing to do.
    __device__ __forceinline__ CutRequest share() {
        CutRequest shared = {piece.request, 0, 1};
        // The compiler must see that warps stay whole.
        const int ends = warp_uniform((piece.first ? 1 : 0) + (piece.last ? 2 : 0));
        if (ends == 3) return shared;
        const int steps = warp_uniform(schedule().steps(piece.request)), chunk = scheduler.end - scheduler.begin;
        if (steps == 0) {
            piece.last = piece.first;
            return shared;
        }
        shared.first = (scheduler.start - steps) / chunk;
        shared.count = (scheduler.start - 1) / chunk - shared.first + 1;
        if (shared.count == 1 && piece.steps.begin < piece.steps.end) piece.first = piece.last = true;
        return shared;
    }

    /// Also waits for the kernel before. `ask` is called once that has ended and a piece is known; it asks for what the piece
    /// begins with, once more if it was the wrong one. One warp of the block `checks` the lengths for all.
    template <class Ask>
    __device__ __forceinline__
    Fp8SmallMPlan(const Fp8SmallMMemory<Shape>& memory_, const Arguments& a_, int chunk, int lane, bool checks, Ask ask)
        : memory(memory_), a(a_), copied(copies(a_)) {
        // Not a loop: in one the compiler does not see that warps stay whole, and the products' addresses cost 300 instructions a page.
        if (copied) {
            find(chunk, lane);
            grid_dependency_wait();
            if (any) ask(piece);
            if (checks ? check(lane) : told()) return;
            copied = false;
        } else {
            grid_dependency_wait();
        }
        find(chunk, lane);
        if (any) ask(piece);
    }

private:
    __device__ __forceinline__ void find(int chunk, int lane) {
        scheduler = DecodeScheduler(schedule(), chunk, lane);
        next();
    }
    /// Whether the lengths still are those that were copied; tells the other warps. All lanes of a warp.
    __device__ __forceinline__ bool check(int lane) const {
        int other = 0;
#pragma unroll 1
        for (int first = lane; first < a.schedule.batch; first += 128) {
            int now[4];  // read at once
#pragma unroll
            for (int i = 0; i < 4; ++i) now[i] = peek(a.schedule.seqlens + min(first + 32 * i, a.schedule.batch - 1));
#pragma unroll
            for (int i = 0; i < 4; ++i) other |= now[i] ^ memory.lengths()[min(first + 32 * i, a.schedule.batch - 1)];
        }
        const bool same = !__any_sync(0xffffffffu, other != 0);
        if (lane == 0) {
            *memory.same() = same;
            mbarrier_arrive(memory.checked());
        }
        return same;
    }
    __device__ __forceinline__ bool told() const {
        mbarrier_wait(memory.checked(), 0);
        return __any_sync(0xffffffffu, *memory.same() != 0);  // a vote: the compiler must see that warps stay whole
    }
};

}  // namespace mla
