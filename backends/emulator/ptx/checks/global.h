// SPDX-License-Identifier: MIT
// Global memory that a launch has written: who wrote each word last. Memory that is only read costs nothing.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "../ranges.h"

namespace emu::ptx {

/// The newest write of a word of four bytes.
struct WordWrite {
    u32 cluster = 0;  // its number plus 1; 0: nobody has written
    u32 time = 0, op = 0;
    u16 who = 0;
    u8 mask = 0;  // bytes of the word
    u8 flags = 0;
    u32 value = 0;  // of the word then
};
/// WordWrite::flags
constexpr u8 kByAsync = 1, kByStrong = 2, kAfterAcquire = 4;

class GlobalShadow {
public:
    static constexpr u64 kPage = 4096;
    struct Page {
        std::mutex mutex;
        WordWrite words[kPage / 4];
    };
    explicit GlobalShadow(const Ranges& ranges) : ranges_(ranges), tables_(ranges.count()) {}
    /// The page of an address in allocation `range`; null if nobody has written to it. `make`: somebody does now.
    Page* page(size_t range, u64 address, bool make);
    /// Whether anything of the allocation has been written.
    bool touched(size_t range) const { return tables_[range].load(std::memory_order_acquire) != nullptr; }
    /// Who has written these bytes before does not matter any more.
    void forget(size_t range, u64 begin, u64 end);
    ~GlobalShadow();

private:
    struct Table {
        u64 first;
        std::vector<std::atomic<Page*>> pages;
        Table(u64 begin, u64 end) : first(begin / kPage), pages((end - 1) / kPage - begin / kPage + 1) {}
    };
    const Ranges& ranges_;
    std::vector<std::atomic<Table*>> tables_;
};

}  // namespace emu::ptx
