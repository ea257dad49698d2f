// SPDX-License-Identifier: MIT
#include "calls.h"

#include <algorithm>

#include "warp.h"

namespace emu::ptx {
namespace {

int first_lane(const Split& split) { return std::countr_zero(split.lanes); }

}  // namespace

u8* Calls::find(int lane, u64 offset, u32 bytes, u32 own) {
    const std::vector<Frame>& all = frames[lane];
    const auto above = std::upper_bound(
        all.begin(), all.end(), offset, [](u64 value, const Frame& each) { return value < each.base; });
    if (above == all.begin() || offset + bytes > std::prev(above)->top) return nullptr;
    return memory[lane].data() + (offset - own);
}

u32 Calls::at(int lane, size_t depth, u32 pc) const {
    return depth < frames[lane].size() ? frames[lane][depth].call->at : pc;
}

bool Calls::before(const Split& a, const Split& b) const {
    const int x = first_lane(a), y = first_lane(b);
    const size_t shared = std::min(frames[x].size(), frames[y].size());
    for (size_t depth = 0; depth <= shared; ++depth) {
        const u32 p = at(x, depth, a.pc), q = at(y, depth, b.pc);
        if (p != q) return p < q;
    }
    return frames[x].size() < frames[y].size();  // it makes the call that the other one has made
}

u32 Calls::limit(const Split& running, const Split& other) const {
    if (before(other, running)) return 0;
    const int x = first_lane(running), y = first_lane(other);
    const size_t depth = frames[x].size();
    if (frames[y].size() < depth) return ~u32{0};
    for (size_t i = 0; i < depth; ++i)
        if (frames[x][i].call != frames[y][i].call) return ~u32{0};
    return at(y, depth, other.pc) + (frames[y].size() > depth);
}

}  // namespace emu::ptx
