// SPDX-License-Identifier: MIT
// Accesses outside what there is, and accesses at addresses that the instruction does not take.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>

#include "../options.h"
#include "core/memory.h"
#include "core/text.h"
#include "../module.h"
#include "shadow.h"

namespace emu::checks {
namespace {

const char* verb(AccessKind kind) {
    return kind == AccessKind::Read ? "read" : kind == AccessKind::Write ? "write" : "atomic";
}

std::string size_text(u32 bytes, AccessKind kind) {
    return std::string(verb(kind)) + " of " + std::to_string(bytes) + " bytes";
}

// Host memory that nobody registered may be used as device memory, as long as it is mapped: then only its pages are known.
bool is_mapped(u64 begin, u64 bytes, bool write) {
    static std::mutex mutex;
    struct Map {
        u64 begin, end;
        bool writable;
    };
    static std::vector<Map> maps;
    auto covered = [&] {
        u64 at = begin;
        for (const Map& map : maps)
            if (at >= map.begin && at < map.end && (map.writable || !write)) at = map.end;
        return at >= begin + bytes;
    };
    const std::lock_guard lock(mutex);
    if (covered()) return true;
    maps.clear();
    std::ifstream file("/proc/self/maps");
    for (std::string line; std::getline(file, line);) {
        u64 first = 0, last = 0;
        char rights[8] = {};
        if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %7s", &first, &last, rights) != 3) continue;
        if (rights[0] == 'r') maps.push_back({first, last, rights[1] == 'w'});
    }
    return covered();
}

bool within(u64 address, u32 bytes, AccessKind kind) {
    if (const Allocation* allocation = find_allocation(address)) return allocation->contains(address, bytes);
    // Addresses of freed device memory stay unused for a while; those of other memory may have a new owner.
    if (control::options().strict || in_guard(address)) return false;
    if (const Allocation* freed = find_freed(address); freed && freed->device) return false;
    return is_mapped(address, bytes, kind != AccessKind::Read);
}

// The arguments live outside every allocation.
bool is_kernarg(const Launch& launch, u64 address, u32 bytes) {
    const u64 packet = launch.dispatch_packet, queue = launch.queue;
    auto inside = [&](u64 begin, u64 size) { return address >= begin && address + bytes <= begin + size; };
    return inside(launch.kernarg, launch.kernarg_bytes) || inside(packet, 64) || inside(queue, 256);
}

// A short may be anywhere in a dword: compilers read no more of an int than what they change.
u64 misaligned_lanes(const u64* address, u64 lanes, u32 alignment) {
    u64v all;
    std::memcpy(&all, address, sizeof all);
    if (!(__builtin_reduce_or(all) & (alignment - 1))) [[likely]]
        return 0;
    return (alignment == 2 ? to_mask((all & 3) == 3) : to_mask((all & (alignment - 1)) != 0)) & lanes;
}

u64 misaligned_lanes(const u32* address, u64 lanes, u32 alignment) {
    const u32v all = load<u32v>(address);
    if (!(__builtin_reduce_or(all) & (alignment - 1))) [[likely]]
        return 0;
    return (alignment == 2 ? to_mask((all & 3) == 3) : to_mask((all & (alignment - 1)) != 0)) & lanes;
}

/// The lowest and the highest of the lanes' addresses.
struct Span {
    u64 low, high;
};

Span span_of(const u64* address, u64 lanes) {
    u64v all;
    std::memcpy(&all, address, sizeof all);
    if (lanes != kAllLanes) {
        const u64v inside = __builtin_convertvector(to_lanes(lanes), u64v), one = address[std::countr_zero(lanes)];
        all = (all & inside) | (one & ~inside);
    }
    return {__builtin_reduce_min(all), __builtin_reduce_max(all)};
}

// What compilers copy or read in larger pieces, for they know where it lies: constants, strings for the most part, and variables
// of the program at one address for all lanes.
bool is_known_place(const Launch& launch, const Span& span) {
    const u64 base = reinterpret_cast<u64>(launch.module->base);
    const u64 end = base + (span.low == span.high ? launch.module->size : launch.module->code.text_begin);
    return span.low >= base && span.high < end;
}

bool inside_allocation(BoundsGroup& state, const Span& span, u32 bytes) {
    for (const BoundsGroup::Range& range : state.recent)
        if (span.low >= range.begin && span.high < range.end && range.end - span.high >= bytes) return true;
    const Allocation* const found = find_allocation(span.low);
    if (!found || !found->contains(span.high, bytes)) return false;
    state.recent[state.next++ % state.recent.size()] = {found->begin, found->end()};
    return true;
}

// Global loads and stores may be at any byte when they are of bytes or shorts; dwords and wider want a multiple of 4 to be
// fast and atomics want their own size.
u32 alignment_of(const Wave& w, const Op& op, u32 bytes, AccessKind kind) {
    if (kind == AccessKind::Atomic) return std::bit_floor(bytes);
    return w.shadow->facts[op.index].what & kPieces ? 1 : std::min(std::bit_floor(bytes), 4u);
}

u64 report_size(
    Wave& w, const Op& op, u64 wrong, const u32* address, u32 bytes, u32 limit, AccessKind kind, const char* memory) {
    if (!wrong || repeated(w, op, kBounds)) return wrong;
    const int lane = std::countr_zero(wrong);
    report(
        w, op, kBounds, lane,
        size_text(bytes, kind) + " at " + hex(address[lane]) + " of " + memory + ", which has " +
            std::to_string(limit) + " bytes here; " + lanes_text(wrong));
    return wrong;
}

u64 outside(const u32* address, u64 lanes, u32 bytes, u32 limit) {
    return lanes & ~lanes_within(address, lanes, bytes, limit);
}

}  // namespace

u64 check_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (!lanes) return 0;
    if (on(w, kMisaligned)) {
        const u32 alignment = alignment_of(w, op, bytes, kind);
        if (const u64 wrong = misaligned_lanes(address, lanes, alignment)) {
            const int lane = std::countr_zero(wrong);
            if (!is_known_place(*w.group->launch, span_of(address, lanes)) && !repeated(w, op, kMisaligned))
                report(
                    w, op, kMisaligned, lane,
                    size_text(bytes, kind) + " at " + hex(address[lane]) + ", not a multiple of " +
                        std::to_string(alignment),
                    neighbourhood(address[lane]));
            if (kind == AccessKind::Atomic) lanes &= ~wrong;  // the hardware would fault
            if (!lanes) return 0;
        }
    }
    if (!on(w, kBounds)) return lanes;
    if (inside_allocation(w.group->shadow->bounds, span_of(address, lanes), bytes)) return lanes;
    u64 wrong = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (!within(address[lane], bytes, kind) && !is_kernarg(*w.group->launch, address[lane], bytes))
            wrong |= u64{1} << lane;
    }
    if (wrong && !repeated(w, op, kBounds)) {
        const int lane = std::countr_zero(wrong);
        report(
            w, op, kBounds, lane, size_text(bytes, kind) + " at " + hex(address[lane]) + "; " + lanes_text(wrong),
            neighbourhood(address[lane]));
    }
    return lanes & ~wrong;
}

u64 check_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    const u32 limit = w.group->lds_bytes;
    if (on(w, kMisaligned) && lanes) {
        const u32 alignment = alignment_of(w, op, bytes, kind);
        if (const u64 wrong = misaligned_lanes(address, lanes, alignment)) {
            const int lane = std::countr_zero(wrong);
            if (!repeated(w, op, kMisaligned))
                report(
                    w, op, kMisaligned, lane,
                    size_text(bytes, kind) + " at " + hex(address[lane]) + " of LDS, not a multiple of " +
                        std::to_string(alignment));
            if (kind == AccessKind::Atomic) lanes &= ~wrong;
        }
    }
    if (!on(w, kBounds)) return lanes;
    return lanes & ~report_size(w, op, outside(address, lanes, bytes, limit), address, bytes, limit, kind, "LDS");
}

u64 check_scratch(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    if (!on(w, kBounds)) return lanes;
    const u32 limit = w.group->launch->scratch_bytes;
    return lanes &
           ~report_size(w, op, outside(offset, lanes, bytes, limit), offset, bytes, limit, kind, "the lane's scratch");
}

bool check_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind) {
    if (!on(w, kBounds) || is_kernarg(*w.group->launch, address, bytes)) return true;
    if (inside_allocation(w.group->shadow->bounds, {address, address}, bytes) || within(address, bytes, kind))
        return true;
    report(w, op, kBounds, -1, "scalar " + size_text(bytes, kind) + " at " + hex(address), neighbourhood(address));
    return false;
}

}  // namespace emu::checks
