// SPDX-License-Identifier: MIT
// What a kernel does, counted instruction by instruction of its PTX, one tally a CPU thread.
#pragma once

#include <vector>

#include "../types.h"

namespace emu::ptx {

/// What one instruction has asked of a memory, all its executions together.
struct Use {
    u64 lanes = 0;    // that took part
    u64 bytes = 0;    // they asked for
    u64 cost = 0;     // shared: cycles of the banks; global: sectors of 32 bytes
    u64 minimum = 0;  // shared: those cycles if no lanes met in a bank
    void add(const Use& other) {
        lanes += other.lanes, bytes += other.bytes;
        cost += other.cost, minimum += other.minimum;
    }
};

struct Traffic {
    Use shared, global;
    u64 local_bytes = 0;
    u64 copies = 0;  // bulk copies; their bytes in shared memory are those of each block that gets them
};

enum class Reach : u8 { Shared, Global, Local, Generic };

struct Tally {
    std::vector<u64> executed;     // by index of the operation
    std::vector<Traffic> traffic;  // likewise
    u64 blocks = 0, warps = 0;

    explicit Tally(size_t operations = 0) : executed(operations), traffic(operations) {}
    void add(const Tally&);

    /// An access of `lanes`, `bytes` each at `address[lane]`. `serial`: lanes that meet at one word go one after the other.
    void access(u32 operation, Reach, const u64* address, u32 lanes, u32 bytes, bool serial);
    /// Bytes in a row that a whole warp moves together, in an order of the hardware's own: no conflicts are counted.
    void row(u32 operation, bool shared, u64 address, u32 bytes);
    /// A bulk copy: `inside` bytes of it in global memory, from `address` on if they are one row.
    void bulk(u32 operation, u64 in_shared, u64 inside);
};

}  // namespace emu::ptx
