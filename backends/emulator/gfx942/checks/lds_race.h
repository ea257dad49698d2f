// SPDX-License-Identifier: MIT
// Two waves of a workgroup at the same place in LDS without a barrier between, at least one of them writing, not both atomic;
// and a wave at a place where its own load from memory to LDS is still under way.
#pragma once

#include <algorithm>
#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct LdsRaceGroup {
    /// One a dword of LDS, or less: side by side, so that 64 of them are looked at together.
    struct Cells {
        std::vector<u64> state;  // what touched it since which barrier: see lds_race.cpp
        std::vector<u32> write_op, read_op;
        void assign(size_t count) {
            state.assign(count, 0);
            write_op.resize(count);
            read_op.resize(count);
        }
    };
    struct Open {  // issued, and perhaps not done
        const Op* op = nullptr;
        u64 lanes = 0, sequence = 0;       // which of the instructions that its counter counts
        u32 bytes = 0, low = 0, high = 0;  // all of it lies in [low, high)
        AccessKind kind{};
        alignas(64) u32 address[kLanes];
    };
    /// The oldest come first. Places are used again, since accesses come and go all the time.
    class Queue {
    public:
        u64 issued = 0, any_order = 0;  // the last instruction that comes back in any order; 0: none is under way

        const Open* begin() const { return open_.data() + first_; }
        const Open* end() const { return open_.data() + end_; }
        size_t size() const { return end_ - first_; }
        bool empty() const { return end_ == first_; }
        void clear() { first_ = end_ = 0; }
        void reset() {
            clear();
            issued = any_order = 0;
        }
        void drop_first() {
            if (++first_ == end_) clear();
        }
        /// A place at the end, which is as its last user left it.
        Open& add() {
            if (end_ == open_.size() && first_ >= end_ / 2 && first_) {
                std::move(open_.begin() + static_cast<long>(first_), open_.end(), open_.begin());
                end_ -= first_;
                first_ = 0;
            } else if (end_ == open_.size()) {
                open_.emplace_back();
            }
            return open_[end_++];
        }

    private:
        std::vector<Open> open_;
        size_t first_ = 0, end_ = 0;
    };
    struct Queues {
        Queue vm, lgkm;
    };
    struct Doubt {  // a write over another wave's: a race unless it is of the same value
        u32 cell, address;
        int lane;
        u64 before;  // what the cell held
    };
    Cells cells;
    u32 grain_shift = 2;  // bytes of a cell, as a power of two
    std::vector<Queues> waves;
    std::vector<Doubt> doubts;  // of the instruction that runs
};

void begin(LdsRaceGroup&, const Workgroup&, u32 grain);
namespace lds_race {
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
void before(Wave&, const Op&);  // notices what s_waitcnt waits for
void after(Wave&, const Op&);   // counts, and looks at what was written
void at_barrier(Workgroup&);
}  // namespace lds_race

}  // namespace emu::checks
