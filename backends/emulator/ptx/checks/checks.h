// SPDX-License-Identifier: MIT
// Checks beside the execution of a cluster: races in shared memory, between warps and with what works asynchronously;
// missing proxy fences; registers that a wgmma still works on; shared memory that nobody has written.
//
// Orders are those that the kernel makes: barriers, mbarriers, bar.warp.sync, waits for asynchronous work. Which warp came first
// here does not matter. Source of the rules: PTX ISA 9.0, chapter 8 (memory consistency model, proxies), sections 9.7.9.25 (bulk
// copies), 9.7.13 (barriers), 9.7.15 (wgmma).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "global.h"

namespace emu::ptx {

struct Block;
struct Cluster;
struct Mbarrier;
struct Op;
struct Program;
struct Warp;

/// Those that can be switched off; the others are faults that end the launch.
enum Check : u32 {
    kSharedRace = 1,
    kProxyFence = 2,
    kInFlight = 4,
    kUninitialised = 8,
    kCluster = 16,
    kGridOrder = 32,
    kCollective = 64,
    kGlobalRace = 128,
    kAllChecks = 255,
    kProxyRead = 256,  // advisory: only if it is named
};
constexpr std::pair<const char*, u32> kCheckNames[] = {
    {"shared-race", kSharedRace},      {"proxy-fence", kProxyFence}, {"in-flight", kInFlight},
    {"uninitialised", kUninitialised}, {"cluster", kCluster},        {"grid-order", kGridOrder},
    {"collective", kCollective},       {"global-race", kGlobalRace}, {"proxy-read", kProxyRead},
};

/// Where something was found, and how often.
struct Found {
    std::string check, message, place, file;
    u32 line = 0, block[3] = {0, 0, 0}, warp = 0;
    u64 times = 1;
};

/// What the checks of a launch find, of all its threads. A place is told once.
class Report {
public:
    /// Whether the place is new: then `add` takes the words.
    bool again(u32 check, u32 statement, u32 other);
    void add(u32 check, u32 statement, u32 other, Found);
    std::vector<Found> take();

private:
    using Key = std::tuple<u32, u32, u32>;
    std::mutex mutex_;
    std::map<Key, size_t> places_;
    std::vector<Found> found_;
};

/// Global memory that a launch has written: for each of its allocations, from the first to the last byte.
struct Written {
    struct Part {
        u64 begin = ~u64{0}, end = 0;
    };
    std::vector<Part> parts;
    void add(u64 begin, u64 end, size_t range) {
        if (parts.size() <= range) parts.resize(range + 1);
        parts[range].begin = std::min(parts[range].begin, begin);
        parts[range].end = std::max(parts[range].end, end);
    }
    bool contains(u64 begin, u64 end) const {
        return std::any_of(
            parts.begin(), parts.end(), [&](const Part& each) { return begin < each.end && end > each.begin; });
    }
};

constexpr u8 kAnyLane = 255;
/// kStrong: others may access the same bytes at the same time. kHands: they hand on what they know. kRows: the lanes that give
/// the addresses are not those whose values are meant; kQuads: the values of eight rows are those of lanes 0 to 3, 4 to 7, ...
/// kSame: a write of what is there.
enum Kind : u8 { kRead = 0, kWrite = 1, kAsync = 2, kStrong = 4, kRows = 8, kHands = 16, kQuads = 32, kSame = 64 };

/// An access to some of 16 bytes of shared memory that later ones are held against.
struct Cell {
    u32 time = 0, op = 0;
    u16 who = 0, mask = 0;
    // Byte `first` is the lane's, `size` bytes each: the next bytes are the next lane's. kAnyLane: of several lanes, or none.
    u8 lane = kAnyLane, size = 16, first = 0, kind = kRead;
    int lane_at(int byte) const { return lane == kAnyLane ? -1 : lane + (byte - first) / size; }
};

/// Of a block's shared memory: the latest accesses to each 16 bytes, and which bytes anyone has written.
struct Shadow {
    static constexpr u32 kCells = 12;
    struct Granule {
        Cell cells[kCells];
    };
    std::vector<Granule> granules;
    std::vector<u8> counts;
    std::vector<u16> written;
    void reset(u32 bytes);
};

class Checks {
public:
    /// `shadow`: of global memory; null if nobody asks for it.
    Checks(u32 enabled, Report& report, const Program& program, GlobalShadow* shadow)
        : enabled_(enabled), report_(report), program_(program), shadow_(shadow) {}

    /// Cluster `number` begins.
    void reset(const Cluster&, u64 number);
    bool wants(u32 check) const { return enabled_ & check; }

    // ---- accesses. `w.op` is the instruction.

    /// By lanes: `bytes` at `at[lane]` (addresses of shared memory, known to be valid and aligned).
    /// `same`: lanes that write what is there already.
    void touch(Warp& w, const u32* at, u32 lanes, u32 bytes, u8 kind, u32 same = 0);
    /// cp.async of lanes, in their open groups.
    void copy_async(Warp& w, const u32* at, u32 lanes, u32 bytes);
    /// A bulk copy of `lane` into `block`, which the mbarrier announces.
    void bulk_write(Warp& w, int lane, Block& block, u32 offset, u64 bytes, const Mbarrier&);
    /// A bulk copy out of `block`: until its group is waited for, or until the mbarrier's phase ends.
    void bulk_read(Warp& w, int lane, Block& block, u32 offset, u64 bytes, const Mbarrier* = nullptr);
    /// 16 bytes of a matrix of the product that the warp issues. `needs`: what they were written by.
    using Needs = std::vector<std::pair<u16, u32>>;
    void product_read(Warp& w, u32 address, Needs* needs);
    /// The warp issues a product whose B another warp has read: it must know of the same writes.
    void product_needs(Warp& w, const Needs&);
    void initialise(Warp& w, int lane, Block& block, u32 offset);
    /// An mbarrier is used: its initialisation must be known.
    void used(Warp& w, int lane, const Block& block, u32 offset);
    void remote(Warp& w, const Block& target);
    void global_read(Warp& w, int lane, u64 begin, u64 end);
    void global_write(Warp& w, u64 begin, u64 end, size_t range);
    /// malloc gives memory that others may have had before.
    void allocated(u64 begin, u64 end);
    /// `bytes` that a lane loads from the heap, or from other global memory.
    void heap_read(Warp& w, int lane, u64 address, u32 bytes);
    struct GlobalAccess {
        bool writes = false, async = false, strong = false;
        u16 who = 0;
        u32 time = 0;
    };
    bool watches_global() const { return shadow_ != nullptr; }
    /// Whether global memory that a launch only reads need not be told.
    bool watches_reads(size_t range) const { return shadow_ && shadow_->touched(range); }
    /// By lanes that know the same; memory of one allocation.
    void global_touch(Warp& w, u32 lanes, u64 begin, u64 end, size_t range, GlobalAccess);
    /// By a bulk copy of a lane. `strong`: a reduction.
    void global_bulk(Warp& w, int lane, u64 begin, u64 end, size_t range, bool writes, bool strong = false);
    /// The cluster may know from now on what others have done.
    void acquired() { acquired_ = true; }

    // ---- orders

    void release(Warp& w, u32 lanes, Clock& into);
    void acquire(Warp& w, u32 lanes, const Clock& from);
    void sync_warp(Warp& w);
    void fence_proxy(Warp& w, u32 lanes, bool shared, bool global);
    /// Asynchronous work of `actor` up to `time` is known to be done.
    void done(Warp& w, u32 lanes, u32 actor, u32 time);
    /// An atomic, or an access with acquire or release: those of one address hand on what they know.
    void strong(Warp& w, u32 lanes, u64 address);
    void grid_wait(Warp& w, u32 lanes);
    u32 products_actor(const Warp& w) const;
    u32 copies_actor(const Warp& w) const;
    u32 stores_actor(const Warp& w, int lane);
    /// The same bulk stores, of which it is known that they have written.
    u32 stores_written_actor(const Warp& w, int lane);
    u32 new_actor(const Block& block);

    // ---- registers

    /// Before the instruction is executed: it may touch registers that a product works on.
    void registers(Warp& w, const Op& op);
    void products_done(Warp& w, u64 count);

    /// The last warp of a block ends, and the block's shared memory with it.
    void ended(Warp& w);

    /// Something else that is wrong at the warp's instruction.
    void found(Warp& w, u32 check, const std::string& message, u32 other = ~u32{0});

    Written written;

private:
    struct State {
        Clock clock, subset;
        u32 subset_lanes = 0;  // these have waited for something that the others have not: see sync_warp
        u32 time = 1;
        // By number of a watched register, numbers of products plus 1: those that write it, those that read it; and
        // when it was last changed, in wgmma.fences.
        std::vector<u64> writes, reads;
        std::vector<u32> changed;
        u32 fences = 1;
        u64 done = 0;
    };
    struct Actor {
        enum class Kind : u8 { Warp, Products, Copies, Mbarrier, Stores } kind;
        u32 rank, index;
    };
    State& state(const Warp& w);
    const Clock& clock_of(State& s, u32 lanes) const { return lanes & s.subset_lanes ? s.subset : s.clock; }
    u32 actor(const Warp& w) const;
    Entry own(const Warp& w, const State& s, u32 lanes) const;
    void record(Block& block, u32 granule, const Cell& mine, Warp& w, const Clock& clock, Needs* needs = nullptr);
    static bool ordered(const Cell& old, const Cell& mine, u32 me, const Entries& known);
    void race(Warp& w, const Block& block, u32 granule, const Cell& old, const Cell& mine, u32 check);
    bool follows(const WordWrite& old, u32 me, const Clock& clock, bool async, u8 flags, bool& fence) const;
    void global(Warp& w, u32 lanes, u64 begin, u64 end, size_t range, GlobalAccess);
    void global_found(Warp& w, u64 at, const WordWrite& old, const GlobalAccess& mine, bool fence);
    std::string words(const Cell& old) const;
    std::string statement(u32 op) const;
    void region(Warp& w, Block& block, u32 offset, u64 bytes, Cell cell, int lane);
    void runs(Warp& w, const u32* at, u32 lanes, u32 bytes, Cell cell);

    u32 enabled_;
    Report& report_;
    const Program& program_;
    GlobalShadow* shadow_;
    size_t heap_ = 0;        // the number of its range, or one that none has
    u32 cluster_ = 0;        // its number plus 1
    bool acquired_ = false;  // it may know something of other clusters
    std::vector<State> states_;
    std::vector<Shadow> shadows_;  // by rank
    std::vector<Actor> actors_;
    std::unordered_map<u64, Clock> strong_;
    std::map<std::pair<u32, int>, u32> stores_, stores_written_;
    std::map<std::pair<u32, u16>, Cell> leaving_;  // the last bulk copy out of a block's memory, by rank and actor
    u32 warps_ = 0, blocks_ = 0;
    u32 grid_ = 0;  // the actor of the grid before this one
};

/// Numbers the registers that products work on, and notes which instructions touch them.
void watch_registers(Program&);

}  // namespace emu::ptx
