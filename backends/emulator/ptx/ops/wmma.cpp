// SPDX-License-Identifier: MIT
// wmma: products of matrices whose fragments only these instructions know. PTX ISA 9.0, section 9.7.14.4.
//
// Which lane has which element is the hardware's affair: a program may not depend on it. Here a matrix of R rows lies in order of
// its rows over the lanes, as many elements in each. Halves have more registers than elements in some shapes: copies.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "../tensor_core.h"
#include "forms.h"
#include "half.h"

namespace emu::ptx {
namespace {

constexpr int kMostElements = 32 * 16;

struct Shape {
    int m = 0, n = 0, k = 0;
};
Shape shape_of(const Builder& b) {
    Shape s;
    for (size_t i = 0; i < b.words(); ++i)
        if (std::sscanf(b.word(i).c_str(), "m%dn%dk%d", &s.m, &s.n, &s.k) == 3) return s;
    return Shape{};
}
bool is_known(const Shape& s, u32 bytes) {
    if (bytes == 4) return s.m == 16 && s.n == 16 && s.k == 8;
    return s.k == 16 && s.m * s.n == 256 && (s.m == 8 || s.m == 16 || s.m == 32);
}

/// Elements of a fragment, in order of rows, from and to registers. `count` registers, with copies of the first ones.
struct Fragment {
    int elements;
    u32 bytes;
    int per_lane() const { return elements / kLanes; }
    int registers() const { return per_lane() * static_cast<int>(bytes) / 4; }
};
void gather(const Warp& w, const Fragment& f, const i32* list, u32* into) {
    for (int e = 0; e < f.elements; ++e) {
        const int lane = e / f.per_lane(), at = e % f.per_lane();
        if (f.bytes == 4) into[e] = w.lanes<u32>(list[at])[lane];
        else into[e] = w.lanes<u32>(list[at / 2])[lane] >> 16 * (at % 2) & 0xffffu;
    }
}
void spread(Warp& w, const Fragment& f, const i32* list, int count, const u32* from) {
    for (int i = 0; i < count; ++i) {
        const int first = i % f.registers();
        u32v value;
        for (int lane = 0; lane < kLanes; ++lane) {
            const u32* const own = from + lane * f.per_lane();
            value[lane] = f.bytes == 4 ? own[first] : own[2 * first + 1] << 16 | own[2 * first];
        }
        w.put<u32v>(list[i], value);
    }
}

// Loads and stores. Op: operand[1] the address, operand[2] the stride in elements, operand[3] rows << 16 | columns.
constexpr u32 kNarrow = 1, kByRows = 2, kHalves = 4, kOwnStride = 8;

struct Place {
    int rows, columns;
    u32 bytes;
    bool by_rows;
    u64 base, stride;
    int lines() const { return by_rows ? rows : columns; }
    int length() const { return by_rows ? columns : rows; }
    u64 line(int number) const { return base + static_cast<u64>(number) * stride * bytes; }
    /// Where element `at` of a line stands in order of rows.
    int element(int number, int at) const { return by_rows ? number * columns + at : at * columns + number; }
};
Place place_of(const Warp& w, const Op& op) {
    const int lane = std::countr_zero(w.mask);
    Place p{op.operand[3] >> 16, op.operand[3] & 0xffff, op.extra & kHalves ? 2u : 4u, (op.extra & kByRows) != 0, 0, 0};
    p.base = (op.extra & kNarrow ? u64{w.lanes<u32>(op.operand[1])[lane]} : w.lanes<u64>(op.operand[1])[lane]) +
             static_cast<u64>(op.immediate);
    p.stride = op.extra & kOwnStride ? w.lanes<u32>(op.operand[2])[lane] : static_cast<u64>(p.length());
    return p;
}

/// The bytes of a line, found to be valid, and told to the checks.
template <Memory kMemory>
u8* line_memory(Warp& w, const Place& p, int number, u8 kind) {
    const int lane = std::countr_zero(w.mask);
    const u64 where = p.line(number);
    const u32 bytes = static_cast<u32>(p.length()) * p.bytes;
    u8* const memory = kMemory(w, lane, where, bytes, number ? 16 : 32);
    if (Tally* const tally = w.block->cluster->tally)
        tally->row(w.op->statement, kMemory == shared_memory || (where & kWindow) == kSharedWindow, where, bytes);
    Checks* const checks = w.block->checks();
    if (!checks) return memory;
    if (kMemory == shared_memory || (where & kWindow) == kSharedWindow) {
        u32 at[kLanes];
        const u32 pieces = bytes / 16;
        for (u32 i = 0; i < pieces; ++i) at[i] = static_cast<u32>(where) + 16 * i;
        checks->touch(w, at, (1u << pieces) - 1, 16, kind | kRows);
    } else if (!(where & kWindow)) {
        const size_t range =
            w.block->launch->memory->number(w.range = w.block->launch->memory->find(where, bytes, w.range));
        if (kind == kWrite) checks->global_write(w, where, where + bytes, range);
        else if (w.block->launch->before) checks->global_read(w, lane, where, where + bytes);
        Checks::GlobalAccess access;
        access.writes = kind == kWrite;
        if (checks->watches_global()) checks->global_touch(w, w.mask, where, where + bytes, range, access);
    }
    return memory;
}

template <Memory kMemory>
Flow load(Warp& w, const Op& op) {
    const Place p = place_of(w, op);
    u32 elements[kMostElements];
    for (int number = 0; number < p.lines(); ++number) {
        const u8* const from = line_memory<kMemory>(w, p, number, kRead);
        for (int i = 0; i < p.length(); ++i) {
            u32& element = elements[p.element(number, i)] = 0;
            std::memcpy(&element, from + static_cast<u32>(i) * p.bytes, p.bytes);
        }
    }
    const i32* const list = w.block->launch->program->lists.data() + op.list;
    spread(w, {p.rows * p.columns, p.bytes}, list, op.count, elements);
    return Flow::Next;
}

template <Memory kMemory>
Flow store(Warp& w, const Op& op) {
    const Place p = place_of(w, op);
    u32 elements[kMostElements];
    gather(w, {p.rows * p.columns, p.bytes}, w.block->launch->program->lists.data() + op.list, elements);
    for (int number = 0; number < p.lines(); ++number) {
        u8* const to = line_memory<kMemory>(w, p, number, kWrite);
        for (int i = 0; i < p.length(); ++i)
            std::memcpy(to + static_cast<u32>(i) * p.bytes, &elements[p.element(number, i)], p.bytes);
    }
    return Flow::Next;
}

bool decode_transfer(Builder& b, bool loads) {
    const std::string& role = b.word(2);
    const Shape s = shape_of(b);
    const bool halves = b.type() == "f16" || b.type() == "bf16";
    const bool of_results = role == "c" || role == "d";
    if (!halves && b.type() != "f32" && b.type() != "tf32") return false;
    if (!is_known(s, of_results || halves ? (s.k == 8 ? 4 : 2) : 4)) return false;
    const int rows = role == "b" ? s.k : s.m, columns = role == "a" ? s.k : s.n;
    const size_t address = loads ? 1 : 0, registers = loads ? 0 : 1;
    const Operand& base = b.operand(address).parts.at(0);
    const bool shared = b.has("shared") || b.has("shared::cta");
    const bool narrow = base.kind == Operand::Kind::Register ? b.function().registers[base.reg].bytes == 4 : shared;
    if (narrow && !shared) return false;
    b.address(b.operand(address), 1, narrow ? 4 : 8);
    b.op.extra = (narrow ? kNarrow : 0) | (b.has("row") ? kByRows : 0) | (halves ? kHalves : 0);
    if (b.operands() == 3) {
        b.op.operand[2] = b.offset(2, 4);
        b.op.extra |= kOwnStride;
    }
    b.op.operand[3] = rows << 16 | columns;
    b.list(b.operand(registers), 4, loads);
    b.op.together = true;
    const Fragment f{rows * columns, halves ? 2u : 4u};
    if (b.op.count % f.registers()) return false;
    if (shared) b.op.run = loads ? load<shared_memory> : store<shared_memory>;
    else if (b.has("global")) b.op.run = loads ? load<global_memory> : store<global_memory>;
    else b.op.run = loads ? load<generic_memory> : store<generic_memory>;
    return true;
}

// Products. Op: list = D, A, B, C, with operand[0..3] registers; extra = m << 16 | n << 8 | k.
template <Format kFormat, bool Half>
Flow product(Warp& w, const Op& op) {
    const i32 *const d = w.block->launch->program->lists.data() + op.list, *const a = d + op.operand[0],
                     *const b = a + op.operand[1], *const c = b + op.operand[2];
    const int m = static_cast<int>(op.extra >> 16), n = static_cast<int>(op.extra >> 8 & 0xff),
              k = static_cast<int>(op.extra & 0xff);
    constexpr u32 kBytes = kFormat == Format::TF32 ? 4 : 2;
    u32 left[kMostElements], right[kMostElements], sums[kMostElements];
    gather(w, {m * k, kBytes}, a, left);
    gather(w, {k * n, kBytes}, b, right);
    gather(w, {m * n, Half ? 2u : 4u}, c, sums);
    // As ptxas makes them: products of 16 rows and 8 columns, here filled up with rows of zeros where there are 8.
    const bool hopper = w.block->launch->program->arch >= 90;
    Rule rule;
    rule.result = Half ? Result::F16 : Result::F32;
    if (!hopper) rule.fraction = 24;
    const int parts = !hopper && kBytes == 2 ? 2 : 1;
    thread_local f32 values[kMostK][16];
    thread_local i16 exponents[kMostK][16];
    thread_local Rows rows;
    thread_local Columns columns;
    for (int first = 0; first < m; first += 16) {
        rows.special = false;
        for (int kk = 0; kk < k; ++kk)
            for (int row = 0; row < 16; ++row) {
                const Number number = first + row < m ? number_as<kFormat>(left[(first + row) * k + kk]) : Number{};
                values[kk][row] = number.value, exponents[kk][row] = number.exponent;
                rows.special |= number.special;
            }
        rows.spread(values, exponents, k);
        for (int column = 0; column < n; column += 8) {
            columns.special = false;
            for (int kk = 0; kk < k; ++kk)
                for (int i = 0; i < 8; ++i) {
                    const Number number = number_as<kFormat>(right[kk * n + column + i]);
                    columns.value[kk][Columns::place(i)] = number.value;
                    columns.exponent[kk][Columns::place(i)] = number.exponent;
                    columns.special |= number.special;
                }
            const auto element = [&](int i, int lane) {
                const int row = first + lane / 4 + 8 * (i / 2);
                return row < m ? row * n + column + 2 * (lane % 4) + i % 2 : -1;
            };
            f32v sum[4];
            for (int i = 0; i < 4; ++i) {
                u32v word(0u);
                for (int lane = 0; lane < kLanes; ++lane)
                    if (const int e = element(i, lane); e >= 0) word[lane] = sums[e];
                sum[i] = Half ? from_f16(word) : bits<f32v>(word);
            }
            for (int part = 0; part < parts; ++part) multiply(rows, columns, sum, rule, part * k / parts, k / parts);
            for (int i = 0; i < 4; ++i) {
                const u32v word = Half ? to_f16(convert<f64v>(sum[i])) : bits<u32v>(sum[i]);
                for (int lane = 0; lane < kLanes; ++lane)
                    if (const int e = element(i, lane); e >= 0) sums[e] = word[lane];
            }
        }
    }
    spread(w, {m * n, Half ? 2u : 4u}, d, op.operand[0], sums);
    // A product needs what all lanes have loaded: what they read before, others may overwrite behind it.
    if (Checks* const checks = w.block->checks()) checks->sync_warp(w);
    return Flow::Next;
}

// wmma.mma.sync.aligned.row.col.m16n16k16.d.c (halves) or .d.a.b.c
bool decode_product(Builder& b) {
    if (b.has("satfinite") || b.operands() != 4) return false;
    const Shape s = shape_of(b);
    const bool halves = b.words() == 9;  // wmma mma sync aligned row col shape d c
    if (!halves && b.words() != 11) return false;
    const std::string &d = b.word(7), &c = b.type(), &a = halves ? c : b.word(8);
    if (d != c || (!halves && a != b.word(9))) return false;
    const bool tf32 = !halves && a == "tf32";
    if (!is_known(s, tf32 ? 4 : 2)) return false;
    Operand all;
    all.kind = Operand::Kind::List;
    for (size_t i = 0; i < 4; ++i) {
        if (b.operand(i).kind != Operand::Kind::List) return false;
        b.op.operand[i] = static_cast<i32>(b.operand(i).parts.size());
        all.parts.insert(all.parts.end(), b.operand(i).parts.begin(), b.operand(i).parts.end());
    }
    b.list(all, 4, false);
    b.op.together = true;
    b.op.extra = static_cast<u32>(s.m << 16 | s.n << 8 | s.k);
    if (halves && d == "f32") b.op.run = product<Format::F16, false>;
    else if (halves && d == "f16") b.op.run = product<Format::F16, true>;
    else if (!halves && d == "f32" && a == "bf16") b.op.run = product<Format::BF16, false>;
    else if (tf32 && d == "f32") b.op.run = product<Format::TF32, false>;
    return b.op.run;
}

bool decode_wmma(Builder& b) {
    if (b.words() < 8 || !b.has("aligned")) return false;
    if (b.word(1) == "load") return decode_transfer(b, true);
    if (b.word(1) == "store") return decode_transfer(b, false);
    return b.word(1) == "mma" && decode_product(b);
}

const Decoders kTable{{"wmma", decode_wmma}};

}  // namespace
}  // namespace emu::ptx
