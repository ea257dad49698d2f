// SPDX-License-Identifier: MIT
// Buffer resources and the addresses that MUBUF and MTBUF instructions form with them (ISA guide, "Buffer addressing").
#pragma once

#include "transfer.h"

namespace emu {

/// The 128-bit descriptor in four scalar registers.
struct Buffer {
    u64 base;
    u32 stride, records;  // records: bytes, or elements of `stride` bytes if swizzled
    bool swizzled;        // swizzle enable, with a stride and without cache swizzle
    bool add_lane;        // the lane's number is added to the index
    u32 index_stride;     // 8, 16, 32 or 64
    u32 select[4];        // destination select, of format loads
    u32 number_format, data_format;

    Buffer(const Wave& w, const Op& op) {
        const u32* const word = w.sgpr + op.saddr.index;
        base = (word[0] | u64{word[1]} << 32) & 0xffff'ffff'ffffull;
        stride = word[1] >> 16 & 0x3fff;
        records = word[2];
        add_lane = word[3] >> 23 & 1;
        if (add_lane) stride |= (word[3] >> 15 & 15) << 14;  // the data format's place
        // With cache swizzle (bit 62), only the cache places lines by the stride: public kernels for gfx942 set both bits and
        // address linearly.
        const bool cache_swizzle = word[1] >> 30 & 1;
        swizzled = word[1] >> 31 && stride && !cache_swizzle;
        index_stride = 8u << (word[3] >> 21 & 3);
        for (int i = 0; i < 4; ++i) select[i] = word[3] >> 3 * i & 7;
        number_format = word[3] >> 12 & 7;
        data_format = word[3] >> 15 & 15;
    }
};

/// One instruction's offsets and indices, taken from the registers before a load may overwrite them.
class BufferAccess {
public:
    BufferAccess(const Wave& w, const Op& op) : buffer(w, op), soffset_(scalar32(w, op.soffset)) {
        const u32* v = op.inst.has_vaddr ? w.v(op.vaddr.index) : nullptr;
        const bool idxen = op.inst.idxen;
        const u64 fixed = static_cast<u32>(op.inst.offset);
        indexed_ = idxen || buffer.add_lane;
        if (indexed_) {
            for (int lane = 0; lane < kLanes; ++lane)
                index_[lane] = (idxen ? u64{v[lane]} : 0) + (buffer.add_lane ? static_cast<u64>(lane) : 0);
        } else if (buffer.swizzled) {
            std::memset(index_, 0, sizeof index_);
        }
        if (op.inst.offen) {
            if (idxen) v += kLanes;
            for (int lane = 0; lane < kLanes; ++lane) offset_[lane] = fixed + v[lane];
        } else {
            for (u64& word : offset_) word = fixed;
        }
        if (indexed_ && !buffer.swizzled)
            for (int lane = 0; lane < kLanes; ++lane) offset_[lane] += index_[lane] * buffer.stride;
    }

    /// Fills in the addresses of the element `extra` bytes further on; returns the lanes of `exec` that are in range with all
    /// of its `bytes` bytes.
    ///
    /// Linear buffers: the offset, the scalar offset included, is compared with num_records in bytes. Swizzled ones: the
    /// index is compared with num_records, and the offset with the stride. Offsets do not wrap around.
    u64 lanes(u32 extra, u32 bytes, u64 exec, u64* address) const {
        if (buffer.swizzled) return swizzled(extra, bytes, exec, address);
        const u64 base = buffer.base + soffset_ + extra;
        const i64 room = static_cast<i64>(buffer.records) - static_cast<i64>(u64{soffset_} + extra + bytes);
        i64 worst = room;  // negative if any lane is out of range: offsets have less than 63 bits
        for (int lane = 0; lane < kLanes; ++lane) {
            address[lane] = base + offset_[lane];
            worst |= room - static_cast<i64>(offset_[lane]);
        }
        if (worst >= 0) [[likely]]
            return exec;
        u64 mask = 0;
        for (int lane = 0; lane < kLanes; ++lane) mask |= u64{static_cast<i64>(offset_[lane]) <= room} << lane;
        return mask & exec;
    }

    const Buffer buffer;

private:
    u64 swizzled(u32 extra, u32 bytes, u64 exec, u64* address) const;

    u32 soffset_;
    bool indexed_;
    alignas(64) u64 offset_[kLanes];
    alignas(64) u64 index_[kLanes];
};

}  // namespace emu
