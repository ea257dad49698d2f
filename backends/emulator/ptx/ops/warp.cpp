// SPDX-License-Identifier: MIT
// What lanes of a warp and warps of a block do together, jumps, setmaxnreg. PTX ISA 9.0, sections 9.7.9.6, 9.7.12, 9.7.13.
#include "forms.h"

namespace emu::ptx {
namespace {

// ---- jumps

Flow jump(Warp&, const Op&) { return Flow::Jump; }
Flow leave(Warp&, const Op&) { return Flow::Exit; }

bool decode_bra(Builder& b) {
    b.op.run = jump;
    return b.op.target >= 0;
}
bool decode_exit(Builder& b) {
    b.op.run = leave;
    return true;
}

// brx.idx: lanes go to the target of their index; the first index's lanes jump, the others come again.
Flow jump_indexed(Warp& w, const Op& op) {
    const std::vector<u32>& targets =
        w.block->launch->program->function->branch_tables[static_cast<size_t>(op.immediate)];
    const u32* const index = w.lanes<u32>(op.operand[0]);
    std::vector<Target> known;
    each_lane(w.mask, [&](int lane) {
        if (index[lane] >= targets.size()) throw Fault("branch", "brx.idx with an index behind its list of targets");
        add_lane(known, targets[index[lane]], lane);
    });
    return spread(w, known);
}
bool decode_brx(Builder& b) {
    b.op.run = jump_indexed;
    b.op.operand[0] = b.offset(0, 4);
    b.op.immediate = b.op.target;
    return true;
}

// ---- bar

u32 threads_of(const Warp& w, const Op& op) {
    return op.count ? w.lanes<u32>(op.operand[1])[std::countr_zero(w.mask)] : 0;
}
u32 barrier_of(const Warp& w, const Op& op) {
    const u32 number = w.lanes<u32>(op.operand[0])[std::countr_zero(w.mask)];
    if (number >= 16) throw Fault("barrier", "barrier " + std::to_string(number) + "; a block has 16");
    return number;
}

Flow barrier_sync(Warp& w, const Op& op) {
    const u32 number = barrier_of(w, op);
    Barrier& barrier = w.block->barriers[number];
    Checks* const checks = w.block->checks();
    const auto passed = [&] {
        if (checks) checks->acquire(w, kAllLanes, barrier.handed.seen);
        return Flow::Next;
    };
    if (w.barrier == static_cast<i32>(number)) {
        if (barrier.phase == w.barrier_phase) return Flow::Again;
        w.barrier = -1;
        return passed();
    }
    w.barrier_phase = barrier.phase;
    if (checks) checks->release(w, kAllLanes, barrier.handed.now);
    w.block->arrive(barrier, kLanes, threads_of(w, op));
    if (barrier.phase != w.barrier_phase) return passed();
    w.barrier = static_cast<i32>(number);
    return Flow::Again;
}
Flow barrier_arrive(Warp& w, const Op& op) {
    if (Checks* const checks = w.block->checks())
        checks->release(w, kAllLanes, w.block->barriers[barrier_of(w, op)].handed.now);
    w.block->arrive(w.block->barriers[barrier_of(w, op)], kLanes, threads_of(w, op));
    return Flow::Next;
}

// bar.red.op: the result is of all threads' predicates. A warp leaves its part in the barrier.
template <int Kind>  // 0 popc, 1 and, 2 or
Flow barrier_reduce(Warp& w, const Op& op) {
    const u32 number = barrier_of(w, op);
    Barrier& barrier = w.block->barriers[number];
    Barrier::Votes& votes = barrier.votes[barrier.phase & 1];
    const bool first = w.barrier != static_cast<i32>(number);
    if (first) {
        const u32 given = (w.predicate(op.operand[2]) ^ (op.immediate ? kAllLanes : 0)) & w.mask;
        if (!barrier.arrived) votes = {};
        votes.yes += static_cast<u32>(std::popcount(given));
        votes.all += static_cast<u32>(std::popcount(w.mask));
    }
    const u64 phase = first ? barrier.phase : w.barrier_phase;
    const Flow flow = barrier_sync(w, op);
    if (flow != Flow::Next) return flow;
    const Barrier::Votes& result = barrier.votes[phase & 1];
    if constexpr (Kind == 0) w.put<u32v>(op.operand[3], u32v(result.yes));
    else w.put_predicate(op.operand[3], (Kind == 1 ? result.yes == result.all : result.yes > 0) ? kAllLanes : 0);
    return flow;
}

// barrier.cluster: a warp arrives once in each phase.
Flow cluster_arrive(Warp& w, const Op&) {
    Cluster& cluster = *w.block->cluster;
    if (w.cluster_arrival) throw Fault("barrier", "barrier.cluster.arrive twice without a wait between");
    w.cluster_arrival = cluster.phase + 1;
    if (cluster.checks) cluster.checks->release(w, kAllLanes, cluster.handed.now);
    cluster.settle();
    return Flow::Next;
}
Flow cluster_wait(Warp& w, const Op&) {
    if (!w.cluster_arrival) throw Fault("barrier", "barrier.cluster.wait without an arrive before");
    if (w.block->cluster->phase < w.cluster_arrival) return Flow::Again;
    w.cluster_arrival = 0;
    if (Checks* const checks = w.block->checks()) checks->acquire(w, kAllLanes, w.block->cluster->handed.seen);
    return Flow::Next;
}

// elect.sync d|p, mask: one lane, the lowest.
Flow elect(Warp& w, const Op& op) {
    const u32 lowest = static_cast<u32>(std::countr_zero(w.mask));
    if (op.immediate) w.put<u32v>(op.operand[0], u32v(lowest));
    w.put_predicate(op.operand[4], 1u << lowest);
    return Flow::Next;
}
bool decode_elect(Builder& b) {
    const Operand& result = b.operand(0);
    if (result.kind != Operand::Kind::Pair) return false;
    b.op.run = elect;
    b.op.immediate = result.parts[0].kind != Operand::Kind::Sink;
    if (b.op.immediate) b.op.operand[0] = b.target(result.parts[0], 4);
    b.op.operand[4] = b.target(result.parts[1], 0);
    b.op.members = b.offset(1, 4);
    b.op.together = true;
    return true;
}

// mapa: the address of the same place in the shared memory of another block of the cluster.
Flow map_rank(Warp& w, const Op& op) {
    const u32v rank = w.get<u32v>(op.operand[2]);
    if (op.extra)
        w.put<u64v>(
            op.operand[0],
            (w.get<u64v>(op.operand[1]) & ~(u64{0xff} << kRankShift)) | (convert<u64v>(rank + 1u) << u64{kRankShift}));
    else w.put<u32v>(op.operand[0], (w.get<u32v>(op.operand[1]) & 0xffffffu) | ((rank + 1u) << kRankShift));
    return Flow::Next;
}
bool decode_mapa(Builder& b) {
    const u32 bytes = b.type() == "u64" ? 8 : 4;
    b.op.run = map_rank;
    b.op.extra = bytes == 8;
    b.op.operand[0] = b.target(0, bytes);
    b.op.operand[1] = b.offset(1, bytes);
    b.op.operand[2] = b.offset(2, 4);
    return true;
}

// bar.warp.sync needs nothing but that its lanes come together.
Flow meet(Warp& w, const Op&) {
    if (Checks* const checks = w.block->checks()) checks->sync_warp(w);
    return Flow::Next;
}

bool decode_bar(Builder& b) {
    b.op.together = true;
    if (b.has("warp")) {
        b.op.run = meet;
        b.op.members = b.offset(0, 4);
        return true;
    }
    if (b.has("cluster")) {
        b.op.run = b.has("arrive") ? cluster_arrive : b.has("wait") ? cluster_wait : nullptr;
        return b.op.run;
    }
    if (b.has("red")) {
        const bool count = b.has("popc");
        b.op.run = count ? barrier_reduce<0> : b.has("and") ? barrier_reduce<1> : barrier_reduce<2>;
        b.op.operand[3] = b.target(0, count ? 4 : 0);
        b.op.operand[0] = b.offset(1, 4);
        const bool sized = b.operands() == 4;
        b.op.count = sized;
        if (sized) b.op.operand[1] = b.offset(2, 4);
        b.op.operand[2] = b.offset(sized ? 3 : 2, 0);
        b.op.immediate = b.operand(sized ? 3 : 2).negated;
        return true;
    }
    b.op.run = b.has("arrive") ? barrier_arrive : b.has("sync") ? barrier_sync : nullptr;
    b.op.operand[0] = b.offset(0, 4);
    b.op.count = b.operands() > 1;
    if (b.op.count) b.op.operand[1] = b.offset(1, 4);
    return b.op.run;
}

// ---- setmaxnreg

// A block has the registers that its launch got. How many ptxas decides, so this is the most that it can be: what does not fit here
// fits on no device. Warps that have ended are taken to give theirs back.
constexpr u32 kRegisters = 65536, kMostOfThread = 256, kGranule = 8;

Flow give_registers(Warp& w, const Op& op) {
    w.allowance = static_cast<u32>(op.immediate);
    return Flow::Next;
}
Flow take_registers(Warp& w, const Op& op) {
    const std::vector<Warp>& warps = w.block->warps;
    const u32 count = static_cast<u32>(warps.size());
    const u32 at_launch = std::min(kMostOfThread, kRegisters / (count * kLanes) / kGranule * kGranule);
    u32 wanted = static_cast<u32>(op.immediate);
    for (const Warp& each : warps)
        if (&each != &w && each.alive) wanted += each.allowance ? each.allowance : at_launch;
    return wanted > count * at_launch ? Flow::Again : give_registers(w, op);
}
bool decode_setmaxnreg(Builder& b) {
    if (b.operand(0).kind != Operand::Kind::Number) return false;
    b.op.run = b.has("inc") ? take_registers : b.has("dec") ? give_registers : nullptr;
    b.op.immediate = static_cast<i64>(b.operand(0).value);
    b.op.together = true;
    return b.op.run;
}

// ---- shfl, vote, match, redux, activemask

enum class Shuffle : u8 { Up, Down, Bfly, Idx };

template <Shuffle Kind>
Flow shuffle(Warp& w, const Op& op) {
    const u32 *a = w.lanes<u32>(op.operand[1]), *by = w.lanes<u32>(op.operand[2]), *clamp = w.lanes<u32>(op.operand[3]);
    u32 result[kLanes] = {};
    u32 valid = 0, away = 0;
    each_lane(w.mask, [&](int lane) {
        const u32 at = static_cast<u32>(lane), b = by[lane] & 31, c = clamp[lane] & 31, segment = clamp[lane] >> 8 & 31;
        const u32 most = (at & segment) | (c & ~segment), least = at & segment;
        u32 from = at;
        bool in = true;
        switch (Kind) {
            case Shuffle::Up: from = at - b, in = static_cast<i32>(from) >= static_cast<i32>(most); break;
            case Shuffle::Down: from = at + b, in = from <= most; break;
            case Shuffle::Bfly: from = at ^ b, in = from <= most; break;
            case Shuffle::Idx: from = least | (b & ~segment), in = from <= most; break;
        }
        if (!in) from = at;
        away |= static_cast<u32>(!(w.mask >> (from & 31) & 1)) << lane;
        result[lane] = a[from & 31];
        valid |= static_cast<u32>(in) << lane;
    });
    if (Checks* const checks = w.block->checks(); checks && away)
        checks->found(
            w, kCollective,
            "lane " + std::to_string(std::countr_zero(away)) +
                " takes a value from a lane that does not execute the instruction with it");
    u32v lanes;
    std::memcpy(&lanes, result, sizeof lanes);
    w.put<u32v>(op.operand[0], lanes);
    if (op.immediate) w.put_predicate(op.operand[4], valid);
    return Flow::Next;
}

bool decode_shfl(Builder& b) {
    b.op.run = b.has("up")     ? shuffle<Shuffle::Up>
               : b.has("down") ? shuffle<Shuffle::Down>
               : b.has("bfly") ? shuffle<Shuffle::Bfly>
               : b.has("idx")  ? shuffle<Shuffle::Idx>
                               : nullptr;
    if (!b.op.run || !b.has("sync")) return false;
    const Operand& result = b.operand(0);
    if (result.kind == Operand::Kind::Pair) {
        b.op.operand[0] = b.target(result.parts[0], 4);
        b.op.operand[4] = b.target(result.parts[1], 0);
        b.op.immediate = 1;
    } else {
        b.op.operand[0] = b.target(result, 4);
    }
    for (size_t i = 1; i <= 3; ++i) b.op.operand[i] = b.offset(i, 4);
    b.op.members = b.offset(4, 4);
    b.op.together = true;
    return true;
}

enum class Vote : u8 { All, Any, Uni, Ballot };
template <Vote Kind>
Flow vote(Warp& w, const Op& op) {
    const u32 yes = (w.predicate(op.operand[1]) ^ (op.immediate ? kAllLanes : 0)) & w.mask;
    if constexpr (Kind == Vote::Ballot) w.put<u32v>(op.operand[0], u32v(yes));
    else {
        const bool truth = Kind == Vote::All ? yes == w.mask : Kind == Vote::Any ? yes != 0 : yes == w.mask || yes == 0;
        w.put_predicate(op.operand[0], truth ? kAllLanes : 0);
    }
    return Flow::Next;
}
bool decode_vote(Builder& b) {
    if (!b.has("sync")) return false;
    const bool ballot = b.has("ballot");
    b.op.run = ballot         ? vote<Vote::Ballot>
               : b.has("all") ? vote<Vote::All>
               : b.has("any") ? vote<Vote::Any>
                              : vote<Vote::Uni>;
    b.op.operand[0] = b.target(0, ballot ? 4 : 0);
    b.op.operand[1] = b.offset(1, 0);
    b.op.immediate = b.operand(1).negated;
    b.op.members = b.offset(2, 4);
    b.op.together = true;
    return true;
}

Flow active_mask(Warp& w, const Op& op) {
    w.put<u32v>(op.operand[0], u32v(w.mask));
    return Flow::Next;
}
bool decode_activemask(Builder& b) {
    b.op.run = active_mask;
    b.op.operand[0] = b.target(0, 4);
    return true;
}

template <class R, bool All>
Flow match(Warp& w, const Op& op) {
    const R* const a = w.lanes<R>(op.operand[1]);
    u32 result[kLanes] = {};
    bool same = true;
    each_lane(w.mask, [&](int lane) {
        each_lane(w.mask, [&](int other) { result[lane] |= static_cast<u32>(a[lane] == a[other]) << other; });
        same &= result[lane] == w.mask;
    });
    u32v lanes;
    std::memcpy(&lanes, result, sizeof lanes);
    w.put<u32v>(op.operand[0], All ? u32v(same ? w.mask : 0) : lanes);
    if (All && op.immediate) w.put_predicate(op.operand[4], same ? kAllLanes : 0);
    return Flow::Next;
}
bool decode_match(Builder& b) {
    const bool all = b.has("all"), wide = b.type() == "b64";
    b.op.run = all ? (wide ? match<u64, true> : match<u32, true>) : (wide ? match<u64, false> : match<u32, false>);
    const Operand& result = b.operand(0);
    if (result.kind == Operand::Kind::Pair) {
        b.op.operand[0] = b.target(result.parts[0], 4);
        b.op.operand[4] = b.target(result.parts[1], 0);
        b.op.immediate = 1;
    } else {
        b.op.operand[0] = b.target(result, 4);
    }
    b.op.operand[1] = b.offset(1, wide ? 8 : 4);
    b.op.members = b.offset(2, 4);
    b.op.together = true;
    return true;
}

template <class T, auto F>
Flow reduce(Warp& w, const Op& op) {
    const T* const a = w.lanes<T>(op.operand[1]);
    T result = a[std::countr_zero(w.mask)];
    bool first = true;
    each_lane(w.mask, [&](int lane) {
        result = first ? a[lane] : F(result, a[lane]);
        first = false;
    });
    w.put<u32v>(op.operand[0], u32v(static_cast<u32>(result)));
    return Flow::Next;
}
constexpr auto sum = [](auto a, auto b) { return static_cast<decltype(a)>(static_cast<u32>(a) + static_cast<u32>(b)); };
constexpr auto least = [](auto a, auto b) { return a < b ? a : b; };
constexpr auto most = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto both = [](auto a, auto b) { return a & b; };
constexpr auto either = [](auto a, auto b) { return a | b; };
constexpr auto differ = [](auto a, auto b) { return a ^ b; };

bool decode_redux(Builder& b) {
    const bool is_signed = b.type() == "s32";
    if (b.type() == "f32") return false;
    b.op.run = b.has("add")   ? reduce<u32, sum>
               : b.has("min") ? (is_signed ? reduce<i32, least> : reduce<u32, least>)
               : b.has("max") ? (is_signed ? reduce<i32, most> : reduce<u32, most>)
               : b.has("and") ? reduce<u32, both>
               : b.has("or")  ? reduce<u32, either>
               : b.has("xor") ? reduce<u32, differ>
                              : nullptr;
    b.op.operand[0] = b.target(0, 4);
    b.op.operand[1] = b.offset(1, 4);
    b.op.members = b.offset(2, 4);
    b.op.together = true;
    return b.op.run;
}

const Decoders kTable{
    {"bra", decode_bra},
    {"exit", decode_exit},
    {"brx", decode_brx},
    {"bar", decode_bar},
    {"barrier", decode_bar},
    {"shfl", decode_shfl},
    {"vote", decode_vote},
    {"match", decode_match},
    {"redux", decode_redux},
    {"activemask", decode_activemask},
    {"elect", decode_elect},
    {"mapa", decode_mapa},
    {"setmaxnreg", decode_setmaxnreg},
};

}  // namespace
}  // namespace emu::ptx
