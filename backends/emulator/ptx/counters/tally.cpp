// SPDX-License-Identifier: MIT
#include "tally.h"

#include "../warp.h"
#include "banks.h"

namespace emu::ptx {

void Tally::add(const Tally& other) {
    for (size_t i = 0; i < executed.size(); ++i) {
        executed[i] += other.executed[i];
        traffic[i].shared.add(other.traffic[i].shared);
        traffic[i].global.add(other.traffic[i].global);
        traffic[i].local_bytes += other.traffic[i].local_bytes;
        traffic[i].copies += other.traffic[i].copies;
    }
    blocks += other.blocks;
    warps += other.warps;
}

void Tally::access(u32 operation, Reach reach, const u64* address, u32 lanes, u32 bytes, bool serial) {
    u32 shared = reach == Reach::Shared ? lanes : 0, local = reach == Reach::Local ? lanes : 0, elsewhere = 0;
    if (reach == Reach::Generic)
        each_lane(lanes, [&](int lane) {
            const u64 window = address[lane] & kWindow;
            (window == kSharedWindow ? shared : window == kLocalWindow ? local : elsewhere) |= u32{window != 0} << lane;
        });
    const u32 global = lanes & ~shared & ~local & ~elsewhere;
    Traffic& t = traffic[operation];
    t.local_bytes += static_cast<u64>(std::popcount(local)) * bytes;
    if (shared) {
        const BankCost cost = bank_cost(address, shared, bytes, serial);
        const auto count = static_cast<u64>(std::popcount(shared));
        t.shared.add({count, count * bytes, cost.cycles, cost.minimum});
    }
    if (global) {
        const auto count = static_cast<u64>(std::popcount(global));
        t.global.add({count, count * bytes, sectors_touched(address, global, bytes), 0});
    }
}

void Tally::row(u32 operation, bool shared, u64 address, u32 bytes) {
    Traffic& t = traffic[operation];
    if (shared) t.shared.add({0, bytes, (bytes + 127) / 128, (bytes + 127) / 128});
    else t.global.add({0, bytes, (address + bytes - 1) / 32 - address / 32 + 1, 0});
}

void Tally::bulk(u32 operation, u64 in_shared, u64 inside) {
    Traffic& t = traffic[operation];
    ++t.copies;
    t.shared.bytes += in_shared;
    t.global.bytes += inside;
}

}  // namespace emu::ptx
