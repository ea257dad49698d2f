// SPDX-License-Identifier: MIT
// CUDA's device functions that kernels call beside the wrappers of kernels/cuda/ptx.
#pragma once

#include "machine.h"

template <class Value>
Value __ldg(const Value* pointer) {
    if (!::emulation::may_read(pointer, sizeof *pointer))
        ::emulation::fail("__ldg reads outside every announced array");
    return *pointer;
}
template <class Value>
Value __ldcg(const Value* pointer) {
    return *pointer;
}
inline float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline float __cosf(float x) { return std::cos(x); }
inline float __sinf(float x) { return std::sin(x); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline float __fdividef(float a, float b) { return a / b; }

inline int __reduce_add_sync(uint32_t mask, int value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
    return value;
}
inline int __reduce_max_sync(uint32_t mask, int value) {
    for (int step = 16; step > 0; step /= 2) value = std::max(value, __shfl_xor_sync(mask, value, step));
    return value;
}

template <class Value>
Value __shfl_up_sync(uint32_t mask, Value value, int step) {
    const int lane = static_cast<int>(::emulation::lane());
    // Every lane brings its partner by XOR, so that one exchange serves all distances.
    return __shfl_sync(mask, value, lane < step ? lane : lane - step);
}

inline unsigned __ballot_sync(uint32_t, bool predicate) {
    struct Argument {
        bool predicate;
        unsigned votes;
    } mine = {predicate, 0};
    ::emulation::warp_wide(&mine, [](void** all) {
        unsigned votes = 0;
        for (int l = 0; l < 32; ++l) votes |= static_cast<unsigned>(static_cast<Argument*>(all[l])->predicate) << l;
        for (int l = 0; l < 32; ++l) static_cast<Argument*>(all[l])->votes = votes;
    });
    return mine.votes;
}
