// SPDX-License-Identifier: MIT
// One record a dword of memory that a launch touches: the workgroup that wrote it last and the one that read it last, and
// which of its bytes.
//
// Two workgroups are ordered if the first one released after its access and the second one acquired after that: a cache
// write-back (buffer_wbl2) releases, an invalidation (buffer_inv) acquires. Which variable they met at is
// not followed, so a kernel that synchronises at the wrong place may pass; one that does not synchronise does not. A dword of
// which two workgroups write different bytes is left alone from then on. Loads and stores past the device's caches (sc1) are
// how compilers make atomic ones, and count as such; plain reads do not race with compare-and-swap.
#include "global_race.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/immortal.h"
#include "core/memory.h"
#include "core/text.h"
#include "runs.h"
#include "shadow.h"

namespace emu::checks {

namespace {

constexpr int kPageBits = 16;
constexpr u64 kPageBytes = u64{1} << kPageBits, kPageDwords = kPageBytes / 4, kPart = kPageDwords / 64;

// 0: nobody. Otherwise the workgroup's number plus one in bits 0-23, its events before the access in 24-39, the operation in
// 40-57, which bytes of the dword in 58-61, whether it was atomic, and whether others did it, too, that are not recorded.
using Side = u64;
constexpr int kEvent = 24, kOp = 40, kBytes = 58;
constexpr u64 kGroupMask = (u64{1} << 24) - 1, kMostEvents = 0xffff, kOpMask = (u64{1} << 18) - 1;
constexpr Side kAtomicSide = Side{1} << 62, kOthers = Side{1} << 63, kWholeDword = Side{15} << kBytes;

u64 group_of(Side side) { return side & kGroupMask; }
u64 event_of(Side side) { return side >> kEvent & kMostEvents; }
u32 op_of(Side side) { return static_cast<u32>(side >> kOp & kOpMask); }
bool same_bytes(Side a, Side b) { return (a & b) >> kBytes & 15; }

// Neighbours that are looked at together. Vectors of them are loaded and stored at once: on all CPUs of today each element by
// itself is whole.
template <int kSides>
struct Row {
    using Sides = u64 __attribute__((ext_vector_type(kSides)));
    using Truth = i64 __attribute__((ext_vector_type(kSides)));
    static Sides load(const u64* from) {
        Sides row;
        std::memcpy(&row, from, sizeof row);
        return row;
    }
    static void store(u64* to, Sides row) { std::memcpy(to, &row, sizeof row); }
    static bool any(Truth truth) { return __builtin_reduce_or(truth); }
    static Sides where(Truth truth) { return __builtin_bit_cast(Sides, truth); }
};

u64 parts(u64 first, u64 count) { return u64{1} << first / kPart | u64{1} << (first + count - 1) / kPart; }
bool any(const std::atomic<u64>& flags, u64 parts) { return flags.load(std::memory_order_relaxed) & parts; }
void set(std::atomic<u64>& flags, u64 parts) {
    if (parts & ~flags.load(std::memory_order_relaxed)) flags.fetch_or(parts, std::memory_order_relaxed);
}

u64 get(const u64& place) { return __atomic_load_n(&place, __ATOMIC_RELAXED); }
void put(u64& place, u64 value) { __atomic_store_n(&place, value, __ATOMIC_RELAXED); }

}  // namespace

/// Whoever wrote and whoever read each dword last: see Side. Shared by threads, so read and written atomically.
struct GlobalPage {
    u64 writer[kPageDwords], reader[kPageDwords];
    std::atomic<u64> written, read;  // one bit for each kPart dwords: any of them
};

namespace {

/// Pages of launches that are over. The system gives memory dearly, and programs launch often.
class SparePages {
public:
    using Page = std::unique_ptr<GlobalPage, decltype(&std::free)>;

    /// A page of zeros, or null.
    Page take() {
        {
            const std::lock_guard lock(mutex_);
            if (!pages_.empty()) {
                Page page = std::move(pages_.back());
                pages_.pop_back();
                return page;
            }
        }
        return {static_cast<GlobalPage*>(std::calloc(1, sizeof(GlobalPage))), &std::free};
    }

    void give(Page page) {
        {
            const std::lock_guard lock(mutex_);
            if (pages_.size() >= kMost) return;
        }
        for (u64 parts = page->written.exchange(0); parts; parts &= parts - 1)
            std::fill_n(page->writer + kPart * static_cast<u64>(std::countr_zero(parts)), kPart, 0);
        for (u64 parts = page->read.exchange(0); parts; parts &= parts - 1)
            std::fill_n(page->reader + kPart * static_cast<u64>(std::countr_zero(parts)), kPart, 0);
        const std::lock_guard lock(mutex_);
        pages_.push_back(std::move(page));
    }

private:
    static constexpr size_t kMost = 256;  // 64 MB, and what threads add at once
    std::mutex mutex_;
    std::vector<Page> pages_;
};

SparePages& spare_pages() { return immortal<SparePages>(); }

}  // namespace

struct GlobalShadow {
    std::mutex mutex;
    std::unordered_map<u64, SparePages::Page> pages;
    std::atomic<u64> clock{1};
    std::mutex events_mutex;
    std::unordered_map<u64, std::vector<u64>> events;  // by workgroup + 1: when it released, or never (an acquire)

    ~GlobalShadow() {
        for (auto& [number, page] : pages)
            if (page) spare_pages().give(std::move(page));
    }

    GlobalPage* page(u64 number) {
        const std::lock_guard lock(mutex);
        const auto [place, fresh] = pages.try_emplace(number, nullptr, &std::free);
        if (fresh) place->second = spare_pages().take();
        if (!place->second)
            throw KernelFault("no memory to watch for races between workgroups: checks=all+-global-race does without");
        return place->second.get();
    }

    /// Has the workgroup of `side` released after that access, and before `acquired`?
    bool ordered(Side side, u64 acquired) {
        if (!acquired) return false;
        const u64 first = event_of(side);
        if (first >= kMostEvents) return true;
        const std::lock_guard lock(events_mutex);
        const auto found = events.find(group_of(side));
        if (found == events.end()) return false;
        for (size_t i = first; i < found->second.size(); ++i)
            if (found->second[i] < acquired) return true;
        return false;
    }
};

namespace {

std::string group_text(const Launch& launch, Side side) {
    const Dim& grid = launch.grid;
    const u64 linear = group_of(side) - 1;
    return "workgroup (" + std::to_string(linear % grid.x) + "," + std::to_string(linear / grid.x % grid.y) + "," +
           std::to_string(linear / grid.x / grid.y) + ")";
}

u32 content(u64 address) {
    u32 value;
    std::memcpy(&value, reinterpret_cast<const void*>(address & ~u64{3}), sizeof value);
    return value;
}

class Visit {
public:
    Visit(Wave& w, const Op& op, AccessKind kind)
        : w_(w), op_(op), state_(w.group->shadow->global_race), shadow_(*launch_of(w).global_race.shadow),
          write_(kind != AccessKind::Read) {
        const bool atomic = kind == AccessKind::Atomic || op.inst.sc1;
        mine_ = (w.group->linear + 1) | state_.events << kEvent | u64{op.index} << kOp | (atomic ? kAtomicSide : 0);
    }

    void lane(int lane, u64 address, u32 bytes) {
        if ((address | bytes) % 4 == 0 && address % kPageBytes + bytes <= kPageBytes) [[likely]] {
            GlobalPage& page = this->page(address / kPageBytes);
            const Side mine = mine_ | kWholeDword;
            for (u32 i = 0; i < bytes / 4; ++i) touch(page, address % kPageBytes / 4 + i, mine, lane, address + 4 * i);
            return;
        }
        for (u64 at = address; at < address + bytes;) {
            const u64 end = std::min(address + bytes, (at | 3) + 1);
            const u64 which = ((u64{1} << (end - at)) - 1) << at % 4;
            touch(page(at / kPageBytes), at % kPageBytes / 4, mine_ | which << kBytes, lane, at);
            at = end;
        }
    }

    void lanes(const u64* address, u64 lanes, u32 bytes) {
        // Who reads a dword twice reads it once. Of its bytes only the last reader's are remembered.
        u64 misaligned = bytes;
        for (int i = 0; i < kLanes; ++i) misaligned |= address[i];
        const LaneRuns runs = runs_of(address, lanes, bytes, !write_ && misaligned % 4 == 0);
        for (u64 rest = runs.starts(); rest; rest &= rest - 1) {
            const int first = std::countr_zero(rest), count = runs.size(first);
            if (count == 1 || !run(first, address[first], bytes, count))
                for (int i = first; i < first + count; ++i) lane(i, address[i], bytes);
        }
    }

    void judge(const GlobalRaceGroup::Doubt& doubt) {
        if (content(doubt.address) != doubt.before) found(doubt.other, true, doubt.lane, doubt.address);
    }

    void finish() const {
        if (!hit_ || repeated(w_, op_, kGlobalRace)) return;
        const Launch& launch = *w_.group->launch;
        const Allocation* const allocation = find_allocation(address_);
        const bool unknown = group_of(other_) == group_of(mine_);
        report(
            w_, op_, kGlobalRace, lane_,
            std::string(write_ ? "write" : "read") + " at " + hex(address_) + ", which " +
                (unknown ? "another workgroup" : group_text(launch, other_)) + (other_wrote_ ? " wrote" : " read") +
                " in the same launch, and nothing orders the two",
            allocation ? std::to_string(address_ - allocation->begin) + " bytes into '" + allocation->name + "'" : "",
            "the other: " + where(launch, op_of(other_)));
    }

private:
    GlobalPage& page(u64 number) {
        GlobalRaceGroup::Page& place = state_.pages[number % state_.pages.size()];
        if (place.number != number) [[unlikely]]
            place = {number, shadow_.page(number)};
        return *place.page;
    }

    /// `count` lanes side by side. False: they need a look one by one.
    bool run(int first, u64 address, u32 bytes, int count) {
        const u64 size = u64{bytes} * static_cast<u64>(count);
        if ((address | bytes) % 4 || address % kPageBytes + size > kPageBytes) return false;
        GlobalPage& page = this->page(address / kPageBytes);
        const u64 index = address % kPageBytes / 4, dwords = size / 4;
        u64 i = 0;
        auto one_by_one = [&](u64 end) {
            for (; i < end; ++i)
                touch(page, index + i, mine_ | kWholeDword, first + static_cast<int>(4 * i / bytes), address + 4 * i);
        };
        auto rows = [&]<int kSides>(Row<kSides>) {
            while (i + kSides <= dwords) {
                if (write_ ? write_row<kSides>(page, index + i) : read_row<kSides>(page, index + i)) [[likely]]
                    i += kSides;
                else one_by_one(i + kSides);
            }
        };
        rows(Row<16>{});
        rows(Row<4>{});
        one_by_one(dwords);
        return true;
    }

    // Some dwords at once, as touch() does it. False, and nothing done: some of them need a closer look.
    template <int kSides>
    bool read_row(GlobalPage& page, u64 index) {
        using R = Row<kSides>;
        using Sides = typename R::Sides;
        if (any(page.written, parts(index, kSides))) {
            const Sides writer = R::load(page.writer + index);
            if (R::any((writer != 0) & ((writer & kGroupMask) != group_of(mine_)))) return false;
        }
        const Side mine = mine_ | kWholeDword;
        const Sides reader = R::load(page.reader + index);
        const Sides same = R::where((reader & ~kOthers) == mine);
        if (!R::any(__builtin_bit_cast(typename R::Truth, ~same))) return true;
        const auto other = (reader != 0) & ((reader & kGroupMask) != group_of(mine));
        if (state_.acquired && R::any(other)) return false;  // whether they are ordered is known one by one
        const Sides keeps = R::where(((reader ^ mine) & (kMostEvents << kEvent)) == 0) & kOthers & reader;
        const Sides now = mine | keeps | (R::where(other) & kOthers);
        set(page.read, parts(index, kSides));
        R::store(page.reader + index, (reader & same) | (now & ~same));
        return true;
    }

    template <int kSides>
    bool write_row(GlobalPage& page, u64 index) {
        using R = Row<kSides>;
        using Sides = typename R::Sides;
        const Side mine = mine_ | kWholeDword;
        if (any(page.read, parts(index, kSides))) {
            const Sides reader = R::load(page.reader + index);
            if (R::any((reader != 0) & (((reader & kGroupMask) != group_of(mine)) | ((reader & kOthers) != 0))))
                return false;
        }
        Sides now = mine;
        if (any(page.written, parts(index, kSides))) {
            const Sides writer = R::load(page.writer + index);
            if (R::any((writer != 0) & ((writer & kGroupMask) != group_of(mine)))) return false;
            const Sides same_event = R::where(((writer ^ mine) & (kMostEvents << kEvent)) == 0);
            now |= writer & (kOthers | (same_event & kWholeDword));
        }
        set(page.written, parts(index, kSides));
        R::store(page.writer + index, now);
        return true;
    }

    void touch(GlobalPage& page, u64 index, Side mine, int lane, u64 address) {
        if (write_) return touch_write(page, index, mine, lane, address);
        u64& place = page.reader[index];
        const Side reader = get(place);
        if ((reader & ~kOthers) != mine) {
            set(page.read, parts(index, 1));
            put(place, reader ? after_reader(reader, mine) : mine);
        }
        if (!any(page.written, parts(index, 1))) return;
        const Side writer = get(page.writer[index]);
        if (writer && group_of(writer) != group_of(mine)) [[unlikely]]
            meet(writer, mine, true, lane, address);
    }

    void touch_write(GlobalPage& page, u64 index, Side mine, int lane, u64 address) {
        u64& place = page.writer[index];
        const Side writer = get(place);
        const Side reader = any(page.read, parts(index, 1)) ? get(page.reader[index]) : 0;
        Side now = mine;
        if (writer) {
            if (group_of(writer) == group_of(mine)) {
                now |= writer & (kOthers | (event_of(writer) == event_of(mine) ? kWholeDword : 0));
            } else if (writer & kOthers || !same_bytes(writer, mine)) {
                now |= kOthers;
            } else if ((writer | mine) & kAtomicSide) {
                meet(writer, mine, true, lane, address);
            } else if (races(writer, mine, true)) {
                // Only what comes of the write tells whether it changes anything.
                state_.doubts.push_back({address, writer, lane, content(address)});
            }
        }
        set(page.written, parts(index, 1));
        put(place, now);
        if (!reader || now & kOthers) return;
        if (group_of(reader) != group_of(mine)) meet(reader, mine, false, lane, address);
        else if (reader & kOthers && event_of(reader) == event_of(mine) && !compare_loop(reader, false))
            found(reader, false, lane, address);
    }

    // The last reader is replaced. If it has nothing to do with the new one, that one stands for both.
    Side after_reader(Side reader, Side mine) {
        if (group_of(reader) == group_of(mine))
            return mine | (reader & kOthers && event_of(reader) == event_of(mine) ? kOthers : 0);
        return mine | (is_ordered(reader) ? 0 : kOthers);
    }

    void meet(Side other, Side mine, bool other_wrote, int lane, u64 address) {
        if (races(other, mine, other_wrote)) found(other, other_wrote, lane, address);
    }

    bool races(Side other, Side mine, bool other_wrote) {
        if (other & kOthers && other_wrote) return false;
        return same_bytes(other, mine) && !(other & mine & kAtomicSide) && !compare_loop(other, other_wrote) &&
               !is_ordered(other);
    }

    // Compilers make other atomics out of a plain read and compare-and-swap, which finds out if the read was too old.
    bool compare_loop(Side other, bool other_wrote) const {
        if (other_wrote && write_) return false;
        return w_.shadow->facts[write_ ? op_.index : op_of(other)].what & kCompares;
    }

    void found(Side other, bool other_wrote, int lane, u64 address) {
        if (hit_) return;
        hit_ = true;
        lane_ = lane;
        address_ = address;
        other_ = other;
        other_wrote_ = other_wrote;
    }

    bool is_ordered(Side side) {
        const u64 key = side & (kGroupMask | kMostEvents << kEvent);
        if (key != known_) {
            known_ = key;
            known_ordered_ = shadow_.ordered(side, state_.acquired);
        }
        return known_ordered_;
    }

    Wave& w_;
    const Op& op_;
    GlobalRaceGroup& state_;
    GlobalShadow& shadow_;
    Side mine_ = 0;
    bool write_, hit_ = false, other_wrote_ = false, known_ordered_ = false;
    u64 known_ = 0, address_ = 0;
    int lane_ = -1;
    Side other_ = 0;
};

}  // namespace

void begin(GlobalRaceLaunch& state, const Launch& launch) {
    const u64 groups = launch.grid.volume();
    if (groups > 1 && groups < kGroupMask && launch.program->ops.size() <= kOpMask)
        state.shadow = std::make_shared<GlobalShadow>();
}

void begin(GlobalRaceGroup& state) {
    state.acquired = state.events = 0;
    state.pages.fill({});
    state.doubts.clear();
}

namespace {

void event(Wave& w, bool release) {
    if (!launch_of(w).global_race.shadow) return;
    GlobalShadow& shadow = *launch_of(w).global_race.shadow;
    GlobalRaceGroup& state = w.group->shadow->global_race;
    const u64 now = shadow.clock.fetch_add(1);
    if (!release) state.acquired = now;
    if (state.events == kMostEvents) return;
    const std::lock_guard lock(shadow.events_mutex);
    shadow.events[w.group->linear + 1].push_back(release ? now : ~u64{0});
    ++state.events;
}

}  // namespace

namespace global_race {

void on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!launch_of(w).global_race.shadow) return;
    Visit visit(w, op, kind);
    visit.lanes(address, lanes, bytes);
    visit.finish();
}

void on_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind) {
    if (!launch_of(w).global_race.shadow) return;
    Visit visit(w, op, kind);
    visit.lane(-1, address, bytes);
    visit.finish();
}

void resolve_doubts(Wave& w, const Op& op) {
    std::vector<GlobalRaceGroup::Doubt>& doubts = w.group->shadow->global_race.doubts;
    Visit visit(w, op, AccessKind::Write);
    for (const GlobalRaceGroup::Doubt& doubt : doubts) visit.judge(doubt);
    doubts.clear();
    visit.finish();
}

// Before the instruction: whoever sees its effect finds the release.
void before(Wave& w, const Op& op) {
    if (w.shadow->facts[op.index].what & kReleases) event(w, true);
}

void after(Wave& w, const Op& op) {
    if (w.shadow->facts[op.index].what & kAcquires) event(w, false);
}

}  // namespace global_race
}  // namespace emu::checks
