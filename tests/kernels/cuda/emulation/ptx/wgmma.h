// SPDX-License-Identifier: MIT
// Hopper's tensor core products, one instruction per function (wgmma, sm_90a): operand descriptors, order of accesses, the
// products of FP8 (m64nNk32) and of 16-bit elements (m64nNk16). All run for a whole warpgroup.
#pragma once

#include <type_traits>

#include "hopper.h"
#include "ptx/mma.h"

// wgmma.m64nNk32 of e4m3, as the PTX manual lays out descriptors and accumulators; sums in double, rounded once.

inline uint64_t wgmma_operand(uint32_t shared) { return 1ull << 62 | 64ull << 32 | 1ull << 16 | shared >> 4; }
inline uint64_t wgmma_operand_of(uint32_t low) { return 1ull << 62 | 64ull << 32 | low; }

inline uint64_t wgmma_operand_64(uint32_t shared) { return 2ull << 62 | 32ull << 32 | 1ull << 16 | shared >> 4; }

inline uint64_t wgmma_operand_32(uint32_t shared) { return 3ull << 62 | 16ull << 32 | 1ull << 16 | shared >> 4; }

inline uint64_t wgmma_operand_plain(uint32_t shared, uint32_t along_k, uint32_t along_rows) {
    return static_cast<uint64_t>(along_rows >> 4) << 32 | static_cast<uint64_t>(along_k >> 4) << 16 | shared >> 4;
}

inline void wgmma_fence() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup& group, void**) { group.fenced = true; });
}

template <int kN>
struct Wgmma {
    static void product(float (&d)[kN / 2], uint64_t a, uint64_t b, bool add) { issue(d, nullptr, a, b, add); }
    static void product(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool add) { issue(d, a, 0, b, add); }

private:
    struct Argument {
        float* d;
        const uint32_t* a;
    };

    static void issue(float (&d)[kN / 2], const uint32_t* registers, uint64_t a, uint64_t b, bool add) {
        if (!add) std::fill(d, d + kN / 2, NAN);
        Argument mine = {d, registers};
        emulation::warpgroup_wide(&mine, [=](emulation::Warpgroup& group, void** all) {
            if (!group.fenced) emulation::fail("wgmma without a fence before it");
            emulation::Multiplication m = {{}, a, b, add, kN};
            for (int i = 0; i < 128; ++i) {
                const auto& thread = *static_cast<Argument*>(all[i]);
                m.d.push_back(thread.d);
                if (thread.a != nullptr) m.a_registers.insert(m.a_registers.end(), thread.a, thread.a + 4);
            }
            group.open.push_back(std::move(m));
        });
    }
};

inline void wgmma_commit() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup& group, void**) {
        group.groups.push_back(std::move(group.open));
        group.open.clear();
    });
}

template <int kPending>
void wgmma_wait() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup& group, void**) {
        while (group.groups.size() > kPending) {
            for (const auto& m : group.groups.front()) emulation::perform(m);
            group.groups.pop_front();
        }
        group.fenced = false;  // from here on registers may be touched
    });
}

template <int kCount>
void wgmma_results(float (&)[kCount]) {}

// wgmma.m64nNk16 of bf16 and fp16, as the PTX manual lays out descriptors, fragments and accumulators; sums in double.

inline uint64_t wgmma_operand_transposed(uint32_t shared, uint32_t box_pitch) {
    if (box_pitch % 1024 != 0) emulation::fail("boxes of a swizzled operand must start where its pattern does");
    return 1ull << 62 | 64ull << 32 | static_cast<uint64_t>(box_pitch >> 4) << 16 | shared >> 4;
}

template <int kN, class Element, bool kBTransposed = false, bool kATransposed = false>
struct Wgmma16 {
    static_assert(kN % 16 == 0 && kN >= 16 && kN <= 256, "what ptx/wgmma.h offers");

    static void product(float (&d)[kN / 2], uint64_t a, uint64_t b, bool add) { issue(d, nullptr, a, b, add); }
    static void product(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool add) { issue(d, a, 0, b, add); }

private:
    static constexpr emulation::Format kFormat = std::is_same<Element, Fp16>::value   ? emulation::Format::kHalf
                                                 : std::is_same<Element, Bf16>::value ? emulation::Format::kBfloat
                                                                                      : emulation::Format::kTf32;

    struct Argument {
        float* d;
        const uint32_t* a;
    };

    static void issue(float (&d)[kN / 2], const uint32_t* registers, uint64_t a, uint64_t b, bool add) {
        if (!add) std::fill(d, d + kN / 2, NAN);
        Argument mine = {d, registers};
        emulation::warpgroup_wide(&mine, [=](emulation::Warpgroup& group, void** all) {
            if (!group.fenced) emulation::fail("wgmma without a fence before it");
            emulation::Multiplication m = {{}, a, b, add, kN};
            m.format = kFormat;
            m.b_transposed = kBTransposed;
            m.a_transposed = kATransposed;
            for (int i = 0; i < 128; ++i) {
                const auto& thread = *static_cast<Argument*>(all[i]);
                m.d.push_back(thread.d);
                if (thread.a != nullptr) m.a_registers.insert(m.a_registers.end(), thread.a, thread.a + 4);
            }
            group.open.push_back(std::move(m));
        });
    }
};

template <int kN, class Element>
using Wgmma16OuterA = Wgmma16<kN, Element, false, true>;

// wgmma.m64nNk8 of TF32: fp32 whose low 13 bits the tensor cores do not read.
struct Tf32 {};

template <int kN>
struct WgmmaTf32 : Wgmma16<kN, Tf32> {};
