// SPDX-License-Identifier: MIT
#include "places.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"

namespace emu::counters {
namespace {

constexpr u64 kPage = 4096;  // where allocations begin

struct Found {
    u64 begin, end, serial, rank;
};

}  // namespace

Places::Places(const Launch& launch) {
    std::vector<Found> found{{launch.kernarg, launch.kernarg + launch.kernarg_bytes, 0, 0}};
    for (const Allocation& each : allocations()) found.push_back({each.begin, each.end(), each.serial, 0});
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.begin < b.begin; });
    std::vector<Found> merged;
    for (const Found& each : found) {
        if (merged.empty() || each.begin >= merged.back().end) {
            merged.push_back(each);
            continue;
        }
        merged.back().end = std::max(merged.back().end, each.end);
        merged.back().serial = std::min(merged.back().serial, each.serial);
    }
    const u64 words = launch.kernarg_bytes / 8;
    auto rank = [&](u64 address) -> u64* {
        auto after = std::upper_bound(
            merged.begin(), merged.end(), address, [](u64 a, const Found& each) { return a < each.begin; });
        return after != merged.begin() && address < std::prev(after)->end ? &std::prev(after)->rank : nullptr;
    };
    for (Found& each : merged) each.rank = words + 1;
    if (words) *rank(launch.kernarg) = words;
    for (u64 i = words; i-- > 0;) {  // the first argument that points there counts
        u64 value = 0;
        std::memcpy(&value, reinterpret_cast<const u8*>(launch.kernarg) + 8 * i, sizeof value);
        if (u64* const place = rank(value)) *place = std::min(*place, i);
    }
    std::sort(merged.begin(), merged.end(), [](const Found& a, const Found& b) {
        return a.rank != b.rank ? a.rank < b.rank : a.serial < b.serial;
    });
    u64 base = kPage;
    for (const Found& each : merged) {
        by_base_.push_back({each.begin, each.end, base});
        base += (each.end - each.begin + kPage - 1) / kPage * kPage + kPage;
    }
    ranges_ = by_base_;
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

Places::Range Places::of(u64 address) const {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), address, [](u64 a, const Range& each) { return a < each.begin; });
    const u64 next = after == ranges_.end() ? ~u64{0} : after->begin;
    if (after == ranges_.begin()) return {0, next, 0};
    const Range& before = *std::prev(after);
    return address < before.end ? before : Range{before.end, next, before.end};
}

Places::Range Places::on_device(u64 address) const {
    const auto after = std::upper_bound(
        by_base_.begin(), by_base_.end(), address, [](u64 a, const Range& each) { return a < each.base; });
    if (after == by_base_.begin()) return {};
    const Range& before = *std::prev(after);
    return address - before.base < before.end - before.begin ? before : Range{};
}

}  // namespace emu::counters
