// SPDX-License-Identifier: MIT
#include "hierarchy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <list>
#include <mutex>
#include <unordered_map>

#include "../ops/access.h"
#include "core/immortal.h"
#include "core/memory.h"
#include "machine.h"
#include "places.h"

namespace emu::counters {
namespace {

using namespace machine;

constexpr u64 kRequests = 24'000'000;  // that are simulated: about a second
constexpr u32 kSlices = 256;           // of a workgroup's life, in which all that are resident take turns
constexpr u64 kPage = 2 << 20;         // allocations begin at one
constexpr u32 kChannels = 16;          // of an L2
constexpr u32 kTouchedBits = 24;

u64 mixed(u64 value) {
    value *= 0x9e3779b97f4a7c15u;
    return value ^ value >> 29;
}

// 4 MB of 16 ways, least recently used.
class L2 {
public:
    static constexpr u32 kWays = 16, kSets = kL2CacheBytes / (kLine * kWays);

    L2() : tags_(size_t{kSets} * kWays, 0) {}

    /// Whether it has the line; it has it afterwards. `stored`: halves of the line that are written. `evicted`: a line that
    /// has to be written back then, or 0, and `halves` of it.
    bool access(u64 line, u64 stored, u64& evicted, u64& halves) {
        // Consecutive lines lie in different sets, and powers of two as strides do not all meet in one.
        u64* const set = &tags_[(line ^ line / kSets ^ line / kSets / kSets) % kSets * kWays];
        evicted = 0;
        const u64 tag = line << 2;
        int way = 0;
        while (way < static_cast<int>(kWays) - 1 && (set[way] | 3) != (tag | 3)) ++way;
        const bool hit = (set[way] | 3) == (tag | 3);
        const u64 dirty = set[way] & 3;
        if (!hit && dirty) {
            evicted = set[way] >> 2;
            halves = dirty;
        }
        std::memmove(set + 1, set, static_cast<size_t>(way) * sizeof *set);
        set[0] = tag | (hit ? dirty : 0) | stored;
        return hit;
    }

    template <class Each>
    void dirty(Each each) const {
        for (const u64 tag : tags_)
            if (tag & 3) each(tag >> 2, tag & 3);
    }

private:
    std::vector<u64> tags_;
};

// 256 MB, least recently used by pieces of 4 KB.
class Mall {
public:
    /// Whether it has the line; it has it afterwards. `evicted`: lines that were written to the HBM to make room.
    bool access(u64 line, bool store, double& evicted) {
        const u64 piece = line / kLines;
        const u32 bit = 1u << (line % kLines);
        auto found = pieces_.find(piece);
        if (found == pieces_.end()) {
            order_.push_front({piece, 0, 0});
            found = pieces_.emplace(piece, order_.begin()).first;
        } else if (found->second != order_.begin()) {
            order_.splice(order_.begin(), order_, found->second);
        }
        Piece& mine = order_.front();
        const bool hit = mine.held & bit;
        if (!hit) ++held_;
        mine.held |= bit;
        if (store) mine.dirty |= bit;
        while (held_ > kMallCacheBytes / kLine) {
            const Piece& last = order_.back();
            held_ -= static_cast<u64>(std::popcount(last.held));
            evicted += std::popcount(last.dirty);
            pieces_.erase(last.piece);
            order_.pop_back();
        }
        return hit;
    }
    void clear() {
        order_.clear();
        pieces_.clear();
        held_ = 0;
    }

private:
    static constexpr u64 kLines = 32;
    struct Piece {
        u64 piece;
        u32 held, dirty;
    };
    std::list<Piece> order_;
    std::unordered_map<u64, std::list<Piece>::iterator> pieces_;
    u64 held_ = 0;
};

// Addresses as a fresh device would have given them, in the order of allocation: what the caches do must not depend on where
// the host put the memory.
class Layout {
public:
    /// The allocations that hold these lines get a place if they have none yet.
    void add(const std::vector<u64>& lines) {
        std::vector<Allocation> fresh;
        std::vector<u64> foreign;
        const Allocation* last = nullptr;
        for (const u64 line : lines) {
            if (last && inside(*last, line)) continue;
            last = find(line);
            if (!last) {
                if (!known(line / kForeign << 1 | 1)) foreign.push_back(line / kForeign);
            } else if (!known(last->serial << 1)) {
                fresh.push_back(*last);
            }
        }
        auto by_serial = [](const Allocation& a, const Allocation& b) { return a.serial < b.serial; };
        std::sort(fresh.begin(), fresh.end(), by_serial);
        for (const Allocation& each : fresh) place(each.serial << 1, each.size);
        std::sort(foreign.begin(), foreign.end());
        for (const u64 each : foreign) {
            const auto before = bases_.find((each - 1) << 1 | 1);
            if (before != bases_.end() && before->second + kForeign == next_) place(each << 1 | 1, kForeign * kLine);
            else {
                next_ += kForeign;  // no neighbour of the last one
                place(each << 1 | 1, kForeign * kLine);
            }
        }
    }
    u64 operator()(u64 line) {
        if (line >= first_ && line < end_) return line - first_ + base_;
        if (const Allocation* const allocation = find(line)) {
            first_ = allocation->begin / kLine;
            end_ = (allocation->end() + kLine - 1) / kLine;
            base_ = bases_[allocation->serial << 1];
        } else {
            first_ = line / kForeign * kForeign;
            end_ = first_ + kForeign;
            base_ = bases_[line / kForeign << 1 | 1];
        }
        return line - first_ + base_;
    }
    void clear() {
        bases_.clear();
        next_ = kPage / kLine;
        first_ = end_ = 0;
    }
    void forget() { first_ = end_ = 0; }

private:
    static constexpr u64 kForeign = (64 << 20) / kLine;  // memory that nobody registered keeps its order

    static bool inside(const Allocation& a, u64 line) { return line >= a.begin / kLine && line * kLine < a.end(); }
    static const Allocation* find(u64 line) {
        const Allocation* const found = find_allocation(line * kLine);  // allocations need not begin at a line
        return found ? found : find_allocation(line * kLine + kLine - 1);
    }
    bool known(u64 key) const { return bases_.count(key) != 0; }
    void place(u64 key, u64 bytes) {
        if (!bases_.emplace(key, next_).second) return;
        next_ += (bytes + kPage - 1) / kPage * kPage / kLine;
    }

    std::unordered_map<u64, u64> bases_;
    u64 next_ = kPage / kLine, first_ = 0, end_ = 0, base_ = 0;
};

struct Memory {
    std::mutex mutex;
    Mall mall;
    Layout places;
};
Memory& memory() { return immortal<Memory>(); }

// --- a launch -------------------------------------------------------------------------------------------------------

// Where instructions begin in a workgroup that is known in part, against one that is known as a whole.
struct Shift {
    std::vector<i64> by_operation;  // of each wave
};

struct Simulation {
    Simulation(const Launch& of, Tally& recorded, u32 groups_a_die, u32 number)
        : launch(of), tally(recorded), slots(groups_a_die), dies(number) {}

    const Launch& launch;
    Tally& tally;
    u32 slots;  // workgroups that a die holds
    u32 dies;
    std::vector<u8> kinds;             // AccessKind by operation
    std::vector<const Record*> whole;  // known from begin to end, by group
    std::vector<u32> compact;          // by operation: its number among those with requests
    u32 operations = 0;
    std::unordered_map<u64, Record*> by_group;
    double mean = 1;  // instructions of a workgroup
    std::vector<L2> l2;
    std::vector<double> channel, meeting;       // atomic passes of a die's channel, of a line
    std::vector<std::array<double, 3>> levels;  // by number of the operation: what served its loads
    std::vector<std::vector<bool>> touched;     // by a hash of the line: that the die has loaded it
    double by_die = 0;
    std::vector<u64> far;  // by number of the operation: stores of which it is not known where to
    Traffic traffic;

    struct Resident {
        u64 group;
        Record* own;
        const Record* model;
        u32 begin, length;
        std::vector<Shift> shifts;
    };

    void prepare();
    const Record* nearest(u64 group) const;
    Resident arrive(u64 group, u32 now);
    void advance(u32 die, Resident&, u32 now);
    void request(u32 die, u64 line, const Request&);
    void spread_levels();
    void write_back(u64 line, u64 halves);
    void run();
    void share_between_dies();
};

constexpr u32 kNone = ~u32{0}, kFar = 41;

void Simulation::prepare() {
    compact.assign(launch.program->ops.size() + 1, kNone);
    double executed = 0;
    u64 known = 0;
    for (auto& record : tally.records) {
        by_group[record->group] = record.get();
        bool cut = false;
        for (const WaveRecord& wave : record->waves) {
            cut |= wave.cut;
            // Also of a workgroup that is known by its beginning: it may take a branch that no other takes.
            for (const Request& each : wave.requests)
                if (compact[each.operation] == kNone) compact[each.operation] = operations++;
        }
        if (record->prefix) continue;
        executed += static_cast<double>(record->executed);
        ++known;
        if (!cut) whole.push_back(record.get());
    }
    mean = known ? std::max(executed / static_cast<double>(known), 1.0) : 1;
    if (whole.empty())
        for (auto& record : tally.records)
            if (!record->prefix) whole.push_back(record.get());
    levels.assign(operations, {});
    far.assign(operations, 0);
    std::sort(whole.begin(), whole.end(), [](const Record* a, const Record* b) { return a->group < b->group; });
}

const Record* Simulation::nearest(u64 group) const {
    if (whole.empty()) return nullptr;
    auto place = std::lower_bound(
        whole.begin(), whole.end(), group, [](const Record* record, u64 g) { return record->group < g; });
    if (place == whole.end() || (place != whole.begin() && group - (*(place - 1))->group < (*place)->group - group))
        --place;
    return *place;
}

Simulation::Resident Simulation::arrive(u64 group, u32 now) {
    const auto found = by_group.find(group);
    Resident r{group, found == by_group.end() ? nullptr : found->second, nullptr, now, kSlices, {}};
    const bool cut = !r.own || r.own->prefix ||
                     std::any_of(r.own->waves.begin(), r.own->waves.end(), [](const WaveRecord& w) { return w.cut; });
    r.model = cut ? nearest(group) : r.own;
    const double executed = static_cast<double>(
        r.own && !r.own->prefix ? r.own->executed
        : r.model               ? r.model->executed
                                : static_cast<u64>(mean));
    r.length = static_cast<u32>(std::clamp(executed / mean * kSlices, 1.0, 64.0 * kSlices));
    if (!cut || !r.model || r.model == r.own) {
        r.model = r.own;
        return r;
    }
    r.shifts.resize(r.model->waves.size());
    for (size_t w = 0; w < r.shifts.size(); ++w) {
        std::vector<i64>& shift = r.shifts[w].by_operation;
        // Without a beginning: lines of its own, far from all others.
        const i64 far = static_cast<i64>((group + 1) << kFar);
        shift.assign(operations, far);
        std::vector<u64> first(operations, 0);
        if (r.own && w < r.own->waves.size())
            for (const Request& each : r.own->waves[w].requests) {
                const u32 number = compact[each.operation];
                if (number != kNone && !first[number]) first[number] = each.line;
            }
        std::vector<bool> seen(operations, false);
        for (const Request& each : r.model->waves[w].requests) {
            const u32 number = compact[each.operation];
            if (seen[number]) continue;
            seen[number] = true;
            if (first[number]) shift[number] = static_cast<i64>(first[number]) - static_cast<i64>(each.line);
        }
    }
    return r;
}

void Simulation::write_back(u64 line, u64 halves) {
    traffic.written += std::popcount(halves) / 2.0;
    if (!(line >> kFar)) memory().mall.access(line, true, traffic.evicted);
}

void Simulation::request(u32 die, u64 line, const Request& each) {
    const auto kind = static_cast<AccessKind>(kinds[each.operation]);
    traffic.l2 += 1;
    u64 evicted, halves = 0;
    const bool hit = l2[die].access(line, kind == AccessKind::Read ? 0 : each.halves, evicted, halves);
    if (evicted) write_back(evicted, halves);
    if (kind == AccessKind::Atomic) {
        const auto passes = static_cast<double>(std::max<u64>(each.passes, 1));
        channel[die * kChannels + (mixed(line) >> 60)] += passes;
        meeting[mixed(line) >> 48] += passes;
    }
    Level from = Level::L2;
    if (!hit && kind != AccessKind::Write) {
        from = memory().mall.access(line, false, traffic.evicted) ? Level::Mall : Level::Hbm;
        std::vector<bool>& seen = touched[die];
        const u64 place = mixed(line) >> (64 - kTouchedBits);
        if (!seen[place]) by_die += 1;
        seen[place] = true;
    }
    if (kind == AccessKind::Write) {
        traffic.stored += 1;
        if (line >> kFar) ++far[compact[each.operation]];
    }
    if (kind != AccessKind::Write) traffic.loaded[static_cast<int>(from)] += 1;
    if (kind != AccessKind::Write) levels[compact[each.operation]][static_cast<size_t>(from)] += 1;
}

void Simulation::advance(u32 die, Resident& r, u32 now) {
    if (!r.model) return;
    const u64 from = now - r.begin, to = from + 1;
    for (size_t w = 0; w < r.model->waves.size(); ++w) {
        const WaveRecord* wave = &r.model->waves[w];
        const std::vector<i64>* shift = r.shifts.empty() ? nullptr : &r.shifts[w].by_operation;
        if (shift && r.own && w < r.own->waves.size() && !r.own->waves[w].cut) {
            wave = &r.own->waves[w];  // it ended where it is known
            shift = nullptr;
        }
        const u64 count = wave->requests.size();
        for (u64 i = count * from / r.length; i < count * to / r.length; ++i) {
            const Request& each = wave->requests[i];
            const u64 line = shift ? each.line + static_cast<u64>((*shift)[compact[each.operation]]) : each.line;
            request(die, line, each);
        }
    }
}

void Simulation::run() {
    const u64 count = launch.grid.volume();
    std::vector<std::vector<Resident>> resident(dies);
    std::vector<u64> next(dies);
    for (u32 die = 0; die < dies; ++die) next[die] = die;
    l2.resize(dies);
    touched.assign(dies, std::vector<bool>(size_t{1} << kTouchedBits));
    channel.assign(dies * kChannels, 0);
    meeting.assign(65536, 0);
    for (u32 now = 0;; ++now) {
        bool any = false;
        for (u32 die = 0; die < dies; ++die) {
            auto& here = resident[die];
            std::erase_if(here, [&](const Resident& r) { return now >= r.begin + r.length; });
            for (; here.size() < slots && next[die] < count; next[die] += kDies) {
                here.push_back(arrive(next[die], now));
                traffic.groups += 1;
            }
            for (Resident& r : here) advance(die, r, now);
            any |= !here.empty();
        }
        if (!any) break;
    }
    for (const L2& each : l2) each.dirty([&](u64 line, u64 halves) { write_back(line, halves); });
    // What is stored somewhere is taken to lie behind the first line that a known workgroup stores.
    std::vector<u64> first(operations, ~u64{0});
    for (const Record* record : whole)
        for (const WaveRecord& wave : record->waves)
            for (const Request& each : wave.requests)
                first[compact[each.operation]] = std::min<u64>(first[compact[each.operation]], each.line);
    for (u32 number = 0; number < operations; ++number)
        for (u64 i = 0; i < far[number]; ++i) memory().mall.access(first[number] + i, true, traffic.evicted);
}

// Whoever comes first loads a line for the others, waits longer and then is no longer the first. So what serves a load falls
// on all workgroups alike: each step of the traced ones gets its share of what all loads of that instruction met.
void Simulation::spread_levels() {
    constexpr double kSection = 0.61803398874989485;  // its multiples are spread evenly
    for (auto& record : tally.records) {
        for (size_t w = 0; record->steps && w < record->waves.size(); ++w) {
            WaveRecord& wave = record->waves[w];
            std::vector<double> count(operations, static_cast<double>(mixed(record->group * 16 + w) >> 44));
            for (const Step& step : wave.steps) {
                if (!step.count || step.requests >= wave.requests.size()) continue;
                const u32 number = compact[wave.requests[step.requests].operation];
                const auto& [l2_hits, mall_hits, hbm] = levels[number];
                const double all = l2_hits + mall_hits + hbm, at = std::fmod(++count[number] * kSection, 1.0) * all;
                const Level level = at < hbm ? Level::Hbm : at < hbm + mall_hits ? Level::Mall : Level::L2;
                const size_t end = std::min<size_t>(step.requests + step.count, wave.requests.size());
                std::fill(
                    wave.levels.begin() + step.requests, wave.levels.begin() + static_cast<long>(end),
                    static_cast<u8>(level));
            }
        }
    }
}

// Of fewer dies than there are: how many of all would have asked for a line, from how many of these did. The HBM delivers it
// to the first of them.
void Simulation::share_between_dies() {
    double& hbm = traffic.loaded[static_cast<int>(Level::Hbm)];
    if (dies == kDies || hbm == 0) return;
    const double here = std::max(by_die / hbm, 1.0), everywhere = 1 + (kDies - 1) * (here - 1) / (dies - 1);
    const double fewer = hbm * here / everywhere;
    traffic.loaded[static_cast<int>(Level::Mall)] += hbm - fewer;
    hbm = fewer;
}

}  // namespace

u32 simulated_dies(const Launch& launch, const Tally& tally) {
    u64 requests = 0, groups = 0;
    for (const auto& record : tally.records) {
        if (record->prefix) continue;
        for (const WaveRecord& wave : record->waves) requests += wave.requests.size();
        ++groups;
    }
    const double all = static_cast<double>(launch.grid.volume()) * static_cast<double>(requests) /
                       static_cast<double>(std::max<u64>(groups, 1));
    for (u32 dies = kDies; dies > 2; dies /= 2)
        if (all * dies / kDies <= static_cast<double>(kRequests)) return dies;
    return 2;
}

std::vector<u32> prefix_of(const Tally& tally) {
    std::vector<u32> prefix;
    for (const auto& record : tally.records) {
        prefix.resize(std::max(prefix.size(), record->waves.size()), 0);
        for (size_t w = 0; w < record->waves.size(); ++w) {
            const auto& requests = record->waves[w].requests;
            // Instructions that come once, as those that store a result, come too late to wait for them.
            std::unordered_map<u64, u32> times;
            std::unordered_map<u64, u32> first;
            u64 last = 0;
            for (u32 i = 0; i < requests.size(); ++i) {
                const u64 operation = requests[i].operation;
                if (i && operation == last) continue;
                last = operation;
                ++times[operation];
                first.emplace(operation, i);
            }
            u32 need = 0;
            for (const auto& [operation, index] : first)
                if (times[operation] > 1) need = std::max(need, index + 1);
            if (!need) need = static_cast<u32>(std::min<size_t>(requests.size(), 64));
            prefix[w] = std::max(prefix[w], need);
        }
    }
    return prefix;
}

namespace {

// Requests have the places of their launch (places.h). What caches keep from launch to launch goes by allocations.
void to_host_lines(const Launch& launch, Tally& tally) {
    if (!launch.places) return;
    Places::Range range;
    for (auto& record : tally.records)
        for (WaveRecord& wave : record->waves)
            for (Request& each : wave.requests) {
                const u64 address = each.line * kLine;
                if (address < range.base || address - range.base >= range.end - range.begin)
                    range = launch.places->on_device(address);
                if (range.end > range.begin && address >= range.base && address - range.base < range.end - range.begin)
                    each.line = (address - range.base + range.begin) / kLine;
            }
}

}  // namespace

Traffic simulate_caches(const Launch& launch, Tally& tally, u32 groups_a_unit) {
    const std::lock_guard lock(memory().mutex);
    Layout& places = memory().places;
    to_host_lines(launch, tally);
    std::vector<u64> lines;
    u64 last = 0;
    for (const auto& record : tally.records)
        for (const WaveRecord& wave : record->waves)
            for (const Request& each : wave.requests) {
                if (each.line / 32 != last) lines.push_back(each.line);
                last = each.line / 32;
            }
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    places.forget();
    places.add(lines);
    for (auto& record : tally.records)
        for (WaveRecord& wave : record->waves) {
            for (Request& each : wave.requests) each.line = places(each.line);
            if (record->steps) wave.levels.assign(wave.requests.size(), 0);
        }

    Simulation simulation(
        launch, tally, std::max<u32>(groups_a_unit, 1) * kUnits / kDies, simulated_dies(launch, tally));
    for (const Op& op : launch.program->ops) {
        const u32 flags = op.inst.row ? op.inst.row->flags : 0;
        simulation.kinds.push_back(
            static_cast<u8>(
                flags & kAtomic  ? AccessKind::Atomic
                : flags & kStore ? AccessKind::Write
                                 : AccessKind::Read));
    }
    simulation.prepare();
    simulation.run();
    simulation.spread_levels();
    simulation.share_between_dies();
    Traffic& t = simulation.traffic;
    const double scale = t.groups > 0 ? static_cast<double>(launch.grid.volume()) / t.groups : 1;
    t.l2 *= scale;
    for (double& each : t.loaded) each *= scale;
    t.stored *= scale;
    t.written *= scale;
    t.evicted *= scale;
    t.atomics = std::max(
        *std::max_element(simulation.channel.begin(), simulation.channel.end()),
        *std::max_element(simulation.meeting.begin(), simulation.meeting.end()) * kDies / simulation.dies);
    return t;
}

Moved move_through_cache(const void* from, const void* to, size_t bytes) {
    const std::lock_guard lock(memory().mutex);
    Moved moved;
    auto pass = [&](const void* place, bool store) {
        const u64 first = reinterpret_cast<uintptr_t>(place) / kLine,
                  end = (reinterpret_cast<uintptr_t>(place) + bytes + kLine - 1) / kLine;
        Layout& places = memory().places;
        places.forget();
        places.add({first, end - 1});
        for (u64 line = first; line < end; ++line)
            if (!memory().mall.access(places(line), store, moved.evicted) && !store) moved.loaded += 1;
    };
    if (bytes && from) pass(from, false);
    if (bytes && to) pass(to, true);
    return moved;
}

void empty_caches() {
    const std::lock_guard lock(memory().mutex);
    memory().mall.clear();
    memory().places.clear();
}

}  // namespace emu::counters
