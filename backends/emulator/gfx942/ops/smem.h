// SPDX-License-Identifier: MIT
// Addresses of scalar memory instructions.
#pragma once

#include "access.h"

namespace emu {

constexpr u64 kWordMask = ~u64{3};

/// The instruction's own offset plus its scalar register's, in bytes; the lowest two bits of each count as zero.
inline u64 scalar_offset(const Wave& w, const Op& op) {
    const u64 offset = static_cast<u64>(i64{op.inst.offset}) & kWordMask;
    return op.inst.has_soffset ? offset + (scalar32(w, op.soffset) & kWordMask) : offset;
}

inline u64 scalar_address(const Wave& w, const Op& op) {
    return (scalar64(w, op.saddr) & kWordMask) + scalar_offset(w, op);
}

/// What a buffer descriptor means to scalar instructions: 48 bits of address, 14 of stride, the number of records (bytes if
/// the stride is 0). Swizzling is not for them.
struct ScalarBuffer {
    u64 base, bytes;
};

inline ScalarBuffer scalar_buffer(const Wave& w, const Op& op) {
    constexpr u64 kBase = (u64{1} << 48) - 1;
    constexpr u32 kStride = (1u << 14) - 1;
    const u64 low = w.pair(op.saddr.index);
    const u32 stride = static_cast<u32>(low >> 48) & kStride;
    return {low & kBase & kWordMask, u64{w.sgpr[op.saddr.index + 2]} * (stride ? stride : 1)};
}

/// Where `bytes` bytes at the instruction's offset are, or 0 if they do not lie within the buffer.
inline u64 scalar_buffer_address(const Wave& w, const Op& op, u32 bytes) {
    const ScalarBuffer buffer = scalar_buffer(w, op);
    const u64 offset = scalar_offset(w, op);
    return offset > buffer.bytes || bytes > buffer.bytes - offset ? 0 : buffer.base + offset;
}

}  // namespace emu
