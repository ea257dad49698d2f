// SPDX-License-Identifier: MIT
// Loads and stores: addresses of shared memory, matrices of 16-bit elements (ldmatrix, stmatrix), single numbers, prefetches,
// and stores with a policy for L2.
#pragma once

#include <atomic>

#include "machine.h"

inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - emulation::this_block().shared.data());
}
inline uint8_t* dynamic_shared() { return emulation::this_block().shared.data(); }
inline uint8_t* swizzled_shared() { return dynamic_shared(); }

// ldmatrix as the PTX manual defines it: lane 8i + r gives row r of matrix i, lane 4g + t receives row g, columns 2t, 2t+1.

namespace emulation {

template <int kMatrices, bool kTransposed>
void ldmatrix(uint32_t (&d)[kMatrices], uint32_t row) {
    struct Argument {
        uint32_t* d;
        uint32_t row;
    } mine = {d, row};
    warp_wide(&mine, [](void** all) {
        for (int i = 0; i < kMatrices; ++i) {
            uint16_t matrix[8][8];
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                std::memcpy(matrix[r], shared_at(address, 16, 16), 16);
                groups |= 1 << address / 16 % 8;
            }
            machine().bank_conflicts += groups != 0xff;
            for (int l = 0; l < 32; ++l) {
                const int g = l / 4, t = l % 4;
                const uint32_t low = kTransposed ? matrix[2 * t][g] : matrix[g][2 * t];
                const uint32_t high = kTransposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
                static_cast<Argument*>(all[l])->d[i] = low | high << 16;
            }
        }
    });
}

}  // namespace emulation

inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) { emulation::ldmatrix<4, false>(d, row); }
inline void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) { emulation::ldmatrix<4, true>(d, row); }
inline void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) { emulation::ldmatrix<2, false>(d, row); }
inline void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) { emulation::ldmatrix<2, true>(d, row); }

// stmatrix as the PTX manual defines it: lane 8i + r gives the address of row r of matrix i.

namespace emulation {

template <bool kTransposed>
void stmatrix(uint32_t row, const uint32_t (&d)[4]) {
    struct Argument {
        uint32_t row;
        const uint32_t* d;
    } mine = {row, d};
    warp_wide(&mine, [](void** all) {
        for (int i = 0; i < 4; ++i) {
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                uint8_t* to = shared_at(address, 16, 16);
                groups |= 1 << address / 16 % 8;
                for (int c = 0; c < 8; ++c) {  // of a matrix whose row g lanes 4g .. 4g + 3 hold
                    const int g = kTransposed ? c : r, t = kTransposed ? r : c;
                    const uint32_t pair = static_cast<Argument*>(all[4 * g + t / 2])->d[i];
                    const uint16_t element = static_cast<uint16_t>(pair >> 16 * (t % 2));
                    std::memcpy(to + 2 * c, &element, 2);
                }
            }
            machine().bank_conflicts += groups != 0xff;
        }
    });
}

}  // namespace emulation

inline void stmatrix_x4(uint32_t row, const uint32_t (&d)[4]) { emulation::stmatrix<false>(row, d); }
inline void stmatrix_x4_trans(uint32_t row, const uint32_t (&d)[4]) { emulation::stmatrix<true>(row, d); }

inline float load_shared(uint32_t address) {
    float value;
    std::memcpy(&value, emulation::shared_at(address, 4, 4), 4);
    return value;
}

inline float4 load_now(const float4* from) { return *from; }
inline float load_now(const float* from) { return *from; }

// Prefetches bring nothing, but must stay inside memory that is there.

inline void prefetch_l2(const void* global, uint32_t bytes) {
    const char* from = static_cast<const char*>(global);
    for (const auto& range : emulation::machine().allowed) {
        if (from >= range.first && from + bytes <= range.first + range.second) return;
    }
    emulation::fail("a prefetch of memory nobody announced");
}
inline void prefetch_l2(const void* global) { prefetch_l2(global, 1); }

// Policies change nothing here; stores that L2 is to keep are counted.

namespace emulation {
inline std::atomic<long long> kept_stores{0};
}
extern "C" __attribute__((used)) inline long long emulation_kept() { return emulation::kept_stores.exchange(0); }

inline uint64_t policy_evict_last() { return 2; }
inline uint64_t policy_evict_normal() { return 0; }
inline void store_16(void* global, const uint4& x, uint64_t policy) {
    *static_cast<uint4*>(global) = x;
    emulation::kept_stores += policy == 2 ? 1 : 0;
}
