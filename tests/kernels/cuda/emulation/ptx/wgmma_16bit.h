// SPDX-License-Identifier: MIT
// wgmma.m64nNk16 of bf16 and fp16, as the PTX manual lays out descriptors, fragments and accumulators; sums in double.
#pragma once

#include <type_traits>

#include "hopper.h"
#include "ptx/mma_16bit.h"
#include "ptx/wgmma.h"

inline uint64_t wgmma_operand_transposed(uint32_t shared, uint32_t box_pitch) {
    if (box_pitch % 1024 != 0) emulation::fail("boxes of a swizzled operand must start where its pattern does");
    return 1ull << 62 | 64ull << 32 | static_cast<uint64_t>(box_pitch >> 4) << 16 | shared >> 4;
}

template <int kN, class Element, bool kBTransposed = false, bool kATransposed = false>
struct Wgmma16 {
    static_assert(kN % 16 == 0 && kN >= 16 && kN <= 256, "what ptx/wgmma_16bit.h offers");

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
            m.format = std::is_same<Element, Fp16>::value ? emulation::Format::kHalf : emulation::Format::kBfloat;
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
