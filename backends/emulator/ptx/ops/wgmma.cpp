// SPDX-License-Identifier: MIT
// wgmma: products of a warpgroup. PTX ISA 9.0, section 9.7.15.
//
// Each warp computes its 16 of the 64 rows when it issues the instruction; to wait for a product is to wait until all four
// warps have issued it, as the hardware does.
#include <algorithm>
#include <memory>

#include "../tensor_core.h"
#include "../tensor_map.h"
#include "forms.h"
#include "half.h"

namespace emu::ptx {
namespace {

// Op: list = D, then A's registers. operand[0] = how many registers D has, [1] = A's descriptor, or -1 - count of registers,
// [2] = B's descriptor, [3] = the predicate scale-d. extra: bits below; immediate = N.
constexpr u32 kNegateA = 1, kNegateB = 2, kTransposedA = 4, kTransposedB = 8, kARegisters = 16, kSaturates = 32;
constexpr int kMostColumns = 256;

struct Descriptor {
    u32 start, leading, stride, row_bytes;
    explicit Descriptor(u64 word)
        : start(static_cast<u32>(word & 0x3fff) << 4), leading(static_cast<u32>(word >> 16 & 0x3fff) << 4),
          stride(static_cast<u32>(word >> 32 & 0x3fff) << 4) {
        constexpr u32 kRows[] = {0, 128, 64, 32};
        row_bytes = kRows[word >> 62];
        if (word >> 49 & 7) throw Fault("descriptor", "a matrix descriptor with a base offset is not supported");
    }
    /// The address of 16 bytes: row (of M or N), and byte along K. K-major.
    u32 address(u32 row, u32 byte) const {
        if (!row_bytes) return start + row / 8 * stride + byte / 16 * leading + row % 8 * 16;
        return swizzled(start + row / 8 * stride + row % 8 * row_bytes + byte, row_bytes);
    }
    /// The same of eight rows from `row` on, at number `k`. MN-major: rows are contiguous.
    u32 address_transposed(u32 row, u32 k) const {
        const u32 per_row = row_bytes ? row_bytes / 2 : 8;
        // Without swizzle the two offsets change places (9.7.15.5.1.2.1: leading from 8 numbers along K to the next 8).
        if (!row_bytes) return start + row / 8 * stride + k / 8 * leading + k % 8 * 16;
        return swizzled(
            start + row / per_row * leading + k / 8 * stride + k % 8 * row_bytes + row % per_row * 2, row_bytes);
    }
};

constexpr u32 bytes_of(Format format) {
    return format == Format::TF32 ? 4 : format == Format::E4M3 || format == Format::E5M2 ? 1 : 2;
}

/// A matrix in shared memory, 16 bytes by 16 bytes, told to the checks.
class Matrix {
public:
    Matrix(Warp& w, u64 word, Checks::Needs* needs)
        : w_(w), checks_(w.block->checks()), needs_(needs), shared_(w.block->shared),
          bytes_(w.block->launch->shared_bytes), descriptor_(word) {}
    const u8* chunk(u32 row, u32 byte) { return at(descriptor_.address(row, byte)); }
    const u8* transposed(u32 row, u32 k) { return at(descriptor_.address_transposed(row, k)); }

private:
    const u8* at(u32 address) {
        // Descriptors have no other addresses than multiples of 16.
        const u8* const place = u64{address} + 16 <= bytes_ ? shared_ + address : shared_memory(w_, 0, address, 16, 16);
        if (checks_) checks_->product_read(w_, address, needs_);
        return place;
    }
    Warp& w_;
    Checks* checks_;
    Checks::Needs* needs_;
    const u8* shared_;
    u32 bytes_;
    Descriptor descriptor_;
};

/// Of eight rows of 16 bytes the numbers 4 kGroup to 4 kGroup + 3 along K, each with its eight rows: as they are, or (kColumns)
/// where Columns has them.
template <int kPer, bool kColumns, int kGroup, class Whole, size_t... kLane>
auto turned(const Whole& rows, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(
        rows, rows,
        static_cast<int>((kColumns ? kLane % 4 * 2 + kLane % 8 / 4 : kLane % 8) * kPer + 4 * kGroup + kLane / 8)...);
}

/// Eight rows from `row` on; put(k, words): the numbers k to k + 3, of eight rows each.
template <u32 kBytes, bool kColumns, class Put>
void read_rows(Matrix& matrix, u32 row, bool transposed, Put put) {
    constexpr int kPer = 16 / kBytes;
    using Word = std::conditional_t<kBytes == 1, u8, std::conditional_t<kBytes == 2, u16, u32>>;
    using Whole = Word __attribute__((ext_vector_type(8 * kPer)));
    using Part = Word __attribute__((ext_vector_type(32)));
    if (transposed) {
        if constexpr (kBytes == 2)
            for (u32 k = 0; k < 16; k += 4) {
                Part part;
                for (u32 i = 0; i < 4; ++i)
                    std::memcpy(reinterpret_cast<u8*>(&part) + 16 * i, matrix.transposed(row, k + i), 16);
                if constexpr (kColumns)
                    part = __builtin_shufflevector(
                        part, part, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15, 16, 18, 20, 22, 17, 19, 21,
                        23, 24, 26, 28, 30, 25, 27, 29, 31);
                put(k, convert<u32v>(part));
            }
        return;
    }
    for (u32 byte = 0; byte < 32; byte += 16) {
        Whole rows;
        for (u32 i = 0; i < 8; ++i) std::memcpy(reinterpret_cast<u8*>(&rows) + 16 * i, matrix.chunk(row + i, byte), 16);
        const auto group = [&]<int kGroup>() {
            const Part part = turned<kPer, kColumns, kGroup>(rows, std::make_index_sequence<32>{});
            put(byte / kBytes + 4 * kGroup, convert<u32v>(part));
        };
        group.template operator()<0>();
        if constexpr (kPer > 4) group.template operator()<1>();
        if constexpr (kPer > 8) {
            group.template operator()<2>();
            group.template operator()<3>();
        }
    }
}

/// 32 words as numbers, times `sign`; whether one of them is special.
template <Format kFormat>
bool numbers_of(u32v words, f32 sign, f32* values, i16* exponents) {
    f32v value;
    i16v exponent;
    const bool usual = decode<kFormat>(words, value, exponent);
    if (!usual)
        for (int i = 0; i < 32; ++i) {
            const Number n = number_as<kFormat>(words[i]);
            value[i] = n.value, exponent[i] = n.exponent;
        }
    value *= sign;
    std::memcpy(values, &value, sizeof value);
    std::memcpy(exponents, &exponent, sizeof exponent);
    return !usual;
}

/// `count` rows of 32 bytes.
void read_bytes(Matrix& matrix, u32 first, u32 count, u8 rows[][32]) {
    for (u32 row = 0; row < count; ++row)
        for (u32 byte = 0; byte < 32; byte += 16) std::memcpy(rows[row] + byte, matrix.chunk(first + row, byte), 16);
}

struct Left {
    f32 value[kMostK][16];
    i16 exponent[kMostK][16];
    Rows rows;
};

/// B of the newest products of a warpgroup. The hardware reads it once for all four warps; the first that issues a product
/// decodes it here.
struct Right {
    static constexpr u64 kKept = 8;
    struct Entry {
        u64 number = ~u64{0}, word = 0;
        Checks::Needs needs;
        Columns tiles[kMostColumns / 8];
        u8 bytes[kMostColumns][32];  // of integers, in place of tiles
    };
    Entry entries[kKept];
};

Right& right_of(const Warp& w) {
    std::vector<std::shared_ptr<void>>& all = w.block->operands;
    const size_t group = w.index / 4;
    if (all.size() <= group) all.resize(group + 1);
    if (!all[group]) all[group] = std::make_shared<Right>();
    return *static_cast<Right*>(all[group].get());
}

/// B of the product that the warp issues; `read` decodes it for the first warp of its warpgroup.
template <class Read>
Right::Entry& right_matrix(Warp& w, u64 word, Read read) {
    Right::Entry& right = right_of(w).entries[w.products % Right::kKept];
    if (right.number != w.products) {
        right.number = w.products;
        right.word = word;
        right.needs.clear();
        read(right);
    } else if (Checks* const checks = w.block->checks()) {
        checks->product_needs(w, right.needs);
        if (right.word != word) checks->found(w, kCollective, "the warps of a warpgroup give unlike descriptors of B");
    }
    return right;
}

/// Words of A in registers: row and number of the word along K.
template <class Put>
void read_registers(const Warp& w, const i32* a, Put put) {
    for (int j = 0; j < 4; ++j) {
        const u32* const words = w.lanes<u32>(a[j]);
        for (int lane = 0; lane < kLanes; ++lane)
            put(static_cast<u32>(lane / 4 + 8 * (j % 2)), static_cast<u32>(lane % 4 + 4 * (j / 2)), words[lane]);
    }
}

/// The warps of a warpgroup make the same wgmma instructions, in one order. PTX ISA 9.0, sections 9.7.15.5 and 9.7.15.7: .aligned
/// means all threads of the warpgroup.
void in_step(Warp& w, const Op& op) {
    Checks* const checks = w.block->checks();
    if (!checks || !checks->wants(kCollective)) return;
    auto& groups = w.block->steps;
    if (groups.size() <= w.index / 4) groups.resize(w.index / 4 + 1);
    std::vector<const Op*>& steps = groups[w.index / 4];
    if (w.steps == steps.size()) steps.push_back(&op);
    const Op& other = *steps[w.steps++];
    if (other.run != op.run || other.immediate != op.immediate)
        checks->found(
            w, kCollective,
            "another wgmma instruction than another warp of its warpgroup makes here: " +
                w.block->launch->program->function->statements[other.statement].text,
            other.statement);
}

template <Format kA, Format kB, bool Half>
Flow product(Warp& w, const Op& op) {
    thread_local Left left;
    constexpr u32 kBytes = bytes_of(kA);
    constexpr int kNumbers = 32 / kBytes;
    const i32* const d = w.block->launch->program->lists.data() + op.list;
    const auto columns = static_cast<u32>(op.immediate);
    const int lowest = std::countr_zero(w.mask);
    left.rows.special = false;
    const f32 sign_a = op.extra & kNegateA ? -1.0f : 1.0f, sign_b = op.extra & kNegateB ? -1.0f : 1.0f;
    const auto put_a = [&](u32 k, u32 row, u32 word) {
        const Number n = number_as<kA>(word);
        left.value[k][row] = sign_a * n.value;
        left.exponent[k][row] = n.exponent;
        left.rows.special |= n.special;
    };
    if (op.extra & kARegisters) {
        constexpr u32 kPer = 4 / kBytes, kOne = kBytes == 4 ? ~0u : (1u << (8 * kBytes % 32)) - 1;
        read_registers(w, d + op.operand[0], [&](u32 row, u32 number, u32 word) {
            for (u32 e = 0; e < kPer; ++e) put_a(number * kPer + e, row, word >> (8 * kBytes * e) & kOne);
        });
    } else {
        Matrix matrix(w, w.lanes<u64>(op.operand[1])[lowest], nullptr);
        for (u32 upper = 0; upper < 2; ++upper)
            read_rows<kBytes, false>(
                matrix, 16 * (w.index % 4) + 8 * upper, op.extra & kTransposedA, [&](u32 k, u32v words) {
                f32 values[32];
                i16 exponents[32];
                left.rows.special |= numbers_of<kA>(words, sign_a, values, exponents);
                for (u32 i = 0; i < 4; ++i) {
                    std::memcpy(&left.value[k + i][8 * upper], values + 8 * i, 8 * sizeof(f32));
                    std::memcpy(&left.exponent[k + i][8 * upper], exponents + 8 * i, 8 * sizeof(i16));
                }
            });
    }
    left.rows.spread(left.value, left.exponent, kNumbers);
    const u64 b_word = w.lanes<u64>(op.operand[2])[lowest];
    Right::Entry& right = right_matrix(w, b_word, [&](Right::Entry& fresh) {
        Matrix matrix(w, b_word, &fresh.needs);
        for (u32 number = 0; number < columns / 8; ++number) {
            Columns& tile = fresh.tiles[number];
            tile.special = false;
            read_rows<kBytes, true>(matrix, 8 * number, op.extra & kTransposedB, [&](u32 k, u32v words) {
                tile.special |= numbers_of<kB>(words, sign_b, tile.value[k], tile.exponent[k]);
            });
        }
    });
    const bool add = w.predicate(op.operand[3]) >> lowest & 1;
    constexpr bool kShort = kBytes == 1;
    const Rule rule{kShort ? 13 : 25, Half ? Result::F16 : kShort ? Result::F32Short : Result::F32};
    for (u32 tile = 0; tile < columns / 8; ++tile) {
        f32v values[4] = {f32v(0.0f), f32v(0.0f), f32v(0.0f), f32v(0.0f)};
        if (add) {
            if constexpr (Half) {
                for (u32 i = 0; i < 2; ++i) {
                    const u32v pair = w.get<u32v>(d[2 * tile + i]);
                    values[2 * i] = from_f16(pair & 0xffffu);
                    values[2 * i + 1] = from_f16(pair >> 16);
                }
            } else {
                for (u32 i = 0; i < 4; ++i) values[i] = w.get<f32v>(d[4 * tile + i]);
            }
        }
        multiply(left.rows, right.tiles[tile], values, rule, 0, kNumbers);
        if constexpr (Half) {
            for (u32 i = 0; i < 2; ++i)
                w.put<u32v>(
                    d[2 * tile + i],
                    to_f16(convert<f64v>(values[2 * i + 1])) << 16 | to_f16(convert<f64v>(values[2 * i])));
        } else {
            for (u32 i = 0; i < 4; ++i) w.put<f32v>(d[4 * tile + i], values[i]);
        }
    }
    ++w.products;
    in_step(w, op);
    return Flow::Next;
}

enum class Integer : u8 { Signed, Unsigned, Bits };

/// Bytes, or 256 bits along K: sums modulo 2^32, or clamped once at the end.
template <Integer kA, Integer kB>
Flow integer_product(Warp& w, const Op& op) {
    const auto value = []<Integer kType>(u8 byte) {
        return kType == Integer::Signed ? static_cast<i32>(static_cast<i8>(byte)) : static_cast<i32>(byte);
    };
    const i32* const d = w.block->launch->program->lists.data() + op.list;
    const auto columns = static_cast<u32>(op.immediate);
    const int lowest = std::countr_zero(w.mask);
    u8 left[16][32];
    if (op.extra & kARegisters)
        read_registers(w, d + op.operand[0], [&](u32 row, u32 number, u32 word) {
            std::memcpy(&left[row][4 * number], &word, 4);
        });
    else {
        Matrix matrix(w, w.lanes<u64>(op.operand[1])[lowest], nullptr);
        read_bytes(matrix, 16 * (w.index % 4), 16, left);
    }
    const u64 b_word = w.lanes<u64>(op.operand[2])[lowest];
    const Right::Entry& right = right_matrix(w, b_word, [&](Right::Entry& fresh) {
        Matrix matrix(w, b_word, &fresh.needs);
        read_bytes(matrix, 0, columns, fresh.bytes);
    });
    const bool add = w.predicate(op.operand[3]) >> lowest & 1;
    for (u32 tile = 0; tile < columns / 8; ++tile)
        for (u32 i = 0; i < 4; ++i) {
            i32v result = add ? w.get<i32v>(d[4 * tile + i]) : i32v(0);
            for (u32 lane = 0; lane < kLanes; ++lane) {
                const u8 *const a = left[lane / 4 + 8 * (i / 2)], *const b =
                                                                      right.bytes[8 * tile + 2 * (lane % 4) + i % 2];
                i32 sum = 0;
                for (int k = 0; k < 32; ++k)
                    sum += kA == Integer::Bits
                               ? std::popcount(static_cast<u8>(a[k] & b[k]))
                               : value.template operator()<kA>(a[k]) * value.template operator()<kB>(b[k]);
                const i64 total = i64{result[lane]} + sum;
                result[lane] =
                    static_cast<i32>(op.extra & kSaturates ? std::clamp<i64>(total, INT32_MIN, INT32_MAX) : total);
            }
            w.put<i32v>(d[4 * tile + i], result);
        }
    ++w.products;
    in_step(w, op);
    return Flow::Next;
}

Flow commit(Warp& w, const Op& op) {
    in_step(w, op);
    w.product_groups.push_back(w.products);
    return Flow::Next;
}

Flow wait(Warp& w, const Op& op) {
    const auto kept = static_cast<size_t>(op.immediate);
    while (w.product_groups.size() > kept) {
        const u32 first = w.index / 4 * 4;
        for (u32 i = first; i < std::min<size_t>(first + 4, w.block->warps.size()); ++i)
            if (w.block->warps[i].products < w.product_groups.front()) return Flow::Again;
        if (Checks* const checks = w.block->checks()) checks->products_done(w, w.product_groups.front());
        w.product_groups.pop_front();
    }
    in_step(w, op);
    return Flow::Next;
}
Flow fence(Warp& w, const Op& op) {
    in_step(w, op);
    return Flow::Next;
}

template <Format kA, Format kB>
Handler handler_of(bool half) {
    return half ? product<kA, kB, true> : product<kA, kB, false>;
}

Handler handler_of(std::string_view d, std::string_view a, std::string_view b) {
    const bool half = d == "f16";
    if (!half && d != "f32") return nullptr;
    if (a == "f16" && b == a) return handler_of<Format::F16, Format::F16>(half);
    if (a == "bf16" && b == a) return half ? nullptr : product<Format::BF16, Format::BF16, false>;
    if (a == "tf32" && b == a) return half ? nullptr : product<Format::TF32, Format::TF32, false>;
    if (a == "e4m3")
        return b == "e4m3"   ? handler_of<Format::E4M3, Format::E4M3>(half)
               : b == "e5m2" ? handler_of<Format::E4M3, Format::E5M2>(half)
                             : nullptr;
    if (a == "e5m2")
        return b == "e4m3"   ? handler_of<Format::E5M2, Format::E4M3>(half)
               : b == "e5m2" ? handler_of<Format::E5M2, Format::E5M2>(half)
                             : nullptr;
    return nullptr;
}

Handler integer_handler(std::string_view a, std::string_view b) {
    using enum Integer;
    if (a == "s8")
        return b == "s8" ? integer_product<Signed, Signed> : b == "u8" ? integer_product<Signed, Unsigned> : nullptr;
    if (a == "u8")
        return b == "s8"   ? integer_product<Unsigned, Signed>
               : b == "u8" ? integer_product<Unsigned, Unsigned>
                           : nullptr;
    return nullptr;
}

bool flag(const Operand& operand) { return operand.kind == Operand::Kind::Number && operand.value == 1; }

/// D, then the registers of A if it is in some; B and scale-d.
bool matrix_operands(Builder& b, size_t registers) {
    Operand all = b.operand(0);
    if (all.kind != Operand::Kind::List || all.parts.size() != registers) return false;
    b.op.operand[0] = static_cast<i32>(registers);
    if (b.operand(1).kind == Operand::Kind::List) {
        b.op.extra |= kARegisters;
        if (b.operand(1).parts.size() != 4) return false;
        all.parts.insert(all.parts.end(), b.operand(1).parts.begin(), b.operand(1).parts.end());
    } else {
        b.op.operand[1] = b.offset(1, 8);
    }
    b.list(all, 4, false);
    b.op.operand[2] = b.offset(2, 8);
    b.op.operand[3] = b.offset(3, 0);
    return true;
}

// wgmma.mma_async.sync.aligned.m64nNk32.s32.a.b{.satfinite} D, A, B, scale-d; of bits .m64nNk256.s32.b1.b1.and.popc
bool decode_integers(Builder& b, int n) {
    std::vector<std::string> words(b.statement->words.begin() + 5, b.statement->words.end());
    if (std::erase(words, "satfinite")) b.op.extra |= kSaturates;
    if (b.operands() != 4 || (n > 32 && n % 16) || words.size() < 3 || words[0] != "s32") return false;
    if (words[1] != "b1") b.op.run = words.size() == 3 ? integer_handler(words[1], words[2]) : nullptr;
    else if (words == std::vector<std::string>{"s32", "b1", "b1", "and", "popc"})
        b.op.run = integer_product<Integer::Bits, Integer::Bits>;
    return b.op.run && matrix_operands(b, static_cast<size_t>(n) / 2);
}

// wgmma.mma_async.sync.aligned.m64nNk16.d.a.b D, A, B, scale-d, imm-scale-a, imm-scale-b{, imm-trans-a, imm-trans-b}
bool decode_wgmma(Builder& b) {
    b.op.together = true;
    const std::string& what = b.word(1);
    if (what == "fence") {
        b.op.run = fence;
        return true;
    }
    if (what == "commit_group") {
        b.op.run = commit;
        return true;
    }
    if (what == "wait_group") {
        b.op.run = wait;
        b.op.immediate = static_cast<i64>(b.operand(0).value);
        return b.operand(0).kind == Operand::Kind::Number;
    }
    int n = 0, k = 0;
    if (what != "mma_async" || b.words() < 8 || std::sscanf(b.word(4).c_str(), "m64n%dk%d", &n, &k) != 2) return false;
    if (n < 8 || n % 8 || n > kMostColumns) return false;
    b.op.immediate = n;
    if (b.has("s32")) return decode_integers(b, n);
    if (b.words() != 8 || b.operands() < 6) return false;
    const std::string &d = b.word(5), &a = b.word(6);
    b.op.run = handler_of(d, a, b.word(7));
    if (!b.op.run || !matrix_operands(b, static_cast<size_t>(n) / (d == "f16" ? 4 : 2))) return false;
    const auto minus = [&](size_t i) { return b.operand(i).value == ~u64{0}; };
    if (minus(4)) b.op.extra |= kNegateA;
    if (minus(5)) b.op.extra |= kNegateB;
    // Only 16-bit types may be transposed; A in registers has no flag.
    size_t next = 6;
    if (!(b.op.extra & kARegisters) && b.operands() == 8 && flag(b.operand(next++))) b.op.extra |= kTransposedA;
    if (b.operands() > next && flag(b.operand(next))) b.op.extra |= kTransposedB;
    return true;
}

const Decoders kTable{{"wgmma", decode_wgmma}};

}  // namespace
}  // namespace emu::ptx
