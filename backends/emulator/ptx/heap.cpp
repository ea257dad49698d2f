// SPDX-License-Identifier: MIT
#include "heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>

#include "core/immortal.h"
#include "core/memory.h"

namespace emu::ptx {
namespace {

constexpr u64 kAlign = 16, kPage = 4096;
constexpr u64 kApart = 32;  // bytes of nobody behind each allocation: whose end is missed is found
constexpr u64 kTimesOver =
    4;  // addresses for as many bytes as the limit has: the smallest allocation needs three times its size

u64 counted(u64 bytes) { return round_up(std::max<u64>(bytes, 1), kAlign); }
u64 taken(u64 bytes) { return counted(bytes) + kApart; }

void* mapped(u64 bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return at;
}

std::string described(const std::pair<const u64, u64>& block, u64 address) {
    return beside(block.first, block.second, "memory of malloc", address);
}

}  // namespace

Heap& Heap::instance() { return immortal<Heap>(); }

u64 Heap::limit() const {
    const std::shared_lock lock(mutex_);
    return limit_;
}

bool Heap::set_limit(u64 bytes) {
    const std::unique_lock lock(mutex_);
    if (is_open()) return false;
    limit_ = bytes;
    return true;
}

void Heap::open() {
    const std::unique_lock lock(mutex_);
    if (is_open()) return;
    size_ = (kTimesOver * limit_ / kPage + 1) * kPage;
    auto* const memory = static_cast<u8*>(mapped(2 * size_));
    written_ = memory + size_;
    const auto first = reinterpret_cast<u64>(memory) + kApart;
    gaps_ = {{first, reinterpret_cast<u64>(memory) + size_ - first}};
    next_ = first;
    begin_ = reinterpret_cast<u64>(memory);
}

void Heap::reset() {
    const std::unique_lock lock(mutex_);
    if (!is_open()) return;
    (void)munmap(reinterpret_cast<void*>(begin()), 2 * size_);
    begin_ = used_ = size_ = 0;
    live_.clear(), freed_.clear(), gaps_.clear();
}

/// The block that begins at the address or as the last one before it; null: none does.
const Heap::Blocks::value_type* Heap::at_or_before(const Blocks& blocks, u64 address) {
    const auto next = blocks.upper_bound(address);
    return next == blocks.begin() ? nullptr : &*std::prev(next);
}

void Heap::take(Blocks::iterator gap, u64 at, u64 bytes) {
    const auto [begin, size] = *gap;
    gaps_.erase(gap);
    if (at > begin) gaps_[begin] = at - begin;
    if (at + bytes < begin + size) gaps_[at + bytes] = begin + size - at - bytes;
    next_ = at + bytes;
}

/// `bytes` of the first gap from the last allocation on that has as many; 0: there is none.
u64 Heap::place(u64 bytes) {
    auto from = gaps_.upper_bound(next_);
    if (from != gaps_.begin()) --from;
    for (auto gap = from; gap != gaps_.end(); ++gap) {
        const u64 end = gap->first + gap->second, at = std::max(gap->first, next_);
        if (at > end || end - at < bytes) continue;
        take(gap, at, bytes);
        return at;
    }
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
        const u64 at = gap->first;
        if (gap->second < bytes) continue;
        take(gap, at, bytes);
        return at;
    }
    return 0;
}

void Heap::give_back(u64 at, u64 bytes) {
    const auto next = gaps_.lower_bound(at);
    if (next != gaps_.end() && next->first == at + bytes) {
        bytes += next->second;
        gaps_.erase(next);
    }
    const auto behind = gaps_.lower_bound(at);
    if (behind != gaps_.begin() && std::prev(behind)->first + std::prev(behind)->second == at)
        std::prev(behind)->second += bytes;
    else gaps_[at] = bytes;
}

void Heap::forget_freed(u64 at, u64 bytes) {
    auto first = freed_.lower_bound(at);
    if (first != freed_.begin() && std::prev(first)->first + taken(std::prev(first)->second) > at) --first;
    freed_.erase(first, freed_.lower_bound(at + bytes));
}

u64 Heap::allocate(u64 bytes, bool written) {
    const std::unique_lock lock(mutex_);
    if (bytes > limit_ || counted(bytes) > limit_ - used_) return 0;
    const u64 at = place(taken(bytes));
    if (!at) return 0;
    forget_freed(at, taken(bytes));
    used_ += counted(bytes);
    live_[at] = bytes;
    std::memset(reinterpret_cast<void*>(at), 0xff, bytes);
    std::memset(written_ + (at - begin()), written, bytes);
    return at;
}

std::string Heap::release(u64 address) {
    const std::unique_lock lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) {
        if (freed_.contains(address)) return "memory that was freed before is freed once more";
        const auto* const inside = at_or_before(live_, address);
        const bool within = inside && address - inside->first < inside->second;
        return "free of what malloc has not given" + (within ? ": " + described(*inside, address) : "");
    }
    freed_[address] = found->second;
    used_ -= counted(found->second);
    give_back(address, taken(found->second));
    live_.erase(found);
    return "";
}

bool Heap::contains(u64 address, u64 bytes) const {
    if (!spans(address)) return false;
    const std::shared_lock lock(mutex_);
    const auto* const block = at_or_before(live_, address);
    if (!block) return false;
    const u64 offset = address - block->first;
    return offset < block->second && bytes <= block->second - offset;
}

std::string Heap::neighbourhood(u64 address) const {
    const std::shared_lock lock(mutex_);
    if (const auto* const freed = at_or_before(freed_, address))
        if (address - freed->first < freed->second) return described(*freed, address) + ", which was freed";
    if (live_.empty()) return "in the heap of malloc, where nothing is allocated";
    auto near = live_.upper_bound(address);
    if (near == live_.end()) --near;
    else if (near != live_.begin()) {
        const auto before = std::prev(near);
        const u64 end = before->first + before->second;
        if (address < end || address - end < near->first - address) near = before;
    }
    return described(*near, address);
}

void Heap::write(u64 address, u64 bytes) { std::memset(written_ + (address - begin()), 1, bytes); }

bool Heap::unwritten(u64 address, u64 bytes) const {
    const u8* const first = written_ + (address - begin());
    return std::none_of(first, first + bytes, [](u8 each) { return each != 0; });
}

void Heap::trust() {
    const std::shared_lock lock(mutex_);
    for (const auto& [address, bytes] : live_) std::memset(written_ + (address - begin()), 1, bytes);
}

}  // namespace emu::ptx
