// SPDX-License-Identifier: MIT
// The memory that malloc and new give in kernels, until free or delete takes it back, in whatever launch.
//
// Source: CUDA C++ Programming Guide, section "Dynamic Global Memory Allocation and Operations".
#pragma once

#include <atomic>
#include <map>
#include <shared_mutex>
#include <string>

#include "types.h"

namespace emu::ptx {

/// All functions may be called from any thread.
class Heap {
public:
    static Heap& instance();

    /// cudaLimitMallocHeapSize, in bytes: what all allocations may have together, each rounded up to 16 bytes.
    u64 limit() const;
    /// False: a kernel that allocates has been launched, and the limit stays as it is.
    bool set_limit(u64 bytes);
    /// A launch begins that may allocate. Throws std::bad_alloc.
    void open();
    /// Whether there has been such a launch.
    bool is_open() const { return begin_.load(std::memory_order_acquire) != 0; }
    /// All allocations end; the limit is kept.
    void reset();

    /// Memory at a multiple of 16, whose bits are all set; 0: there is none left. `written`: reads before writes are no findings.
    u64 allocate(u64 bytes, bool written);
    /// What is wrong with the address; "": its memory is free now.
    std::string release(u64 address);

    /// Whether the bytes are those of one allocation.
    bool contains(u64 address, u64 bytes) const;
    /// Where allocations may lie.
    u64 begin() const { return begin_; }
    u64 end() const { return begin_ + size_; }
    bool spans(u64 address) const { return is_open() && address >= begin() && address < end(); }
    /// The allocation that the address is in or near to, and how far.
    std::string neighbourhood(u64 address) const;

    /// Of bytes in an allocation: they are written; whether none of them has been.
    void write(u64 address, u64 bytes);
    bool unwritten(u64 address, u64 bytes) const;
    /// Nobody looks at what the next launch writes: all that is allocated counts as written.
    void trust();

private:
    using Blocks = std::map<u64, u64>;  // bytes, by address
    u64 place(u64 bytes);
    void take(Blocks::iterator gap, u64 at, u64 bytes);
    void give_back(u64 at, u64 bytes);
    void forget_freed(u64 at, u64 bytes);
    static const Blocks::value_type* at_or_before(const Blocks& blocks, u64 address);

    mutable std::shared_mutex mutex_;
    u64 limit_ = u64{8} << 20;
    u64 used_ = 0;
    std::atomic<u64> begin_{0};
    u64 size_ = 0;
    u8* written_ = nullptr;  // by byte: whether anybody has written it
    Blocks live_, freed_;    // as large as was asked for
    Blocks gaps_;
    u64 next_ = 0;  // where the search for a gap begins: what was freed is given again as late as possible
};

}  // namespace emu::ptx
