// SPDX-License-Identifier: MIT
// Keeps the blocks of a launch at about the same step where they share saturated memory.
//
// Multiprocessors do not get equal shares of it: blocks with equal work end up to a sixth apart, and what the early ones leave unused at
// the end is lost. So each block counts its steps in one number, and one that is ahead of the average of those at work waits: what it
// does not ask for goes to the others. This changes when things happen, never results. Nobody waits for a block that has not started,
// or has ended: the one furthest behind never waits, so all end.
#pragma once

#include "mla/workspace.h"
#include "ptx/atomic.h"

namespace mla {

/// One for each workspace that was ever used (mla/workspace.h): the steps of the blocks at work, and 2^40 for each of them.
static __device__ unsigned long long throttle_words[kCountSets];

/// Of one thread of a block.
struct Throttle {
    static constexpr unsigned long long kBlock = 1ull << 40;
    static constexpr unsigned kFree = 4;  // first steps, for which nobody waits: they are asked for at once

    unsigned steps;           // this block's
    unsigned long long seen;  // the word some time ago; a load or addition that may be under way

    Throttle() = default;
    __device__ __forceinline__ explicit Throttle(unsigned long long* word)
        : steps(0), seen(fetch_add_wide(word, kBlock)) {}

    /// Before the next step: wait while this block is more than `slack` half steps ahead of the average, and count the step.
    __device__ __forceinline__ void step(unsigned long long* word, int slack) {
        while (steps >= kFree && ahead(slack)) seen = look_at_wide(word);
        ++steps;
        fetch_add_wide(word, 1);
        seen = look_at_wide(word);  // used before the next step: until then nothing waits for it
    }

    /// The same for blocks whose loads must not wait for the count: before a step, wait while this block is more than `slack` quarter steps
    /// ahead of the average. The number of the last step is about a step old, so a block that is not clearly behind looks once more, which
    /// takes it 0.7 us: that alone lets those behind catch up.
    __device__ __forceinline__ void wait(unsigned long long* word, int slack) {
        while (steps >= kFree && ahead(slack, 4)) seen = look_at_wide(word);
    }
    /// Behind it, count the step, and with the first one the block; begins as Throttle().
    __device__ __forceinline__ void count(unsigned long long* word) {
        const unsigned long long more = steps == 0 ? kBlock + 1 : 1;
        seen = fetch_add_wide(word, more) + more;
        ++steps;
    }

    /// When all steps are done.
    __device__ __forceinline__ void end(unsigned long long* word) const { fetch_add_wide(word, 0 - (kBlock + steps)); }

private:
    __device__ __forceinline__ bool ahead(int slack, int of_a_step = 2) const {
        const long long blocks = static_cast<long long>(seen >> 40), all = static_cast<long long>(seen & (kBlock - 1));
        return (static_cast<long long>(of_a_step) * steps - slack) * blocks > of_a_step * all;
    }
};

}  // namespace mla
