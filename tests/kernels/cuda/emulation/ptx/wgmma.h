// SPDX-License-Identifier: MIT
// wgmma.m64nNk32 of e4m3, as the PTX manual lays out descriptors and accumulators; sums in double, rounded once.
#pragma once

#include "hopper.h"

inline uint64_t wgmma_operand(uint32_t shared) { return 1ull << 62 | 64ull << 32 | 1ull << 16 | shared >> 4; }
inline uint64_t wgmma_operand_of(uint32_t low) { return 1ull << 62 | 64ull << 32 | low; }

inline uint64_t wgmma_operand_64(uint32_t shared) { return 2ull << 62 | 32ull << 32 | 1ull << 16 | shared >> 4; }

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
        group.fenced = false;   // from here on registers may be touched
    });
}

template <int kCount>
void wgmma_results(float (&)[kCount]) {}
