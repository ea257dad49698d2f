// SPDX-License-Identifier: MIT
// Races in global memory, and proxy fences that are missing there.
//
// Within a cluster the orders are those of shared memory. Between clusters there are only atomics and accesses with .acquire and
// .release: of two accesses to one word neither can come before the other if neither cluster has acquired anything before its own.
// That is a race for certain. What is written before it is read, or written twice, is seen; a word that is read first is not.
#include "../warp.h"
#include "checks.h"
#include "core/text.h"

namespace emu::ptx {

GlobalShadow::~GlobalShadow() {
    for (auto& each : tables_)
        if (Table* const table = each.load()) {
            for (auto& page : table->pages) delete page.load();
            delete table;
        }
}

GlobalShadow::Page* GlobalShadow::page(size_t range, u64 address, bool make) {
    Table* table = tables_[range].load(std::memory_order_acquire);
    if (!table) {
        if (!make) return nullptr;
        const Ranges::Range bounds = ranges_.at(range);
        auto fresh = std::make_unique<Table>(bounds.begin, bounds.end);
        if (tables_[range].compare_exchange_strong(table, fresh.get())) table = fresh.release();
    }
    std::atomic<Page*>& place = table->pages[address / kPage - table->first];
    Page* page = place.load(std::memory_order_acquire);
    if (!page && make) {
        auto fresh = std::make_unique<Page>();
        if (place.compare_exchange_strong(page, fresh.get())) page = fresh.release();
    }
    return page;
}

void GlobalShadow::forget(size_t range, u64 begin, u64 end) {
    if (!touched(range)) return;
    for (u64 at = begin; at < end;) {
        const u64 until = std::min(end, (at / kPage + 1) * kPage);
        if (Page* const known = page(range, at, false)) {
            const std::lock_guard lock(known->mutex);
            std::fill(known->words + at % kPage / 4, known->words + (until - 1) % kPage / 4 + 1, WordWrite{});
        }
        at = until;
    }
}

bool Checks::follows(const WordWrite& old, u32 me, const Clock& clock, bool async, u8 flags, bool& fence) const {
    fence = false;
    if (old.flags & flags & kByStrong) return true;
    if (old.cluster != cluster_) return (old.flags | flags) & kAfterAcquire;
    // Of which lane is not asked: a race may be missed, none is invented.
    const auto known = [&](const Entries& all) {
        return old.who < all.size() && old.time <= std::max(all[old.who].all, all[old.who].one);
    };
    if (old.who != me && !known(clock.known)) return false;
    fence = async && !(old.flags & kByAsync) && !known(clock.fenced_global);
    return true;
}

void Checks::global(Warp& w, u32 lanes, u64 begin, u64 end, size_t range, GlobalAccess access) {
    if (!shadow_ || (!access.writes && !shadow_->touched(range))) return;
    const Clock& clock = clock_of(state(w), lanes);
    const u32 me = actor(w);
    const auto flags = static_cast<u8>(
        (access.async ? kByAsync : 0) | (access.strong ? kByStrong : 0) | (acquired_ ? kAfterAcquire : 0));
    for (u64 at = begin; at < end;) {
        const u64 until = std::min(end, (at / GlobalShadow::kPage + 1) * GlobalShadow::kPage);
        GlobalShadow::Page* const page = shadow_->page(range, at, access.writes);
        if (!page) {
            at = until;
            continue;
        }
        const std::lock_guard lock(page->mutex);
        for (; at < until; at = (at | 3) + 1) {
            WordWrite& word = page->words[at % GlobalShadow::kPage / 4];
            const u64 first = at & 3, last = std::min<u64>(until - (at & ~u64{3}), 4);
            const auto mask = static_cast<u8>(((1u << last) - 1) & ~((1u << first) - 1));
            u32 value = word.value;
            if (access.writes)
                std::memcpy(
                    reinterpret_cast<u8*>(&value) + first, reinterpret_cast<const u8*>(at),
                    static_cast<size_t>(last - first));
            // Who writes what another has written does no harm.
            const bool same = access.writes && !access.async && value == word.value;
            if (word.cluster && word.mask & mask && !same) {
                bool fence = false;
                const bool ordered = follows(word, me, clock, access.async, flags, fence);
                if (!ordered && wants(kGlobalRace)) global_found(w, at, word, access, false);
                else if (ordered && fence && wants(kProxyFence)) global_found(w, at, word, access, true);
            }
            if (!access.writes) continue;
            const bool mine = word.cluster == cluster_ && word.who == access.who && word.time == access.time &&
                              word.op == w.op->statement;
            const auto merged = static_cast<u8>(mine ? word.mask | mask : mask);
            word = {cluster_, access.time, w.op->statement, access.who, merged, flags, value};
        }
    }
}

void Checks::global_touch(Warp& w, u32 lanes, u64 begin, u64 end, size_t range, GlobalAccess access) {
    access.who = static_cast<u16>(actor(w));
    access.time = state(w).time;
    global(w, lanes, begin, end, range, access);
}

void Checks::global_bulk(Warp& w, int lane, u64 begin, u64 end, size_t range, bool writes, bool strong) {
    GlobalAccess access{writes, true, strong, 0, 0};
    if (writes) {
        access.who = static_cast<u16>(stores_written_actor(w, lane));
        access.time = w.stores_committed[lane] + 1;
    }
    global(w, 1u << lane, begin, end, range, access);
}

void Checks::global_found(Warp& w, u64 at, const WordWrite& old, const GlobalAccess& mine, bool fence) {
    const u32 check = fence ? kProxyFence : kGlobalRace;
    if (report_.again(check, w.op->statement, old.op)) return;
    std::string text = mine.writes ? "writes" : mine.async ? "reads asynchronously" : "reads";
    text += " global memory at " + hex(at) + ", which ";
    if (old.cluster == cluster_) {
        Cell cell;
        cell.who = old.who, cell.op = old.op, cell.kind = kWrite;
        text +=
            old.flags & kByAsync ? "a bulk store may not have written yet (" + statement(old.op) + ")" : words(cell);
    } else {
        text += "another block has written (" + statement(old.op) + ")";
    }
    text += fence ? "; no fence.proxy.async stands between (PTX ISA 9.0, 9.7.9.25.2)"
            : old.cluster == cluster_
                ? "; no barrier or wait orders them"
                : "; neither has acquired anything before, so nothing orders them (PTX ISA 9.0, 8.9)";
    found(w, check, text, old.op);
}

}  // namespace emu::ptx
