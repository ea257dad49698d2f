// SPDX-License-Identifier: MIT
// How actors come to know of each other.
#include "../warp.h"
#include "checks.h"

namespace emu::ptx {

void Checks::reset(const Cluster& cluster, u64 number) {
    actors_.clear();
    strong_.clear();
    stores_.clear();
    stores_written_.clear();
    leaving_.clear();
    heap_ = cluster.blocks[0].launch->memory->count() - 1;
    cluster_ = static_cast<u32>(number) + 1;
    acquired_ = false;
    blocks_ = static_cast<u32>(cluster.blocks.size());
    warps_ = static_cast<u32>(cluster.blocks[0].warps.size());
    for (u32 rank = 0; rank < blocks_; ++rank)
        for (u32 i = 0; i < warps_; ++i) actors_.push_back({Actor::Kind::Warp, rank, i});
    for (u32 rank = 0; rank < blocks_; ++rank)
        for (u32 i = 0; i < warps_; ++i) actors_.push_back({Actor::Kind::Copies, rank, i});
    for (u32 rank = 0; rank < blocks_; ++rank)
        for (u32 i = 0; i < warps_; ++i) actors_.push_back({Actor::Kind::Products, rank, i});
    grid_ = static_cast<u32>(actors_.size());
    actors_.push_back({Actor::Kind::Stores, 0, 0});
    states_.assign(size_t{blocks_} * warps_, State{});
    for (State& s : states_) {
        s.writes.assign(program_.watched, 0);
        s.reads.assign(program_.watched, 0);
        s.changed.assign(program_.watched, 0);
    }
    shadows_.resize(blocks_);
    for (Shadow& each : shadows_) each.reset(cluster.blocks[0].launch->shared_bytes);
}

u32 Checks::actor(const Warp& w) const { return w.block->rank * warps_ + w.index; }
Checks::State& Checks::state(const Warp& w) { return states_[actor(w)]; }
u32 Checks::copies_actor(const Warp& w) const { return blocks_ * warps_ + actor(w); }
u32 Checks::products_actor(const Warp& w) const { return 2 * blocks_ * warps_ + w.block->rank * warps_ + w.index / 4; }
u32 Checks::stores_actor(const Warp& w, int lane) {
    const auto [known, fresh] = stores_.try_emplace({actor(w), lane}, static_cast<u32>(actors_.size()));
    if (fresh) actors_.push_back({Actor::Kind::Stores, w.block->rank, w.index});
    return known->second;
}
u32 Checks::stores_written_actor(const Warp& w, int lane) {
    const auto [known, fresh] = stores_written_.try_emplace({actor(w), lane}, static_cast<u32>(actors_.size()));
    if (fresh) actors_.push_back({Actor::Kind::Stores, w.block->rank, w.index});
    return known->second;
}
u32 Checks::new_actor(const Block& block) {
    actors_.push_back({Actor::Kind::Mbarrier, block.rank, 0});
    return static_cast<u32>(actors_.size()) - 1;
}

/// What is known of the warp itself once `lanes` have released: all of it if they are all; else what that lane has done, and
/// what all have done up to the last time that they met.
Entry Checks::own(const Warp& w, const State& s, u32 lanes) const {
    Entry result;
    if ((lanes & w.alive) == w.alive || std::popcount(lanes) != 1) {
        result.all = s.time;
        return result;
    }
    const u32 me = actor(w);
    if (me < s.clock.known.size()) result.all = s.clock.known[me].all;
    result.one = s.time, result.lane = static_cast<u8>(std::countr_zero(lanes));
    return result;
}

void Checks::release(Warp& w, u32 lanes, Clock& into) {
    State& s = state(w);
    into.join(clock_of(s, lanes));
    entry(into.known, actor(w)).join(own(w, s, lanes));
    ++s.time;
}

void Checks::acquire(Warp& w, u32 lanes, const Clock& from) {
    State& s = state(w);
    if ((lanes & w.alive) == w.alive) {
        s.clock.join(from);
        if (s.subset_lanes) s.subset.join(from);
        return;
    }
    if (!s.subset_lanes) s.subset = s.clock;
    s.subset_lanes |= lanes;
    s.subset.join(from);
    if (w.alive & ~s.subset_lanes) return;
    s.clock.join(s.subset);
    s.subset_lanes = 0;
}

void Checks::sync_warp(Warp& w) {
    State& s = state(w);
    if (s.subset_lanes) s.clock.join(s.subset);
    s.subset_lanes = 0;
    entry(s.clock.known, actor(w)).join({s.time, 0, 0});
    ++s.time;
}

void Checks::fence_proxy(Warp& w, u32 lanes, bool shared, bool global) {
    State& s = state(w);
    const bool all = (lanes & w.alive) == w.alive;
    const Entry mine = own(w, s, lanes);
    for (Clock* const clock : {&s.clock, &s.subset}) {
        const bool subset = clock == &s.subset;
        if (subset ? !(lanes & s.subset_lanes) : !all && (lanes & s.subset_lanes)) continue;
        for (Entries* const fenced : {shared ? &clock->fenced : nullptr, global ? &clock->fenced_global : nullptr}) {
            if (!fenced) continue;
            join(*fenced, clock->known);
            entry(*fenced, actor(w)).join(mine);
        }
    }
    ++s.time;
}

void Checks::done(Warp& w, u32 lanes, u32 number, u32 time) {
    Clock news;
    entry(news.known, number).all = time;
    acquire(w, lanes, news);
}

void Checks::strong(Warp& w, u32 lanes, u64 address) {
    Clock& shared = strong_[address];
    acquire(w, lanes, shared);
    release(w, lanes, shared);
}

void Checks::grid_wait(Warp& w, u32 lanes) { done(w, lanes, grid_, 1); }

// ---- report

bool Report::again(u32 check, u32 statement, u32 other) {
    const std::lock_guard lock(mutex_);
    const auto known = places_.find({check, statement, other});
    if (known == places_.end()) return false;
    if (known->second < found_.size()) ++found_[known->second].times;
    return true;
}
void Report::add(u32 check, u32 statement, u32 other, Found found) {
    constexpr size_t kMost = 100;
    const std::lock_guard lock(mutex_);
    if (!places_.try_emplace({check, statement, other}, found_.size()).second) return;
    if (found_.size() < kMost) found_.push_back(std::move(found));
}
std::vector<Found> Report::take() {
    const std::lock_guard lock(mutex_);
    places_.clear();
    return std::move(found_);
}

void Checks::found(Warp& w, u32 check, const std::string& message, u32 other) {
    if (!wants(check) || report_.again(check, w.op->statement, other)) return;
    Found result;
    for (const auto& [name, bit] : kCheckNames)
        if (bit == check) result.check = name;
    result.message = message;
    result.place = program_.place(*w.op);
    const Statement& s = program_.function->statements[w.op->statement];
    if (const auto file = program_.files.find(s.file); file != program_.files.end()) result.file = file->second;
    result.line = s.line;
    std::copy(std::begin(w.block->index), std::end(w.block->index), std::begin(result.block));
    result.warp = w.index;
    report_.add(check, w.op->statement, other, std::move(result));
}

}  // namespace emu::ptx
