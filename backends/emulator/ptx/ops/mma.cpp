// SPDX-License-Identifier: MIT
// mma.sync: products of matrices in a warp's registers. PTX ISA 9.0, section 9.7.14.5.
//
// Lane l holds of A the words (row l / 4 + 8 (j % 2), word l % 4 + 4 (j / 2)), of B (column l / 4, word l % 4 + 4 j), of C and D
// row l / 4 + 8 (i / 2), column 2 (l % 4) + i % 2. A word is 4 bytes along k.
#include <algorithm>
#include <cstdio>

#include "../tensor_core.h"
#include "forms.h"
#include "half.h"

namespace emu::ptx {
namespace {

// Op: list = D, then A, B, C; operand[0..3] = how many registers each has; extra = types.
struct Shape {
    int m, n, k;
};

Shape shape_of(const std::string& word) {
    Shape s{0, 0, 0};
    if (std::sscanf(word.c_str(), "m%dn%dk%d", &s.m, &s.n, &s.k) != 3) s.m = 0;
    return s;
}

std::pair<Format, int> format_of(std::string_view type) {  // and bits
    if (type == "f16") return {Format::F16, 16};
    if (type == "bf16") return {Format::BF16, 16};
    if (type == "tf32") return {Format::TF32, 32};
    if (type == "e4m3") return {Format::E4M3, 8};
    if (type == "e5m2") return {Format::E5M2, 8};
    return {Format::F16, 0};
}

const i32* registers_of(const Warp& w, const Op& op) { return w.block->launch->program->lists.data() + op.list; }

/// A and B of an instruction, decoded.
struct Operands {
    f32 value[kMostK][16];
    i16 exponent[kMostK][16];
    Rows left;
    Columns right;
    int k = 0;
};

/// An 8-bit number as an f16 of the same value has it: normalised, where e4m3 is subnormal.
Number widened(Format format, u32 code) {
    Number result = number_of(format, code);
    if (result.special || result.value == 0) return result;
    const i32 exponent = static_cast<i32>(as_u32(result.value) >> 23 & 0xff) - 127;
    result.exponent = static_cast<i16>(std::max(exponent, -14));
    return result;
}

template <Format kA, Format kB, int kBits, bool kWiden>
void read_operands(const Warp& w, const i32* a, int a_count, const i32* b, int b_count, Operands& all) {
    constexpr int kPer = 32 / kBits;
    constexpr u32 kMask = kBits == 32 ? ~0u : (1u << (kBits % 32)) - 1;
    const auto number = []<Format kFormat>(u32 word) {
        return kWiden ? widened(kFormat, word) : number_as<kFormat>(word);
    };
    all.k = 2 * a_count * kPer;
    all.left.special = all.right.special = false;
    for (int j = 0; j < a_count; ++j) {
        const u32* const words = w.lanes<u32>(a[j]);
        for (int lane = 0; lane < kLanes; ++lane)
            for (int e = 0; e < kPer; ++e) {
                const Number n = number.template operator()<kA>(words[lane] >> (e * kBits % 32) & kMask);
                const int k = (lane % 4 + 4 * (j / 2)) * kPer + e, row = lane / 4 + 8 * (j % 2);
                all.value[k][row] = n.value;
                all.exponent[k][row] = n.exponent;
                all.left.special |= n.special;
            }
    }
    all.left.spread(all.value, all.exponent, all.k);
    for (int j = 0; j < b_count; ++j) {
        const u32* const words = w.lanes<u32>(b[j]);
        for (int lane = 0; lane < kLanes; ++lane)
            for (int e = 0; e < kPer; ++e) {
                const Number n = number.template operator()<kB>(words[lane] >> (e * kBits % 32) & kMask);
                const int k = (lane % 4 + 4 * j) * kPer + e;
                all.right.value[k][Columns::place(lane / 4)] = n.value;
                all.right.exponent[k][Columns::place(lane / 4)] = n.exponent;
                all.right.special |= n.special;
            }
    }
}

/// Every second pair of numbers along k, from the first or the second on.
void every_second_pair(const Operands& all, int first, Rows& left, Columns& right) {
    left.special = all.left.special, right.special = all.right.special;
    for (int k = 0, at = 0; k < all.k; ++k) {
        if (k / 2 % 2 != first) continue;
        std::copy_n(all.left.value[k], 2, left.value[at]);
        std::copy_n(all.left.exponent[k], 2, left.exponent[at]);
        std::copy_n(all.right.value[k], 8, right.value[at]);
        std::copy_n(all.right.exponent[k], 8, right.exponent[at]);
        ++at;
    }
}

/// C as f32 from f32 registers, or from pairs of f16; and D back.
template <bool Half>
void accumulators(const Warp& w, const i32* c, f32v values[4]) {
    if constexpr (Half) {
        for (int i = 0; i < 2; ++i) {
            const u32v pair = w.get<u32v>(c[i]);
            values[2 * i] = from_f16(pair & 0xffffu);
            values[2 * i + 1] = from_f16(pair >> 16);
        }
    } else {
        for (int i = 0; i < 4; ++i) values[i] = w.get<f32v>(c[i]);
    }
}
template <bool Half>
void results(const Warp& w, const i32* d, const f32v values[4]) {
    if constexpr (Half) {
        for (int i = 0; i < 2; ++i) {
            const auto half = [](f32v value) { return to_f16(convert<f64v>(value)); };
            w.put<u32v>(d[i], half(values[2 * i + 1]) << 16 | half(values[2 * i]));
        }
    } else {
        for (int i = 0; i < 4; ++i) w.put<f32v>(d[i], values[i]);
    }
}

template <Format kA, Format kB, int kBits, bool Half>
Flow product(Warp& w, const Op& op) {
    const i32 *const d = registers_of(w, op), *const a = d + op.operand[0], *const b = a + op.operand[1],
                     *const c = b + op.operand[2];
    thread_local Operands all;
    const bool hopper = w.block->launch->program->arch >= 90;
    if (kBits == 8 && hopper) read_operands<kA, kB, kBits, true>(w, a, op.operand[1], b, op.operand[2], all);
    else read_operands<kA, kB, kBits, false>(w, a, op.operand[1], b, op.operand[2], all);
    f32v values[4];
    accumulators<Half>(w, c, values);
    Rule rule;
    rule.result = Half ? Result::F16 : Result::F32;
    if (kBits == 8 && hopper) {
        // sm_90 has no such instruction: ptxas makes two products of halves, then one addition of C.
        thread_local Rows left;
        thread_local Columns right;
        f32v sum[4] = {f32v(0.0f), f32v(0.0f), f32v(0.0f), f32v(0.0f)};
        for (int first = 0; first < 2; ++first) {
            every_second_pair(all, first, left, right);
            multiply(left, right, sum, rule, 0, all.k / 2);
        }
        for (int i = 0; i < 4; ++i)
            values[i] = Half ? from_f16(to_f16(convert<f64v>(values[i]) + convert<f64v>(sum[i])))
                             : canonical(values[i] + sum[i]);
    } else {
        // Ada and older add the two halves of k one after the other.
        if (!hopper) rule.fraction = kBits == 8 ? 13 : 24;
        if (!hopper && kBits == 8 && !Half) rule.result = Result::F32Short;
        const int parts = !hopper && (kBits == 8 || all.k * kBits > 128) ? 2 : 1;
        for (int part = 0; part < parts; ++part)
            multiply(all.left, all.right, values, rule, part * all.k / parts, all.k / parts);
    }
    results<Half>(w, d, values);
    return Flow::Next;
}

template <bool Half>
Handler float_handler(std::string_view a, std::string_view b) {
    if (a == "f16" && b == a) return product<Format::F16, Format::F16, 16, Half>;
    if constexpr (!Half) {
        if (a == "bf16" && b == a) return product<Format::BF16, Format::BF16, 16, false>;
        if (a == "tf32" && b == a) return product<Format::TF32, Format::TF32, 32, false>;
    }
    if (a == "e4m3")
        return b == "e4m3" ? product<Format::E4M3, Format::E4M3, 8, Half>
                           : product<Format::E4M3, Format::E5M2, 8, Half>;
    if (a == "e5m2")
        return b == "e4m3" ? product<Format::E5M2, Format::E4M3, 8, Half>
                           : product<Format::E5M2, Format::E5M2, 8, Half>;
    return nullptr;
}

// Integers: exact modulo 2^32, or clamped once at the end.
template <bool SignedA, bool SignedB>
Flow integer_product(Warp& w, const Op& op) {
    const i32 *const d = registers_of(w, op), *const a = d + op.operand[0], *const b = a + op.operand[1],
                     *const c = b + op.operand[2];
    const int k = 8 * op.operand[1];
    const auto at = [](const u32* words, int lane, int e, bool is_signed) {
        const u32 byte = words[lane] >> (8 * e) & 0xff;
        return is_signed ? static_cast<i32>(static_cast<i8>(byte)) : static_cast<i32>(byte);
    };
    i32 left[16][64], right[8][64];
    for (int j = 0; j < op.operand[1]; ++j)
        for (int lane = 0; lane < kLanes; ++lane)
            for (int e = 0; e < 4; ++e)
                left[lane / 4 + 8 * (op.operand[1] > 1 ? j % 2 : 0)][(lane % 4 + 4 * (j / 2)) * 4 + e] =
                    at(w.lanes<u32>(a[j]), lane, e, SignedA);
    for (int j = 0; j < op.operand[2]; ++j)
        for (int lane = 0; lane < kLanes; ++lane)
            for (int e = 0; e < 4; ++e)
                right[lane / 4][(lane % 4 + 4 * j) * 4 + e] = at(w.lanes<u32>(b[j]), lane, e, SignedB);
    for (int i = 0; i < op.operand[0]; ++i) {
        const i32* const old = w.lanes<i32>(c[i]);
        i32v result;
        for (int lane = 0; lane < kLanes; ++lane) {
            i64 sum = old[lane];
            for (int e = 0; e < std::min(k, 16 * op.operand[2]); ++e)
                sum += i64{left[lane / 4 + 8 * (i / 2)][e]} * right[2 * (lane % 4) + i % 2][e];
            if (op.extra) sum = std::clamp<i64>(sum, INT32_MIN, INT32_MAX);
            result[lane] = static_cast<i32>(sum);
        }
        w.put<i32v>(d[i], result);
    }
    return Flow::Next;
}

// f64: a chain of fused multiply-adds in order of k. A: row l / 4, number l % 4 (+ 4 j); B likewise by columns.
Flow double_product(Warp& w, const Op& op) {
    const i32 *const d = registers_of(w, op), *const a = d + op.operand[0], *const b = a + op.operand[1],
                     *const c = b + op.operand[2];
    const bool tall = op.operand[0] == 4;  // m16
    const int k = 4 * op.operand[2];
    f64 left[16][16], right[8][16];
    for (int j = 0; j < op.operand[1]; ++j)
        for (int lane = 0; lane < kLanes; ++lane)
            left[lane / 4 + (tall ? 8 * (j % 2) : 0)][lane % 4 + 4 * (tall ? j / 2 : j)] = w.lanes<f64>(a[j])[lane];
    for (int j = 0; j < op.operand[2]; ++j)
        for (int lane = 0; lane < kLanes; ++lane) right[lane / 4][lane % 4 + 4 * j] = w.lanes<f64>(b[j])[lane];
    for (int i = 0; i < op.operand[0]; ++i) {
        const f64* const old = w.lanes<f64>(c[i]);
        f64v result;
        for (int lane = 0; lane < kLanes; ++lane) {
            f64 sum = old[lane];
            for (int e = 0; e < k; ++e) {
                const f64 x = left[lane / 4 + 8 * (i / 2)][e], y = right[2 * (lane % 4) + i % 2][e], z = sum;
                sum = __builtin_fma(x, y, z);
                if (sum != sum) {  // payloads: the first of b, c, a, quieted
                    const u64 word = y != y ? as_u64(y) : z != z ? as_u64(z) : x != x ? as_u64(x) : u64{0xfff8} << 48;
                    sum = as_f64(word | (u64{1} << 51));
                }
            }
            result[lane] = sum;
        }
        w.put<f64v>(d[i], result);
    }
    return Flow::Next;
}

// mma.sync.aligned.m16n8k16.row.col{.satfinite}.d.a.b.c
bool decode_mma(Builder& b) {
    if (b.words() < 9 || b.word(1) != "sync" || b.has("sp") || b.has("xor") || b.has("and")) return false;
    const size_t last = b.words();
    const std::string &d = b.word(last - 4), &a = b.word(last - 3), &bb = b.word(last - 2), &c = b.word(last - 1);
    const Shape shape = shape_of(b.has("row") ? b.word(3) : "");
    if (!shape.m || d != c) return false;
    const u32 bytes = d == "f64" ? 8 : 4;
    const auto count = [&](size_t i) {
        return static_cast<i32>(b.operand(i).kind == Operand::Kind::List ? b.operand(i).parts.size() : 1);
    };
    Operand all;
    all.kind = Operand::Kind::List;
    for (size_t i = 0; i < 4; ++i) {
        b.op.operand[i] = count(i);
        if (b.operand(i).kind == Operand::Kind::List)
            all.parts.insert(all.parts.end(), b.operand(i).parts.begin(), b.operand(i).parts.end());
        else all.parts.push_back(b.operand(i));
    }
    b.list(all, bytes, false);
    b.op.together = true;
    if (d == "f64") {
        b.op.run = double_product;
        return a == "f64";
    }
    if (d == "s32") {
        b.op.extra = b.has("satfinite");
        if ((a != "s8" && a != "u8") || (bb != "s8" && bb != "u8")) return false;
        b.op.run = a == "s8" ? (bb == "s8" ? integer_product<true, true> : integer_product<true, false>)
                             : (bb == "s8" ? integer_product<false, true> : integer_product<false, false>);
        return true;
    }
    const int width = format_of(a).second;
    if (shape.m != 16 || shape.n != 8 || !width || width != format_of(bb).second) return false;
    if (shape.k * width != 128 && shape.k * width != 256) return false;
    b.op.run = d == "f16" ? float_handler<true>(a, bb) : d == "f32" ? float_handler<false>(a, bb) : nullptr;
    return b.op.run;
}

// movmatrix.sync.aligned.m8n8.trans.b16
Flow transpose(Warp& w, const Op& op) {
    const u32* const a = w.lanes<u32>(op.operand[1]);
    u16 matrix[8][8];
    for (int lane = 0; lane < kLanes; ++lane) {
        matrix[lane / 4][2 * (lane % 4)] = static_cast<u16>(a[lane]);
        matrix[lane / 4][2 * (lane % 4) + 1] = static_cast<u16>(a[lane] >> 16);
    }
    u32v result;
    for (int lane = 0; lane < kLanes; ++lane)
        result[lane] = static_cast<u32>(matrix[2 * (lane % 4) + 1][lane / 4]) << 16 | matrix[2 * (lane % 4)][lane / 4];
    w.put<u32v>(op.operand[0], result);
    return Flow::Next;
}
bool decode_movmatrix(Builder& b) {
    b.op.together = true;
    return b.has("trans") && set(b, transpose, 4, 1);
}

const Decoders kTable{{"mma", decode_mma}, {"movmatrix", decode_movmatrix}};

}  // namespace
}  // namespace emu::ptx
