// SPDX-License-Identifier: MIT
// Moves, packing and unpacking, addresses of state spaces. PTX ISA 9.0, sections 9.7.9.1 to 9.7.9.6, 9.7.9.20 f.
#include <chrono>

#include "forms.h"

namespace emu::ptx {
namespace {

constexpr auto same = [](auto a) { return a; };

Flow move_predicate(Warp& w, const Op& op) {
    w.put_predicate(op.operand[0], w.predicate(op.operand[1]) ^ (op.immediate ? kAllLanes : 0));
    return Flow::Next;
}

/// A register's value as parts of `op.immediate` bits each, lowest first; `extra` is the register's size in bytes.
Flow unpack(Warp& w, const Op& op) {
    const auto width = static_cast<u32>(op.immediate);
    for (u32 part = 0; part < op.count; ++part) {
        const i32 target = w.block->launch->program->lists[op.list + part];
        if (op.extra == 8) {
            const u64v shifted = w.get<u64v>(op.operand[1]) >> u64{part * width};
            w.put<u32v>(
                target, convert<u32v>(
                            width == 16  ? shifted & u64{0xffff}
                            : width == 8 ? shifted & u64{0xff}
                                         : shifted));
        } else {
            const u32v shifted = w.get<u32v>(op.operand[1]) >> (part * width);
            w.put<u32v>(target, width == 16 ? shifted & 0xffffu : width == 8 ? shifted & 0xffu : shifted);
        }
    }
    return Flow::Next;
}

Flow pack(Warp& w, const Op& op) {
    const auto width = static_cast<u32>(op.immediate);
    u64v value = u64v(0);
    for (u32 part = 0; part < op.count; ++part) {
        u64v each = convert<u64v>(w.get<u32v>(w.block->launch->program->lists[op.list + part]));
        if (width < 32) each &= (u64{1} << width) - 1;
        value |= each << u64{part * width};
    }
    if (op.extra == 8) w.put<u64v>(op.operand[0], value);
    else w.put<u32v>(op.operand[0], convert<u32v>(value));
    return Flow::Next;
}

// b128: two 64-bit halves behind each other.
Flow unpack128(Warp& w, const Op& op) {
    for (u32 part = 0; part < 2; ++part)
        w.put<u64v>(
            w.block->launch->program->lists[op.list + part], w.get<u64v>(op.operand[1] + static_cast<i32>(256 * part)));
    return Flow::Next;
}
Flow pack128(Warp& w, const Op& op) {
    for (u32 part = 0; part < 2; ++part)
        w.put<u64v>(
            op.operand[0] + static_cast<i32>(256 * part), w.get<u64v>(w.block->launch->program->lists[op.list + part]));
    return Flow::Next;
}

u64 nanoseconds() {
    return static_cast<u64>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}

// Clocks count executed instructions: only that they advance means anything.
Flow read_clock(Warp& w, const Op& op) {
    const u64 value = op.immediate ? nanoseconds() : w.executed;
    if (op.extra == 8) w.put<u64v>(op.operand[0], u64v(value));
    else w.put<u32v>(op.operand[0], u32v(static_cast<u32>(op.immediate == 2 ? value >> 32 : value)));
    return Flow::Next;
}

bool clock_read(Builder& b, const std::string& name) {
    b.op.run = read_clock;
    b.op.immediate = name == "%globaltimer" || name == "%globaltimer_lo" ? 1 : name == "%globaltimer_hi" ? 2 : 0;
    b.op.extra = b.type().ends_with("64") ? 8 : 4;
    b.op.operand[0] = b.target(0, b.op.extra);
    return true;
}

bool decode_mov(Builder& b) {
    const std::string& type = b.type();
    const u32 bytes = type == "pred" ? 0 : type.ends_with("128") ? 16 : type.ends_with("64") ? 8 : 4;
    const Operand &to = b.operand(0), &from = b.operand(1);
    const auto part_bits = [&](size_t parts) {
        return static_cast<i64>((type.ends_with("16") ? 16 : 8 * bytes) / parts);
    };
    if (to.kind == Operand::Kind::List) {
        b.op.run = bytes == 16 ? unpack128 : unpack;
        b.list(to, bytes == 16 ? 8 : 4, true);
        b.op.operand[1] = b.offset(from, bytes);
        b.op.extra = bytes;
        b.op.immediate = part_bits(to.parts.size());
        return b.op.immediate >= 8;
    }
    if (from.kind == Operand::Kind::List) {
        b.op.run = bytes == 16 ? pack128 : pack;
        b.list(from, bytes == 16 ? 8 : 4, false);
        b.op.operand[0] = b.target(to, bytes);
        b.op.extra = bytes;
        b.op.immediate = part_bits(from.parts.size());
        return b.op.immediate >= 8;
    }
    if (from.kind == Operand::Kind::Special &&
        (from.name.starts_with("%clock") || from.name.starts_with("%globaltimer")))
        return clock_read(b, from.name);
    if (bytes == 0) {
        b.op.immediate = from.negated;
        return set(b, move_predicate, 0, 1);
    }
    if (bytes == 16) return false;
    return set(b, bytes == 8 ? unary<U64, same> : unary<U32, same>, bytes, 1);
}

// Windows of generic addresses; global addresses are generic ones as they are.
template <u64 Window>
constexpr auto into = [](u64v a) { return a | Window; };
constexpr auto out_of = [](u64v a) { return a & ~kWindow; };

bool decode_cvta(Builder& b) {
    if (!b.type().ends_with("64")) return false;
    if (b.has("to")) return set(b, b.has("shared") || b.has("local") ? unary<U64, out_of> : unary<U64, same>, 8, 1);
    return set(
        b,
        b.has("shared")  ? unary<U64, into<kSharedWindow>>
        : b.has("local") ? unary<U64, into<kLocalWindow>>
                         : unary<U64, same>,
        8, 1);
}

// isspacep.shared p, a
Flow in_space(Warp& w, const Op& op) {
    const u64v window = w.get<u64v>(op.operand[1]) & kWindow;
    w.put_predicate(op.operand[0], to_mask(bits<i64v>(window == u64v(static_cast<u64>(op.immediate)))));
    return Flow::Next;
}
bool decode_isspacep(Builder& b) {
    b.op.run = in_space;
    b.op.immediate = static_cast<i64>(
        b.has("shared")  ? kSharedWindow
        : b.has("local") ? kLocalWindow
        : b.has("param") ? kParamWindow
                         : 0);
    b.op.operand[0] = b.target(0, 0);
    b.op.operand[1] = b.offset(1, 8);
    return !b.has("const");
}

Flow nothing(Warp&, const Op&) { return Flow::Next; }
// fence.proxy.async: what the thread knows of, the async proxy sees; in one space of memory if it names one.
Flow fence_proxy(Warp& w, const Op& op) {
    if (Checks* const checks = w.block->checks()) checks->fence_proxy(w, w.mask, op.extra & 1, op.extra & 2);
    return Flow::Next;
}
Flow grid_wait(Warp& w, const Op&) {
    if (Checks* const checks = w.block->checks()) checks->grid_wait(w, w.mask);
    return Flow::Next;
}
bool decode_fence(Builder& b) {
    const bool proxy =
        b.has("proxy") && (b.has("async") || b.has("async::shared::cta") || b.has("async::shared::cluster"));
    b.op.run = proxy ? fence_proxy : nothing;
    const bool shared = b.has("shared::cta") || b.has("shared::cluster") || b.has("async::shared::cta") ||
                        b.has("async::shared::cluster");
    b.op.extra = b.has("global") ? 2 : shared ? 1 : 3;
    return true;
}
// Grids run one after the other.
bool decode_griddepcontrol(Builder& b) {
    b.op.run = b.has("wait") ? grid_wait : nothing;
    return true;
}
// Hints, and orders that hold anyway: every access takes place when it is executed.
bool decode_nothing(Builder& b) {
    b.op.run = nothing;
    return true;
}

Flow stop(Warp& w, const Op&) {
    (void)w;
    throw Fault("trap", "the kernel executed trap");
}
bool decode_trap(Builder& b) {
    b.op.run = stop;
    return true;
}

// createpolicy: its result is only handed to cache hints.
Flow policy(Warp& w, const Op& op) {
    w.put<u64v>(op.operand[0], u64v(1));
    return Flow::Next;
}
bool decode_createpolicy(Builder& b) {
    b.op.run = policy;
    b.op.operand[0] = b.target(0, 8);
    return true;
}

const Decoders kTable{
    {"mov", decode_mov},
    {"cvta", decode_cvta},
    {"isspacep", decode_isspacep},
    {"membar", decode_nothing},
    {"fence", decode_fence},
    {"griddepcontrol", decode_griddepcontrol},
    {"prefetch", decode_nothing},
    {"prefetchu", decode_nothing},
    {"discard", decode_nothing},
    {"applypriority", decode_nothing},
    {"nanosleep", decode_nothing},
    {"pmevent", decode_nothing},
    {"trap", decode_trap},
    {"brkpt", decode_trap},
    {"createpolicy", decode_createpolicy},
};

}  // namespace
}  // namespace emu::ptx
