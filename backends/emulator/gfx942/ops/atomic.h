// SPDX-License-Identifier: MIT
// Atomic operations: what each computes, and how 64 lanes perform one on memory, lane 0 first.
//
// An operation is a type with T (u32 or u64, the memory's word) and apply(memory, source, second, flush). `second` is the
// value to compare with (cmpswap) or the other operand (mskor, wrap); `flush` asks for denormals to be flushed to zero.
#pragma once

#include <limits>
#include <type_traits>

#include "../float16.h"
#include "transfer.h"

namespace emu::atomic {

template <class Word, class Function>
struct Simple {
    using T = Word;
    static T apply(T memory, T source, T, bool) { return Function()(memory, source); }
};

struct AddF {
    template <class T> T operator()(T m, T s) const { return m + s; }
};
struct SubF {
    template <class T> T operator()(T m, T s) const { return m - s; }
};
struct RsubF {
    template <class T> T operator()(T m, T s) const { return s - m; }
};
struct IncF {
    template <class T> T operator()(T m, T s) const { return m >= s ? 0 : m + 1; }
};
struct DecF {
    template <class T> T operator()(T m, T s) const { return m == 0 || m > s ? s : m - 1; }
};
struct AndF {
    template <class T> T operator()(T m, T s) const { return m & s; }
};
struct OrF {
    template <class T> T operator()(T m, T s) const { return m | s; }
};
struct XorF {
    template <class T> T operator()(T m, T s) const { return m ^ s; }
};
struct SwapF {
    template <class T> T operator()(T, T s) const { return s; }
};
struct UminF {
    template <class T> T operator()(T m, T s) const { return s < m ? s : m; }
};
struct UmaxF {
    template <class T> T operator()(T m, T s) const { return s < m ? m : s; }
};
struct SminF {
    template <class T> T operator()(T m, T s) const {
        using S = std::make_signed_t<T>;
        return static_cast<S>(s) < static_cast<S>(m) ? s : m;
    }
};
struct SmaxF {
    template <class T> T operator()(T m, T s) const {
        using S = std::make_signed_t<T>;
        return static_cast<S>(s) < static_cast<S>(m) ? m : s;
    }
};

template <class T> using Add = Simple<T, AddF>;
template <class T> using Sub = Simple<T, SubF>;
template <class T> using Rsub = Simple<T, RsubF>;
template <class T> using Inc = Simple<T, IncF>;
template <class T> using Dec = Simple<T, DecF>;
template <class T> using And = Simple<T, AndF>;
template <class T> using Or = Simple<T, OrF>;
template <class T> using Xor = Simple<T, XorF>;
template <class T> using Swap = Simple<T, SwapF>;
template <class T> using Umin = Simple<T, UminF>;
template <class T> using Umax = Simple<T, UmaxF>;
template <class T> using Smin = Simple<T, SminF>;
template <class T> using Smax = Simple<T, SmaxF>;

template <class Word>
struct CompareSwap {
    using T = Word;
    static T apply(T memory, T source, T compare, bool) { return memory == compare ? source : memory; }
};

template <class Word>
struct MaskOr {  // the source is the mask, the second operand the bits to set
    using T = Word;
    static T apply(T memory, T source, T second, bool) { return (memory & ~source) | second; }
};

struct Wrap {
    using T = u32;
    static T apply(T memory, T source, T second, bool) { return memory >= source ? memory - source : memory + second; }
};

/// Two words, each exchanged only if bit 31 of its source is set, which is not stored.
struct ConditionalExchange {
    using T = u64;
    static T apply(T memory, T source, T, bool) {
        T result = memory;
        if (source >> 31 & 1) result = (result & ~u64{0xffffffff}) | (source & 0x7fffffffu);
        if (source >> 63) result = (result & 0xffffffffu) | (source & (u64{0x7fffffff} << 32));
        return result;
    }
};

template <class F> using Bits = std::conditional_t<sizeof(F) == 4, u32, u64>;

template <class F>
F value_of(Bits<F> bits, bool flush) {
    const F value = std::bit_cast<F>(bits);
    if (flush && __builtin_fabs(static_cast<f64>(value)) < static_cast<f64>(std::numeric_limits<F>::min()))
        return std::bit_cast<F>(bits & Bits<F>{1} << (8 * sizeof(F) - 1));
    return value;
}

template <class F>
struct FloatAdd {  // rounds to nearest even
    using T = Bits<F>;
    static T apply(T memory, T source, T, bool flush) {
        const F sum = value_of<F>(memory, flush) + value_of<F>(source, flush);
        return std::bit_cast<T>(value_of<F>(std::bit_cast<T>(sum), flush));
    }
};

// ISA guide: the source replaces the memory's value only if it is less (greater); so not if either is NaN.
template <class F>
struct FloatMin {
    using T = Bits<F>;
    static T apply(T memory, T source, T, bool) {
        return std::bit_cast<F>(source) < std::bit_cast<F>(memory) ? source : memory;
    }
};

template <class F>
struct FloatMax {
    using T = Bits<F>;
    static T apply(T memory, T source, T, bool) {
        return std::bit_cast<F>(source) > std::bit_cast<F>(memory) ? source : memory;
    }
};

template <class F>
struct FloatCompareSwap {
    using T = Bits<F>;
    static T apply(T memory, T source, T compare, bool) {
        return std::bit_cast<F>(memory) == std::bit_cast<F>(compare) ? source : memory;
    }
};

// The sum of two 16-bit floats in f32, rounded once more, is the correctly rounded sum: 24 bits are enough for either format.
struct F16Sum {
    static u16 sum(u16 a, u16 b) { return f32_to_f16(f16_to_f32(a) + f16_to_f32(b), kToNearestEven); }
};

struct Bf16Sum {
    static u16 sum(u16 a, u16 b) { return f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b)); }
};

template <class Sum>
struct PackedAdd {
    using T = u32;
    static T apply(T memory, T source, T, bool) {
        const u32 low = Sum::sum(static_cast<u16>(memory), static_cast<u16>(source));
        const u32 high = Sum::sum(static_cast<u16>(memory >> 16), static_cast<u16>(source >> 16));
        return low | high << 16;
    }
};

template <class T>
T word_of(const u32* words, int lane) {
    if constexpr (sizeof(T) == 4) return words[lane];
    else return lane64(words, lane);
}

template <class T>
void set_word(u32* words, int lane, T value) {
    if constexpr (sizeof(T) == 4) words[lane] = value;
    else set_lane64(words, lane, value);
}

/// The lanes of `lanes`, in order. Returns old values in `old` (registers; null: nobody wants them); lanes of `exec` that may
/// not access memory return 0. `shared`: other CPU threads may access the same memory (all but LDS). `old` may be the same
/// registers as the sources: a lane is read before it is written.
template <class Operation, bool shared>
void perform(const u64* address, u64 lanes, u64 exec, const u32* source, const u32* second, u32* old, bool flush) {
    using T = Operation::T;
    using Memory [[gnu::may_alias]] = T;
    if (old)
        for (u64 rest = exec & ~lanes; rest; rest &= rest - 1) set_word<T>(old, lowest(rest), 0);
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        auto* const place = reinterpret_cast<Memory*>(at(address[lane]));
        const T value = word_of<T>(source, lane), other = second ? word_of<T>(second, lane) : T{0};
        T before;
        if constexpr (shared) {
            before = __atomic_load_n(place, __ATOMIC_RELAXED);
            while (!__atomic_compare_exchange_n(
                place, &before, Operation::apply(before, value, other, flush), true, __ATOMIC_SEQ_CST,
                __ATOMIC_RELAXED)) {
            }
        } else {
            before = *place;
            *place = Operation::apply(before, value, other, flush);
        }
        if (old) set_word<T>(old, lane, before);
    }
}

}  // namespace emu::atomic
