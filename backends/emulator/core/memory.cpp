// SPDX-License-Identifier: MIT
#include "memory.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include <sys/mman.h>

#include "immortal.h"
#include "scalars.h"
#include "text.h"

namespace emu {
namespace {

constexpr size_t kGuard = 4096;       // before and after; also keeps the alignment
constexpr size_t kRemembered = 4096;  // freed records
constexpr int kGuardByte = 0xC5;

size_t mapped(size_t size) { return kGuard + round_up(size, kGuard) + kGuard; }

// Device memory comes from the system page by page. Freed, its addresses lead nowhere and are nobody else's for as long as the
// record of it is kept: whatever uses them then is wrong, and is found even with the checks off.
void* reserve(size_t size) {
    void* const base = mmap(nullptr, mapped(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base == MAP_FAILED ? nullptr : base;
}

void seal(uint8_t* user, size_t size) {
    // A fresh mapping in its place gives the pages back. If there is none to be had, the old one will do.
    (void)mmap(user - kGuard, mapped(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void release(const Allocation& allocation) {
    if (allocation.device) (void)munmap(reinterpret_cast<void*>(allocation.begin - kGuard), mapped(allocation.size));
}

struct Entry {
    std::unique_ptr<Allocation> record;
    uintptr_t reach = 0;  // largest end of this and all entries before: registered ranges may overlap
    unsigned references = 1;
};

struct Registry {
    std::shared_mutex mutex;
    std::vector<Entry> live;  // by begin, then by falling size
    std::deque<std::unique_ptr<Allocation>> freed;
    std::atomic<uint64_t> generation{1};  // of `live`: what threads remember becomes stale when it changes
    uint64_t serial = 0;
    size_t device_bytes = 0;

    void update_reach(size_t from) {
        for (size_t i = from; i < live.size(); ++i)
            live[i].reach = std::max(live[i].record->end(), i ? live[i - 1].reach : 0);
    }

    void insert(Allocation allocation) {
        allocation.serial = ++serial;
        const auto place =
            std::lower_bound(live.begin(), live.end(), allocation, [](const Entry& entry, const Allocation& a) {
            return entry.record->begin < a.begin || (entry.record->begin == a.begin && entry.record->size > a.size);
        });
        const size_t index = static_cast<size_t>(place - live.begin());
        live.insert(place, Entry{std::make_unique<Allocation>(std::move(allocation))});
        update_reach(index);
        ++generation;
    }

    /// The entry that begins here and is ours (or is not), or live.size().
    size_t starting_at(uintptr_t begin, bool device) const {
        auto place = std::lower_bound(
            live.begin(), live.end(), begin, [](const Entry& entry, uintptr_t a) { return entry.record->begin < a; });
        for (; place != live.end() && place->record->begin == begin; ++place)
            if (place->record->device == device) return static_cast<size_t>(place - live.begin());
        return live.size();
    }

    void remove(size_t index) {
        freed.push_back(std::move(live[index].record));
        if (freed.size() > kRemembered) {
            release(*freed.front());
            freed.pop_front();
        }
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        update_reach(index);
        ++generation;
    }

    const Allocation* find(uintptr_t address) const {
        auto place = std::upper_bound(
            live.begin(), live.end(), address, [](uintptr_t a, const Entry& entry) { return a < entry.record->begin; });
        while (place != live.begin()) {
            --place;
            if (place->reach <= address) return nullptr;
            if (place->record->contains(address, 1)) return place->record.get();
        }
        return nullptr;
    }
};

Registry& registry() { return immortal<Registry>(); }

/// Where the guards were overwritten, as an offset from the allocation's first byte; false if nowhere.
bool damaged(const uint8_t* user, size_t size, std::ptrdiff_t& where) {
    const auto wrong = [](uint8_t byte) { return byte != kGuardByte; };
    const uint8_t* const after_end = user + round_up(size, kGuard) + kGuard;
    if (const uint8_t* const hit = std::find_if(user + size, after_end, wrong); hit != after_end) {
        where = hit - user;
        return true;
    }
    if (const uint8_t* const hit = std::find_if(user - kGuard, user, wrong); hit != user) {
        where = hit - user;
        return true;
    }
    return false;
}

}  // namespace

void* device_malloc(size_t size, const char* what) {
    size = std::max<size_t>(size, 1);
    if (size > SIZE_MAX / 2) return nullptr;
    void* const base = reserve(size);
    if (!base) return nullptr;
    auto* const user = static_cast<uint8_t*>(base) + kGuard;
    std::memset(base, kGuardByte, kGuard);
    std::memset(user + size, kGuardByte, round_up(size, kGuard) - size + kGuard);
    Registry& r = registry();
    const std::unique_lock lock(r.mutex);
    r.insert({reinterpret_cast<uintptr_t>(user), size, what ? what : "device memory", true, 0});
    r.device_bytes += size;
    return user;
}

bool device_free(void* pointer) {
    Registry& r = registry();
    auto* const user = static_cast<uint8_t*>(pointer);
    std::ptrdiff_t where = 0;
    bool broken = false;
    Allocation gone;
    {
        const std::unique_lock lock(r.mutex);
        const size_t index = r.starting_at(reinterpret_cast<uintptr_t>(pointer), true);
        if (index == r.live.size()) return false;
        gone = *r.live[index].record;
        broken = damaged(user, gone.size, where);
        r.device_bytes -= gone.size;
        seal(user, gone.size);
        r.remove(index);
    }
    if (broken) {
        std::fprintf(
            stderr,
            "warpwave emulator: '%s' (%zu bytes): byte %td, outside of it, was overwritten; run with checks=all to "
            "see by whom\n",
            gone.name.c_str(), gone.size, where);
    }
    return true;
}

void register_host(const void* pointer, size_t size, const char* name) {
    if (!pointer || !size) return;
    Registry& r = registry();
    const std::unique_lock lock(r.mutex);
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    Allocation allocation{begin, size, name ? name : "host memory", false, 0};
    unsigned references = 1;
    if (const size_t known = r.starting_at(begin, false); known != r.live.size()) {
        references = r.live[known].references + 1;
        if (r.live[known].record->size >= size) {
            r.live[known].references = references;
            return;
        }
        r.remove(known);
    }
    r.insert(std::move(allocation));
    r.live[r.starting_at(begin, false)].references = references;
}

bool unregister_host(const void* pointer) {
    Registry& r = registry();
    const std::unique_lock lock(r.mutex);
    const size_t known = r.starting_at(reinterpret_cast<uintptr_t>(pointer), false);
    if (known == r.live.size()) return false;
    if (--r.live[known].references == 0) r.remove(known);
    return true;
}

const Allocation* find_allocation(uintptr_t address) {
    thread_local uint64_t generation = 0;
    thread_local const Allocation* last = nullptr;
    Registry& r = registry();
    if (last && generation == r.generation.load(std::memory_order_acquire) && last->contains(address, 1)) return last;
    const std::shared_lock lock(r.mutex);
    const Allocation* const found = r.find(address);
    generation = r.generation.load(std::memory_order_relaxed);
    // Inside a range that overlaps others the answer depends on the address, so only ours (which never do) are remembered.
    last = found && found->device ? found : nullptr;
    return found;
}

const Allocation* nearest_allocation(uintptr_t address) {
    Registry& r = registry();
    const std::shared_lock lock(r.mutex);
    const Allocation* best = nullptr;
    uintptr_t distance = UINTPTR_MAX;
    for (const Entry& entry : r.live) {
        const Allocation& a = *entry.record;
        const uintptr_t away = address < a.begin ? a.begin - address : address >= a.end() ? address - a.end() + 1 : 0;
        if (away < distance) {
            distance = away;
            best = &a;
        }
    }
    return best;
}

const Allocation* find_freed(uintptr_t address) {
    Registry& r = registry();
    const std::shared_lock lock(r.mutex);
    for (auto record = r.freed.rbegin(); record != r.freed.rend(); ++record)
        if ((*record)->contains(address, 1)) return record->get();
    return nullptr;
}

namespace {

constexpr uintptr_t kNearby = 1 << 20;  // an address so close to an allocation is told relative to it

std::string describe(const Allocation& allocation, uintptr_t address) {
    return beside(allocation.begin, allocation.size, "'" + allocation.name + "'", address);
}

}  // namespace

std::string beside(uintptr_t begin, size_t size, const std::string& what, uintptr_t address) {
    const uintptr_t end = begin + size;
    const std::string all = what + " (" + hex(begin) + ", " + std::to_string(size) + " bytes)";
    if (address >= end) return std::to_string(address - end) + " bytes behind " + all;
    if (address < begin) return std::to_string(begin - address) + " bytes before " + all;
    return std::to_string(address - begin) + " bytes into " + all;
}

std::string neighbourhood(uintptr_t address) {
    if (const Allocation* inside = find_allocation(address)) return describe(*inside, address);
    if (const Allocation* freed = find_freed(address)) return describe(*freed, address) + ", which was freed";
    const Allocation* near = nearest_allocation(address);
    if (!near) return "no memory was allocated or registered";
    const uintptr_t distance = address >= near->end() ? address - near->end() : near->begin - address;
    return distance > kNearby ? "far from every allocation" : describe(*near, address);
}

bool in_guard(uintptr_t address) {
    Registry& r = registry();
    const std::shared_lock lock(r.mutex);
    const auto next = std::upper_bound(
        r.live.begin(), r.live.end(), address, [](uintptr_t a, const Entry& entry) { return a < entry.record->begin; });
    if (next != r.live.end() && next->record->device && next->record->begin - address <= kGuard) return true;
    if (next == r.live.begin()) return false;
    const Allocation& before = *std::prev(next)->record;
    return before.device && address >= before.end() && address - before.begin < round_up(before.size, kGuard) + kGuard;
}

std::vector<Allocation> allocations() {
    Registry& r = registry();
    const std::shared_lock lock(r.mutex);
    std::vector<Allocation> all;
    all.reserve(r.live.size());
    for (const Entry& entry : r.live) all.push_back(*entry.record);
    return all;
}

size_t device_bytes() {
    Registry& r = registry();
    const std::shared_lock lock(r.mutex);
    return r.device_bytes;
}

}  // namespace emu
