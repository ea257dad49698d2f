// SPDX-License-Identifier: MIT
// What a warp of the MLA decode over e4m3 codes has to do, worked out before the kernel before has ended (16 rows).
//
// A block knows its first piece only after some 2000 cycles of arithmetic on the requests' lengths. So it copies the lengths to shared
// memory as they are when it starts, which may be before the kernel that writes them has ended, and works with these; then it waits
// for that kernel, reads them again, and starts anew if any is another. Not with few requests (CodedArguments::guess).
#pragma once

#include "ceil_div.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/prefetch.h"
#include "ptx/turn.h"
#include "ptx/warp_uniform.h"
#include "tile/wgmma_coded_shape.h"

/// Ask a chunk's first page into L2 as soon as a block starts: a hint, by lengths and page numbers as they are then, which may be before
/// the kernel that writes them has ended. Only where requests are equal and as long as they may be: what a chunk begins with is then known
/// without arithmetic. Memory has nothing else to do between two launches; of two pages or more, what the end of the kernel before waits
/// for would be behind them in the queue. One warp.
template <class Shape>
__device__ __forceinline__ void fetch_first_page(const typename Shape::Arguments& a, int chunk, int lane) {
    constexpr uint32_t kBytes = CodedRow::kPage * CodedRow::kBytes;
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
        int length[4];   // read at once
#pragma unroll
        for (int i = 0; i < 4; ++i) length[i] = peek(schedule.seqlens + min(first + 32 * i, schedule.batch - 1));
#pragma unroll
        for (int i = 0; i < 4; ++i) same = same && ceil_div(length[i], Shape::kTokens) == schedule.full;
    }
    if (__any_sync(0xffffffffu, !same) || lane != 0 || number < 0 || number >= a.pages) return;
    prefetch_l2(a.cache + static_cast<size_t>(number) * kBytes, kBytes);
}

template <class Shape>
struct CodedPlan {
    using Arguments = typename Shape::Arguments;

    const CodedMemory<Shape>& memory;
    const Arguments& a;
    DecodeWalk walk;     // behind the piece
    DecodePiece piece;   // the first one
    bool any;            // whether there is one
    bool copied;         // whether the copied lengths are right

    /// What lies in shared memory while a warp multiplies, for which it would have no registers.
    struct Kept {
        DecodeWalk walk;
        DecodePiece piece;
        bool copied;
    };
    __device__ __forceinline__ void keep(int warp) const {
        Kept& kept = memory.template plan<Kept>(warp);
        kept.walk = walk, kept.piece = piece, kept.copied = copied;
    }
    __device__ __forceinline__ void take_back(int warp) {
        const Kept& kept = memory.template plan<Kept>(warp);
        // The compiler must see that warps stay whole, or it works out the products' addresses thread by thread.
        walk.request = warp_uniform(kept.walk.request), walk.start = warp_uniform(kept.walk.start);
        walk.begin = warp_uniform(kept.walk.begin), walk.end = warp_uniform(kept.walk.end);
        walk.extra = warp_uniform(kept.walk.extra), walk.known = warp_uniform(kept.walk.known);
        walk.shares = warp_uniform(kept.walk.shares);
        piece.request = warp_uniform(kept.piece.request);
        piece.steps.begin = warp_uniform(kept.piece.steps.begin), piece.steps.end = warp_uniform(kept.piece.steps.end);
        const int flags = warp_uniform((kept.piece.first ? 1 : 0) + (kept.piece.last ? 2 : 0) + (kept.copied ? 4 : 0));
        piece.first = (flags & 1) != 0, piece.last = (flags & 2) != 0, copied = (flags & 4) != 0, any = true;
    }

    static __device__ __forceinline__ bool copies(const Arguments& a) {
        return a.guess && a.schedule.batch <= Shape::kMostLengths;
    }

    /// By all threads of the block: the lengths as they are now.
    static __device__ __forceinline__ void copy_lengths(const CodedMemory<Shape>& memory, const Arguments& a) {
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
    __device__ __forceinline__ bool alike() const { return a.cluster > 1 && walk.shares != 0; }
    __device__ __forceinline__ void next() { any = walk.next(schedule(), piece); }

    /// Also waits for the kernel before. `ask` is called once that has ended and a piece is known; it asks for what the piece
    /// begins with, once more if it was the wrong one. One warp of the block `checks` the lengths for all.
    template <class Ask>
    __device__ __forceinline__ CodedPlan(
        const CodedMemory<Shape>& memory_, const Arguments& a_, int chunk, int lane, bool checks, Ask ask)
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
        walk = DecodeWalk(schedule(), chunk, lane);
        next();
    }
    /// Whether the lengths still are those that were copied; tells the other warps. All lanes of a warp.
    __device__ __forceinline__ bool check(int lane) const {
        int other = 0;
#pragma unroll 1
        for (int first = lane; first < a.schedule.batch; first += 128) {
            int now[4];   // read at once
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
        return __any_sync(0xffffffffu, *memory.same() != 0);   // a vote: the compiler must see that warps stay whole
    }
};
