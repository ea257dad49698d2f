// SPDX-License-Identifier: MIT
// Counting while a kernel runs: what memory instructions ask for and what it costs them in cache lines and LDS cycles.
#include <algorithm>

#include "../ops/access.h"
#include "counters.h"

namespace emu::counters {
namespace {

constexpr u64 kLine = 128;          // bytes of an L2 cache line (CDNA3 white paper)
constexpr int kBanks = 32;          // of 4 bytes: 128 bytes a cycle

Memory& entry(Wave& w, const Op& op) { return w.group->tally->memory[op.index]; }

int count(u64 lanes) { return std::popcount(lanes); }

// Lanes that the LDS serves in the same cycle if their banks allow it, as masks. 16-byte accesses go eight lanes at a time
// in this order (measured on MI300 by others; tests/kernels/hip/test_tile.py); narrower ones in order.
struct Phases {
    u64 lanes[16];
    int count;
};

Phases phases(u32 bytes) {
    Phases result{};
    if (bytes >= 16) {
        constexpr u64 kFirst[] = {0x00f0000f, 0x000f00f0, 0xf0000f00, 0x0f00f000};
        for (int i = 0; i < 8; ++i) result.lanes[i] = kFirst[i % 4] << (i / 4 * 32);
        result.count = 8;
        return result;
    }
    const int together = bytes > 4 ? 16 : 32;
    result.count = kLanes / together;
    for (int i = 0; i < result.count; ++i) result.lanes[i] = ((u64{1} << together) - 1) << (i * together);
    return result;
}

// Cycles for one phase: the most different words that fall into one bank.
u64 bank_cycles(const u32* address, u64 lanes, u32 bytes) {
    u32 words[kLanes * 4];
    int number = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const u32 first = address[std::countr_zero(rest)] / 4;
        for (u32 word = 0; word < std::max(bytes / 4, 1u); ++word) words[number++] = first + word;
    }
    std::sort(words, words + number);
    const int different = static_cast<int>(std::unique(words, words + number) - words);
    u64 load[kBanks] = {}, most = 1;
    for (int i = 0; i < different; ++i) most = std::max(most, ++load[words[i] % kBanks]);
    return most;
}

}  // namespace

void Tally::add(const Tally& other) {
    for (size_t i = 0; i < executed.size(); ++i) {
        executed[i] += other.executed[i];
        memory[i].lanes += other.memory[i].lanes;
        memory[i].bytes += other.memory[i].bytes;
        memory[i].lines += other.memory[i].lines;
        memory[i].cycles += other.memory[i].cycles;
        memory[i].minimum += other.memory[i].minimum;
    }
    groups += other.groups;
    waves += other.waves;
}

void on_global(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind) {
    Memory& place = entry(w, op);
    place.lanes += count(lanes);
    place.bytes += u64{bytes} * count(lanes);
    u64 lines[2 * kLanes];
    int number = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const u64 first = address[std::countr_zero(rest)];
        lines[number++] = first / kLine;
        if ((first + bytes - 1) / kLine != first / kLine) lines[number++] = first / kLine + 1;
    }
    std::sort(lines, lines + number);
    place.lines += static_cast<u64>(std::unique(lines, lines + number) - lines);
}

void on_lds(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind) {
    Memory& place = entry(w, op);
    place.lanes += count(lanes);
    place.bytes += u64{bytes} * count(lanes);
    const Phases all = phases(bytes);
    for (int i = 0; i < all.count; ++i) {
        const u64 now = lanes & all.lanes[i];
        if (!now) continue;
        place.minimum += 1;
        place.cycles += bank_cycles(address, now, bytes);
    }
}

void on_scratch(Wave& w, const Op& op, const u32*, u64 lanes, u32 bytes, AccessKind) {
    Memory& place = entry(w, op);
    place.lanes += count(lanes);
    place.bytes += u64{bytes} * count(lanes);
    // Scratch is interleaved by lane: a dword of all lanes is two lines.
    place.lines += (u64{bytes} * count(lanes) + kLine - 1) / kLine;
}

void on_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind) {
    Memory& place = entry(w, op);
    place.lanes += 1;
    place.bytes += bytes;
    place.lines += (address + bytes - 1) / kLine - address / kLine + 1;
}

}  // namespace emu::counters
