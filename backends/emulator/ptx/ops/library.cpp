// SPDX-License-Identifier: MIT
// What every CUDA program may call in kernels, though its PTX has no such function: printf, assert, malloc and free.
//
// Sources: CUDA C++ Programming Guide, "Formatted Output", "Assertion" and "Dynamic Global Memory Allocation and Operations"; the
// declarations of these functions in the PTX that compilers write, which make malloc and free of new and delete.
#include <cstdio>
#include <mutex>
#include <string>

#include "core/immortal.h"
#include "core/printf.h"
#include "core/text.h"
#include "forms.h"
#include "library.h"

namespace emu::ptx {
namespace {

std::string text_at(Warp& w, int lane, u64 address) {
    std::string text;
    for (;; ++address) {
        const u8 byte = *generic_memory(w, lane, address, 1, 1);
        if (!byte) return text;
        text += static_cast<char>(byte);
    }
}

/// The value of a variable that a call hands over; `address`: the register or constant that has its address.
template <class T>
T handed(Warp& w, int lane, i32 address) {
    T value;
    std::memcpy(&value, local_memory(w, lane, w.lanes<u64>(address)[lane], sizeof value, sizeof value), sizeof value);
    return value;
}

/// The buffer of a call's arguments: each lies at a multiple of its size.
class Arguments {
public:
    Arguments(Warp& w, int lane, u64 address) : w_(w), lane_(lane), at_(address) {}
    template <class T>
    T next() {
        at_ = round_up(at_, sizeof(T));
        T value;
        std::memcpy(&value, generic_memory(w_, lane_, at_, sizeof(T), sizeof(T)), sizeof(T));
        at_ += sizeof(T);
        ++count;
        return value;
    }
    i32 star() { return next<i32>(); }
    u64 integer(bool wide) { return wide ? next<u64>() : next<u32>(); }
    f64 number() { return next<f64>(); }
    std::string text() {
        const u64 address = next<u64>();
        return address ? text_at(w_, lane_, address) : "(null)";
    }
    static std::string other(const Conversion& c) {
        throw Fault(
            "printf", "the conversion " + c.flags + c.size + (c.kind ? std::string(1, c.kind) : "") +
                          " of printf is not supported");
    }
    i32 count = 0;

private:
    Warp& w_;
    int lane_;
    u64 at_;
};

std::mutex& output() { return immortal<std::mutex>(); }

// vprintf(format, buffer): how many arguments it has taken, or -1. Text goes to the program's stdout at once.
Flow print(Warp& w, const Op& op) {
    std::string text;
    each_lane(w.mask, [&](int lane) {
        const u64 format = handed<u64>(w, lane, op.operand[1]);
        Arguments arguments(w, lane, handed<u64>(w, lane, op.operand[2]));
        if (format) text += printed(text_at(w, lane, format), arguments);
        const u32 result = format ? static_cast<u32>(arguments.count) : ~0u;
        std::memcpy(local_memory(w, lane, w.lanes<u64>(op.operand[0])[lane], 4, 4), &result, 4);
    });
    const std::lock_guard lock(output());
    std::fwrite(text.data(), 1, text.size(), stdout);
    return Flow::Next;
}

std::string triple(u32 x, u32 y, u32 z) {
    return "[" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + "]";
}

// __assertfail(condition, file, line, function, bytes of a character), with the words of the CUDA runtime.
Flow fail(Warp& w, const Op& op) {
    const auto text = [&](int slot, int lane) {
        const u64 address = handed<u64>(w, lane, op.operand[slot]);
        return address ? text_at(w, lane, address) : std::string("?");
    };
    const int first = std::countr_zero(w.mask);
    const u32 line = handed<u32>(w, first, op.operand[2]);
    const u32 *const block = w.block->index, *const size = w.block->launch->block;
    std::string all, told;
    each_lane(w.mask, [&](int lane) {
        const u32 thread = w.index * kLanes + static_cast<u32>(lane);
        const std::string where = "block: " + triple(block[0], block[1], block[2]) + ", thread: " +
                                  triple(thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]);
        const std::string one = text(1, lane) + ":" + std::to_string(line) + ": " + text(3, lane) + ": " + where +
                                " Assertion `" + text(0, lane) + "` failed.";
        if (lane == first) told = one;
        all += one + "\n";
    });
    {
        const std::lock_guard lock(output());
        std::fputs(all.c_str(), stderr);
    }
    const int more = std::popcount(w.mask) - 1;
    Fault fault("assert", told + (more ? " So do " + std::to_string(more) + " more threads of its warp." : ""), 710);
    fault.file = text(1, first);
    fault.line = line;
    throw fault;
}

// malloc(bytes): an address, or 0.
Flow allocate(Warp& w, const Op& op) {
    Heap& heap = *w.block->launch->memory->heap();
    Checks* const checks = w.block->checks();
    const bool watched = checks && checks->wants(kUninitialised);
    each_lane(w.mask, [&](int lane) {
        const u64 bytes = handed<u64>(w, lane, op.operand[1]), result = heap.allocate(bytes, !watched);
        if (checks && result) checks->allocated(result, result + bytes);
        std::memcpy(local_memory(w, lane, w.lanes<u64>(op.operand[0])[lane], 8, 8), &result, 8);
    });
    return Flow::Next;
}

// free(address), which may be 0.
Flow release(Warp& w, const Op& op) {
    each_lane(w.mask, [&](int lane) {
        const u64 address = handed<u64>(w, lane, op.operand[0]);
        if (!address) return;
        const std::string wrong = w.block->launch->memory->heap()->release(address);
        if (wrong.empty()) return;
        throw Fault("heap", "lane " + std::to_string(lane) + ": " + hex(address) + ": " + wrong);
    });
    return Flow::Next;
}

/// Addresses of the variables that the call hands over, from the slot on.
bool given(Builder& b, size_t count, size_t slot) {
    const std::vector<Operand>& all = b.operand(2).parts;
    if (all.size() != count) return false;
    for (const Operand& each : all) {
        if (each.kind != Operand::Kind::Variable) return false;
        b.op.operand[slot++] = b.offset(each, 8);
    }
    return true;
}

}  // namespace

bool decode_library_call(Builder& b) {
    const Operand& callee = b.operand(1);
    const std::vector<Operand>& results = b.operand(0).parts;
    if (callee.kind != Operand::Kind::Symbol) return false;
    if (callee.name == "vprintf" && results.size() == 1 && results[0].kind == Operand::Kind::Variable) {
        b.op.run = print;
        b.op.operand[0] = b.offset(results[0], 8);
        return given(b, 2, 1);
    }
    if (callee.name == "malloc" && results.size() == 1 && results[0].kind == Operand::Kind::Variable) {
        b.op.run = allocate;
        b.op.operand[0] = b.offset(results[0], 8);
        return given(b, 1, 1);
    }
    if (callee.name == "free" && results.empty()) {
        b.op.run = release;
        return given(b, 1, 0);
    }
    if (callee.name != "__assertfail" || !results.empty()) return false;
    b.op.run = fail;
    return given(b, 5, 0);
}

}  // namespace emu::ptx
