// SPDX-License-Identifier: MIT
// In which order things happen that a kernel does not order itself.
#pragma once

#include <utility>
#include <vector>

#include "types.h"

namespace emu::ptx {

/// Eager: asynchronous copies take place at once. Late: when somebody waits for them. Random: at some time between, in any
/// order; besides, clusters, warps and lanes that have diverged take turns of random lengths.
enum class Order : u8 { Eager, Late, Random };

struct Schedule {
    Order order = Order::Late;
    u64 seed = 0;  // of Random: the same seed is the same order
};

/// Numbers without a pattern, the same ones for the same seed (SplitMix64; Steele, Lea, Flood: Fast Splittable Pseudorandom
/// Number Generators, 2014).
class Dice {
public:
    explicit Dice(u64 seed = 0) : state_(seed) {}
    u64 next() {
        u64 z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    u32 below(size_t count) { return static_cast<u32>(next() % count); }
    bool one_in(u32 count) { return below(count) == 0; }
    /// 1 to 4096, short ones as often as long ones.
    u32 turn() { return 1 + below(size_t{1} << below(13)); }
    template <class T>
    void shuffle(std::vector<T>& list) {
        for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
    }

private:
    u64 state_;
};

}  // namespace emu::ptx
