// SPDX-License-Identifier: MIT
// Accesses to shared memory, each held against those before it that it overlaps.
#include "../warp.h"
#include "checks.h"

namespace emu::ptx {

void Shadow::reset(u32 bytes) {
    const size_t count = (size_t{bytes} + 15) / 16;
    if (granules.size() < count) granules.resize(count);
    counts.assign(count, 0);
    written.assign(count, 0);
}

namespace {

bool same_lanes(const Cell& a, const Cell& b) {
    for (u32 both = a.mask & b.mask; both; both &= both - 1) {
        const int byte = std::countr_zero(both), lane = a.lane_at(byte);
        if (lane < 0 || lane != b.lane_at(byte)) return false;
    }
    return true;
}

bool one_lane(const Cell& cell, const Cell& other, int lane) {
    for (u32 both = cell.mask & other.mask; both; both &= both - 1)
        if (cell.lane_at(std::countr_zero(both)) != lane) return false;
    return true;
}

bool covered(const Cell& old, const Cell& mine, const Entries& all) {
    if (old.who >= all.size()) return false;
    const Entry& known = all[old.who];
    return old.time <= known.all || (old.time <= known.one && !(old.kind & kRows) && one_lane(old, mine, known.lane));
}

}  // namespace

/// `me`: the actor of the warp that issues `mine`.
bool Checks::ordered(const Cell& old, const Cell& mine, u32 me, const Entries& known) {
    if (covered(old, mine, known)) return true;
    // A thread's own accesses are in order; lanes of one instruction that write the same bytes are not told apart. Whether a store
    // of matrices is the lane's with the address or the lane's with the value is not said: it is in order with another one alone.
    const bool alike = !((old.kind ^ mine.kind) & kRows);
    return old.who == me && ((alike && same_lanes(old, mine)) || (old.time == mine.time && old.op == mine.op));
}

void Checks::record(Block& block, u32 granule, const Cell& mine, Warp& w, const Clock& clock, Needs* needs) {
    Shadow& shadow = shadows_[block.rank];
    Cell* const cells = shadow.granules[granule].cells;
    u32 count = shadow.counts[granule], kept = 0;
    const u32 me = actor(w);
    const bool writes = mine.kind & kWrite;
    for (u32 i = 0; i < count; ++i) {
        Cell& old = cells[i];
        if (!(old.mask & mine.mask)) {
            if (kept != i) cells[kept] = old;
            ++kept;
            continue;
        }
        bool drop = false;
        if (!((old.kind | mine.kind) & kWrite)) {
            drop = old.who == mine.who && !(old.mask & ~mine.mask) && (old.lane == mine.lane || mine.lane == kAnyLane);
        } else if (!(old.kind & mine.kind & kStrong)) {
            if (needs && (old.kind & kWrite)) {
                const std::pair<u16, u32> need{old.who, old.time};
                if (std::find(needs->rbegin(), needs->rend(), need) == needs->rend()) needs->push_back(need);
            }
            // Threads that write the same value do no harm: compilers have several of them hold one element.
            const bool harmless = (mine.kind & kSame) && (old.kind & kWrite) && !(old.kind & kAsync);
            const bool in_order = harmless || ordered(old, mine, me, clock.known);
            if (!in_order) race(w, block, granule, old, mine, kSharedRace);
            else if ((mine.kind & kAsync) && !(old.kind & kAsync) && !covered(old, mine, clock.fenced))
                race(w, block, granule, old, mine, old.kind & kWrite ? kProxyFence : kProxyRead);
            if (writes) {
                old.mask &= static_cast<u16>(~mine.mask);
                drop = !old.mask;
            }
        } else if (writes) {
            drop = old.who == mine.who && !(old.mask & ~mine.mask);
        }
        if (drop) continue;
        if (kept != i) cells[kept] = old;
        ++kept;
    }
    if (kept == Shadow::kCells) {  // more than are kept: the oldest is forgotten
        std::move(cells + 1, cells + kept, cells);
        --kept;
    }
    cells[kept++] = mine;
    shadow.counts[granule] = static_cast<u8>(kept);
    if (writes) shadow.written[granule] |= mine.mask;
}

/// Neighbouring lanes with neighbouring bytes, and lanes with the same bytes, are one access.
void Checks::runs(Warp& w, const u32* at, u32 lanes, u32 bytes, Cell cell) {
    State& s = state(w);
    const Clock& clock = clock_of(s, lanes);
    Block* block = nullptr;
    u32 granule = 0, end = 0;
    int last = 0;
    u32 missing = 0;
    const auto flush = [&] {
        if (!block) return;
        record(*block, granule, cell, w, clock);
        block = nullptr;
    };
    const u32 step = std::min(bytes, 16u);
    cell.size = static_cast<u8>(cell.kind & kQuads ? 4 : step);
    each_lane(lanes, [&](int lane) {
        const SharedPlace place = shared_place(w, at[lane]);
        for (u32 part = 0; part < bytes; part += 16) {
            const u32 offset = place.offset + part, in = offset & 15, here = offset >> 4;
            const auto mask = static_cast<u16>(((1u << step) - 1) << in);
            if (!(cell.kind & kWrite) && (mask & ~shadows_[place.block->rank].written[here])) missing |= 1u << lane;
            if (block == place.block && granule == here) {
                if (lane == last + 1 && offset == end && cell.lane != kAnyLane) {
                    cell.mask |= mask, end = offset + step, last = lane;
                    continue;
                }
                if (mask == cell.mask && lane != last) {
                    cell.lane = kAnyLane;
                    continue;
                }
            }
            flush();
            block = place.block, granule = here, end = offset + step, last = lane;
            cell.mask = mask, cell.first = static_cast<u8>(in);
            if (cell.kind & kQuads) cell.lane = static_cast<u8>(lane % 8 * 4);
            else cell.lane = cell.kind & kRows ? kAnyLane : static_cast<u8>(lane);
        }
    });
    flush();
    if (missing && wants(kUninitialised))
        found(
            w, kUninitialised,
            "lane " + std::to_string(std::countr_zero(missing)) + " reads " + std::to_string(bytes) +
                " bytes of shared memory at " + std::to_string(at[std::countr_zero(missing)]) +
                " that nobody has written");
}

void Checks::touch(Warp& w, const u32* at, u32 lanes, u32 bytes, u8 kind, u32 same) {
    if (same & lanes && lanes & ~same) {
        touch(w, at, lanes & ~same, bytes, kind);
        lanes &= same;
    }
    if (same & lanes) kind |= kSame;
    State& s = state(w);
    Cell cell;
    cell.who = static_cast<u16>(actor(w)), cell.time = s.time, cell.op = w.op->statement, cell.kind = kind;
    const u32 subset = lanes & s.subset_lanes;
    if (subset && subset != lanes) {
        runs(w, at, subset, bytes, cell);
        runs(w, at, lanes & ~subset, bytes, cell);
    } else {
        runs(w, at, lanes, bytes, cell);
    }
}

void Checks::copy_async(Warp& w, const u32* at, u32 lanes, u32 bytes) {
    Cell cell;
    cell.who = static_cast<u16>(copies_actor(w)), cell.op = w.op->statement, cell.kind = kWrite;
    while (lanes) {  // lanes that have met again may be in different rounds of a loop
        const u32 group = w.committed[std::countr_zero(lanes)];
        u32 alike = 0;
        each_lane(lanes, [&](int lane) { alike |= u32{w.committed[lane] == group} << lane; });
        cell.time = group + 1;
        runs(w, at, alike, bytes, cell);
        lanes &= ~alike;
    }
}

void Checks::region(Warp& w, Block& block, u32 offset, u64 bytes, Cell cell, int lane) {
    const Clock& clock = clock_of(state(w), 1u << lane);
    for (u64 at = offset & ~15u; at < offset + bytes; at += 16)
        record(block, static_cast<u32>(at >> 4), cell, w, clock);
}

void Checks::bulk_write(Warp& w, int lane, Block& block, u32 offset, u64 bytes, const Mbarrier& signal) {
    Cell cell;
    cell.who = static_cast<u16>(signal.handed->actor), cell.op = w.op->statement, cell.kind = kWrite | kAsync;
    cell.time = signal.handed->base + static_cast<u32>(signal.phase) + 1, cell.mask = 0xffff;
    region(w, block, offset, bytes, cell, lane);
}

void Checks::bulk_read(Warp& w, int lane, Block& block, u32 offset, u64 bytes, const Mbarrier* signal) {
    Cell cell;
    cell.op = w.op->statement, cell.kind = kAsync, cell.mask = 0xffff;
    if (signal) {
        cell.who = static_cast<u16>(signal->handed->actor);
        cell.time = signal->handed->base + static_cast<u32>(signal->phase) + 1;
    } else {
        cell.who = static_cast<u16>(stores_actor(w, lane)), cell.time = w.stores_committed[lane] + 1;
    }
    leaving_[{block.rank, cell.who}] = cell;
    region(w, block, offset, bytes, cell, lane);
}

void Checks::ended(Warp& w) {
    const u32 rank = w.block->rank;
    const auto first = leaving_.lower_bound({rank, u16{0}}), last = leaving_.lower_bound({rank + 1, u16{0}});
    if (first == last || !wants(kSharedRace)) return;
    Entries known;
    for (const Warp& each : w.block->warps) {
        const State& s = state(each);
        join(known, s.clock.known);
        if (s.subset_lanes) join(known, s.subset.known);
    }
    for (auto each = first; each != last; ++each) {
        const Cell& old = each->second;
        const Entry have = old.who < known.size() ? known[old.who] : Entry{};
        if (old.time <= have.all || old.time <= have.one) continue;
        if (report_.again(kSharedRace, w.op->statement, old.op)) continue;
        found(w, kSharedRace, "the block ends, and with it its shared memory, which " + words(old), old.op);
    }
}

void Checks::product_read(Warp& w, u32 address, Needs* needs) {
    const SharedPlace place = shared_place(w, address);
    Cell cell;
    cell.who = static_cast<u16>(products_actor(w)), cell.op = w.op->statement, cell.kind = kAsync, cell.mask = 0xffff;
    cell.time = static_cast<u32>(w.products) + 1;
    // Rows that nobody has written are no fault of their own: what they lead to may be thrown away. They are NaN.
    record(*place.block, place.offset >> 4, cell, w, clock_of(state(w), kAllLanes), needs);
}

void Checks::product_needs(Warp& w, const Needs& needs) {
    const Entries& known = clock_of(state(w), kAllLanes).known;
    Cell mine;
    mine.kind = kAsync, mine.mask = 0xffff, mine.op = w.op->statement, mine.who = static_cast<u16>(products_actor(w));
    for (const auto& [who, time] : needs) {
        const Entry have = who < known.size() ? known[who] : Entry{};
        if (time <= have.all || time <= have.one || who == actor(w)) continue;
        Cell old = mine;
        old.who = who, old.time = time, old.kind = kWrite;
        old.op = ~u32{0};
        race(w, *w.block, 0, old, mine, kSharedRace);
    }
}

void Checks::initialise(Warp& w, int lane, Block& block, u32 offset) {
    Cell cell;
    cell.who = static_cast<u16>(actor(w)), cell.time = state(w).time, cell.op = w.op->statement;
    cell.kind = kWrite | kStrong;
    cell.mask = static_cast<u16>(0xffu << (offset & 15)), cell.lane = static_cast<u8>(lane);
    cell.first = static_cast<u8>(offset & 15), cell.size = 8;
    record(block, offset >> 4, cell, w, clock_of(state(w), 1u << lane));
}

void Checks::used(Warp& w, int lane, const Block& block, u32 offset) {
    const Shadow& shadow = shadows_[block.rank];
    const Clock& clock = clock_of(state(w), 1u << lane);
    Cell mine;
    mine.who = static_cast<u16>(actor(w)), mine.time = state(w).time, mine.op = w.op->statement;
    mine.mask = static_cast<u16>(0xffu << (offset & 15)), mine.lane = static_cast<u8>(lane);
    mine.first = static_cast<u8>(offset & 15), mine.size = 8;
    for (u32 i = 0; i < shadow.counts[offset >> 4]; ++i) {
        const Cell& old = shadow.granules[offset >> 4].cells[i];
        if ((old.mask & mine.mask) && (old.kind & kWrite) && !ordered(old, mine, mine.who, clock.known))
            race(w, block, offset >> 4, old, mine, kSharedRace);
    }
}

void Checks::remote(Warp& w, const Block& target) {
    if (!wants(kCluster)) return;
    bool ended = true, begun = false;
    const State& s = state(w);
    const Entries& known = (s.subset_lanes ? s.subset : s.clock).known;
    for (const Warp& each : target.warps) {
        ended &= each.alive == 0;
        const u32 number = actor(each);
        begun |= number < known.size() && (known[number].all || known[number].one);
    }
    const std::string who = "block " + std::to_string(target.rank) + " of the cluster";
    if (ended) found(w, kCluster, "shared memory of " + who + ", which has ended");
    else if (!begun)
        found(w, kCluster, "shared memory of " + who + ", which may not have begun: no barrier of the cluster says so");
}

void Checks::global_read(Warp& w, int lane, u64 begin, u64 end) {
    const Written* const before = w.block->launch->before;
    if (!before || !wants(kGridOrder) || !before->contains(begin, end)) return;
    const Entries& known = clock_of(state(w), 1u << lane).known;
    if (grid_ < known.size() && known[grid_].all) return;
    found(
        w, kGridOrder,
        "global memory that the grid before this one has written, which may still run: griddepcontrol.wait is missing");
}

void Checks::global_write(Warp& w, u64 begin, u64 end, size_t range) {
    // Of a grid's allocations one range would be one of all, with what others have written between them.
    if (range == heap_) w.block->launch->memory->heap()->write(begin, end - begin);
    else written.add(begin, end, range);
}

void Checks::allocated(u64 begin, u64 end) {
    if (shadow_) shadow_->forget(heap_, begin, end);
}

void Checks::heap_read(Warp& w, int lane, u64 address, u32 bytes) {
    const Heap& heap = *w.block->launch->memory->heap();
    // Of a part nothing is said: compilers copy the padding of structures, too.
    if (!wants(kUninitialised) || !heap.spans(address) || !heap.unwritten(address, bytes)) return;
    found(
        w, kUninitialised,
        "lane " + std::to_string(lane) + " reads " + std::to_string(bytes) + " bytes that nobody has written, " +
            heap.neighbourhood(address));
}

// ---- words

std::string Checks::statement(u32 op) const {
    if (op >= program_.function->statements.size()) return "";
    const Statement& s = program_.function->statements[op];
    const auto file = program_.files.find(s.file);
    return (file == program_.files.end() ? "PTX line " + std::to_string(s.ptx_line)
                                         : file->second + ":" + std::to_string(s.line)) +
           ": " + s.text;
}

std::string Checks::words(const Cell& old) const {
    const Actor& a = actors_[old.who];
    const std::string number = std::to_string(a.index);
    const bool writes = old.kind & kWrite;
    const std::string at = old.op == ~u32{0} ? "" : " (" + statement(old.op) + ")";
    switch (a.kind) {
        case Actor::Kind::Warp:
            return "warp " + number +
                   (old.lane == kAnyLane || old.kind & kRows ? "" : ", lane " + std::to_string(old.lane)) +
                   (writes ? " has written" : " has read") + at;
        case Actor::Kind::Products: return "a wgmma of warpgroup " + number + " may still read" + at;
        case Actor::Kind::Copies: return "a cp.async of warp " + number + " may not have written yet" + at;
        case Actor::Kind::Mbarrier:
            return std::string("a bulk copy ") + (writes ? "may not have written yet" : "may still read") + at;
        default: return "a bulk store may still read" + at;
    }
}

void Checks::race(Warp& w, const Block& block, u32 granule, const Cell& old, const Cell& mine, u32 check) {
    if (!wants(check) || report_.again(check, mine.op, old.op)) return;
    const u32 both = old.mask & mine.mask;
    const auto at = granule * 16 + static_cast<u32>(both ? std::countr_zero(both) : 0);
    const Actor& a = actors_[mine.who];
    std::string text = a.kind == Actor::Kind::Warp && mine.lane != kAnyLane && !(mine.kind & kRows)
                           ? "lane " + std::to_string(mine.lane) + " "
                           : "";
    text += mine.kind & kWrite ? "writes" : mine.kind & kAsync ? "reads asynchronously" : "uses";
    if (old.op == ~u32{0}) text += " shared memory";
    else text += " byte " + std::to_string(at) + " of shared memory";
    if (&block != w.block) text += " of block " + std::to_string(block.rank) + " of the cluster";
    text += ", which " + words(old);
    const char* const section = a.kind == Actor::Kind::Products ? "9.7.15.4" : "9.7.9.25.2";
    if (check == kSharedRace) text += "; no barrier or wait orders them";
    else text += std::string("; no fence.proxy.async stands between (PTX ISA 9.0, ") + section + ")";
    if (check == kProxyRead) text += "; advisory: the manual's text asks for it (8.6), its examples often have none";
    found(w, check, text, old.op);
}

}  // namespace emu::ptx
