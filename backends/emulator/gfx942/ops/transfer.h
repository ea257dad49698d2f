// SPDX-License-Identifier: MIT
// Moving data between 64 lanes' registers and memory. A shape says how many bytes a lane moves and where they lie in its
// registers; gather and scatter do it for the lanes of a mask.
#pragma once

#include <type_traits>

#include "access.h"

namespace emu {

inline u8* at(u64 address) { return reinterpret_cast<u8*>(static_cast<uintptr_t>(address)); }
inline u64 address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline int lowest(u64 lanes) { return __builtin_ctzll(lanes); }

using u32x4 = u32 __attribute__((ext_vector_type(4)));

/// N whole registers; the first register's word of the lane is `*d`.
template <int N>
struct Dwords {
    static constexpr u32 kBytes = 4 * N;
    static void load(u32* d, const u8* from) {
        u32 words[N];
        std::memcpy(words, from, kBytes);
        for (int i = 0; i < N; ++i) d[i * kLanes] = words[i];
    }
    static void store(const u32* s, u8* to) {
        u32 words[N];
        for (int i = 0; i < N; ++i) words[i] = s[i * kLanes];
        std::memcpy(to, words, kBytes);
    }
    static void clear(u32* d) {
        for (int i = 0; i < N; ++i) d[i * kLanes] = 0;
    }
};

enum class Half { Neither, Low, High };

/// 8 or 16 bits, extended to 32 (Neither) or to 16 in one half of the register. The other half becomes zero: with ECC on the
/// registers, which an MI300 always has (target feature sramecc+), 16-bit loads write the whole of one (ISA guide, "Memory
/// Buffer Load and Store"; LLVM's d16PreservesUnusedBits).
template <class T, Half half>
struct Small {
    static constexpr u32 kBytes = sizeof(T);
    static void put(u32* d, u32 value) {
        if constexpr (half == Half::Neither) *d = value;
        if constexpr (half == Half::Low) *d = value & 0xffffu;
        if constexpr (half == Half::High) *d = value << 16;
    }
    static void load(u32* d, const u8* from) {
        T value;
        std::memcpy(&value, from, sizeof value);
        put(d, static_cast<u32>(static_cast<i32>(value)));
    }
    static void store(const u32* s, u8* to) {
        const T value = static_cast<T>(half == Half::High ? *s >> 16 : *s);
        std::memcpy(to, &value, sizeof value);
    }
    static void clear(u32* d) { put(d, 0); }
};

using Ubyte = Small<u8, Half::Neither>;
using Sbyte = Small<i8, Half::Neither>;
using Ushort = Small<u16, Half::Neither>;
using Sshort = Small<i16, Half::Neither>;
using UbyteLow = Small<u8, Half::Low>;
using UbyteHigh = Small<u8, Half::High>;
using SbyteLow = Small<i8, Half::Low>;
using SbyteHigh = Small<i8, Half::High>;
using ShortLow = Small<u16, Half::Low>;
using ShortHigh = Small<u16, Half::High>;

inline u32x4 load_quad(const u8* from) {
    u32x4 value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// Four lanes' quads to four registers, or back: it is its own inverse.
struct Quads {
    u32x4 r[4];
    void transpose() {
        const u32x4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                    b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
        const u32x4 c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
                    d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
        r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
        r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
        r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
        r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    }
};

/// Memory to registers: lane l reads at base + from[l]. Lanes of `exec` that are not in `lanes` get zeros.
template <class Shape, class Index>
inline void gather(u32* d, u64 base, const Index* from, u64 lanes, u64 exec) {
    if (lanes == kAllLanes) {
        if constexpr (std::is_same_v<Shape, Dwords<4>>) {
            for (int lane = 0; lane < kLanes; lane += 4) {
                Quads q;
                for (int i = 0; i < 4; ++i) q.r[i] = load_quad(at(base + from[lane + i]));
                q.transpose();
                for (int i = 0; i < 4; ++i) std::memcpy(d + i * kLanes + lane, &q.r[i], sizeof q.r[i]);
            }
        } else if constexpr (std::is_same_v<Shape, Dwords<2>>) {
            for (int lane = 0; lane < kLanes; lane += 4) {
                u32x4 a, b;
                std::memcpy(&a, at(base + from[lane]), 8);
                std::memcpy(reinterpret_cast<u8*>(&a) + 8, at(base + from[lane + 1]), 8);
                std::memcpy(&b, at(base + from[lane + 2]), 8);
                std::memcpy(reinterpret_cast<u8*>(&b) + 8, at(base + from[lane + 3]), 8);
                const u32x4 low = __builtin_shufflevector(a, b, 0, 2, 4, 6),
                            high = __builtin_shufflevector(a, b, 1, 3, 5, 7);
                std::memcpy(d + lane, &low, sizeof low);
                std::memcpy(d + kLanes + lane, &high, sizeof high);
            }
        } else {
            for (int lane = 0; lane < kLanes; ++lane) Shape::load(d + lane, at(base + from[lane]));
        }
        return;
    }
    for (u64 rest = exec & ~lanes; rest; rest &= rest - 1) Shape::clear(d + lowest(rest));
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        Shape::load(d + lane, at(base + from[lane]));
    }
}

/// Registers to memory. Where lanes write the same bytes, the highest lane wins.
template <class Shape, class Index>
inline void scatter(const u32* s, u64 base, const Index* to, u64 lanes) {
    if (lanes == kAllLanes) {
        if constexpr (std::is_same_v<Shape, Dwords<4>>) {
            for (int lane = 0; lane < kLanes; lane += 4) {
                Quads q;
                for (int i = 0; i < 4; ++i) q.r[i] = load_quad(reinterpret_cast<const u8*>(s + i * kLanes + lane));
                q.transpose();
                for (int i = 0; i < 4; ++i) std::memcpy(at(base + to[lane + i]), &q.r[i], sizeof q.r[i]);
            }
        } else {
            for (int lane = 0; lane < kLanes; ++lane) Shape::store(s + lane, at(base + to[lane]));
        }
        return;
    }
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        Shape::store(s + lane, at(base + to[lane]));
    }
}

/// Memory straight to LDS, one dword a lane: at M0[15:0] + the instruction's offset + 4 * lane. Lanes of `exec` that are not
/// in `lanes` write zeros. ISA guide, "Memory buffer load to LDS"; shorter data are extended to a dword.
template <class Shape>
inline void load_to_lds(Wave& w, const Op& op, const u64* from, u64 lanes, u64 exec) {
    alignas(64) u32 to[kLanes];
    alignas(64) u32 data[kLanes];
    const u32 first = (w.m0() & 0xffffu) + static_cast<u32>(op.inst.offset);
    for (int lane = 0; lane < kLanes; ++lane) to[lane] = first + 4u * static_cast<u32>(lane);
    gather<Shape>(data, 0, from, lanes, exec);
    scatter<Dwords<1>>(data, address_of(w.group->lds), to, lds_lanes(w, op, to, exec, 4, AccessKind::Write));
}

}  // namespace emu
