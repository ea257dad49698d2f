// SPDX-License-Identifier: MIT
// Sums of absolute differences, and the mean of bytes. With clamp the sums saturate.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "VOP3A".
#include "../table.h"
#include "../wave.h"

namespace emu {
namespace {

u32 absdiff(u32 a, u32 b) { return a > b ? a - b : b - a; }

// Of the four bytes; `Masked`: where the second (the reference) is 0, nothing is added.
template <bool Masked>
u32 sad_of_bytes(u32 a, u32 b) {
    u32 sum = 0;
    for (int shift = 0; shift < 32; shift += 8) {
        const u32 x = a >> shift & 0xff, y = b >> shift & 0xff;
        sum += Masked && y == 0 ? 0 : absdiff(x, y);
    }
    return sum;
}

u32 sad_of_halves(u32 a, u32 b) { return absdiff(a & 0xffff, b & 0xffff) + absdiff(a >> 16, b >> 16); }
u32 sad_of_bytes_high(u32 a, u32 b) { return sad_of_bytes<false>(a, b) << 16; }

u32 accumulated(u32 sum, u32 start, bool clamp) {
    const u64 exact = u64{sum} + start;
    return clamp && exact >> 32 ? ~u32{0} : static_cast<u32>(exact);
}

template <auto F>
void sad(Lanes& l) {
    const bool clamp = l.clamp();
    for (int lane = 0; lane < kLanes; ++lane)
        l.d[lane] = accumulated(F(l.s[0][lane], l.s[1][lane]), l.s[2][lane], clamp);
}

// Four sums, of the reference against the first operand's 64 bits from bytes 0, 1, 2 and 3 on: packed in 16 bits each.
template <bool Masked>
void quad_sad16(Lanes& l) {
    const bool clamp = l.clamp();
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 window = lane64(l.s[0], lane), start = lane64(l.s[2], lane);
        const u32 reference = l.s[1][lane];
        u64 result = 0;
        for (int i = 0; i < 4; ++i) {
            u32 sum = sad_of_bytes<Masked>(static_cast<u32>(window >> 8 * i), reference) + (start >> 16 * i & 0xffff);
            if (clamp && sum > 0xffff) sum = 0xffff;
            result |= u64{sum & 0xffff} << 16 * i;
        }
        set_lane64(l.d, lane, result);
    }
}

// The same in 32 bits each.
void v_mqsad_u32_u8(Lanes& l) {
    const bool clamp = l.clamp();
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 window = lane64(l.s[0], lane);
        const u32 reference = l.s[1][lane];
        u32 sums[4];
        for (int i = 0; i < 4; ++i)
            sums[i] = accumulated(
                sad_of_bytes<true>(static_cast<u32>(window >> 8 * i), reference), l.s[2][i * kLanes + lane], clamp);
        for (int i = 0; i < 4; ++i) l.d[i * kLanes + lane] = sums[i];
    }
}

// The mean of each byte, rounded up where the third operand's byte is odd.
void v_lerp_u8(Lanes& l) {
    const u32v a = load<u32v>(l.s[0]), b = load<u32v>(l.s[1]), c = load<u32v>(l.s[2]);
    constexpr u32 kEven = 0x00ff00ff, kRound = 0x00010001;
    const u32v low = ((a & kEven) + (b & kEven) + (c & kRound)) >> 1 & kEven;
    const u32v high = ((a >> 8 & kEven) + (b >> 8 & kEven) + (c >> 8 & kRound)) >> 1 & kEven;
    store(l.d, low | high << 8);
}

constexpr const char* kThree = "u32=u32,u32,u32";

constexpr Row kRows[] = {
    {"v_lerp_u8", Format::Vop3, 461, kThree, v_lerp_u8, nullptr, 0, 0},
    {"v_sad_u8", Format::Vop3, 473, kThree, sad<sad_of_bytes<false>>, nullptr, 0, 0},
    {"v_sad_hi_u8", Format::Vop3, 474, kThree, sad<sad_of_bytes_high>, nullptr, 0, 0},
    {"v_sad_u16", Format::Vop3, 475, kThree, sad<sad_of_halves>, nullptr, 0, 0},
    {"v_sad_u32", Format::Vop3, 476, kThree, sad<absdiff>, nullptr, 0, 0},
    {"v_msad_u8", Format::Vop3, 484, kThree, sad<sad_of_bytes<true>>, nullptr, 0, 0},
    {"v_qsad_pk_u16_u8", Format::Vop3, 485, "b64=b64,b32,b64", quad_sad16<false>, nullptr, kDoubleRate, 0},
    {"v_mqsad_pk_u16_u8", Format::Vop3, 486, "b64=b64,b32,b64", quad_sad16<true>, nullptr, kDoubleRate, 0},
    {"v_mqsad_u32_u8", Format::Vop3, 487, "b32x4=b64,b32,b32x4", v_mqsad_u32_u8, nullptr, kDoubleRate, 0},
};

}  // namespace

std::span<const Row> vop_sad_rows() { return kRows; }

}  // namespace emu
