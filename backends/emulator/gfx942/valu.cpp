// SPDX-License-Identifier: MIT
// Vector arithmetic around the function that computes: sources with their modifiers, rounding mode, denormals, output
// modifiers, and which lanes and which part of the destination are written.
//
// ISA guide, chapter "Vector ALU Operations": input and output modifiers, SDWA, DPP, VGPR indexing.
#include <cfenv>

#include "float16.h"
#include "valu.h"

namespace emu {
namespace {

constexpr int kMaxDwords = 4;
struct alignas(64) Scratch {
    u32 words[kMaxDwords * kLanes];
};

constexpr u32 kSign32 = 0x80000000u, kSign16 = 0x8000u;

bool flushes_inputs(unsigned denormals) { return !(denormals & 1); }
bool flushes_outputs(unsigned denormals) { return !(denormals & 2); }
unsigned denormals_of(const Wave& w, Type type) {
    switch (type) {
        case Type::F32:
        case Type::PF32:
        case Type::Mix: return w.mode >> 4 & 3;
        case Type::F16:
        case Type::PF16:
        case Type::F64: return w.mode >> 6 & 3;
        default: return 3;
    }
}

// --- bits of one register over the lanes ------------------------------------------------------------------------

template <class F>
void each(u32* words, F change) {
    for (int lane = 0; lane < kLanes; ++lane) words[lane] = change(words[lane]);
}

u32 flush32(u32 bits) { return bits & 0x7f800000u ? bits : bits & kSign32; }
u32 flush16(u32 bits) { return bits & 0x7c00u ? bits : bits & kSign16; }

void flush(u32* words, Type type) {
    switch (type) {
        case Type::F32:
        case Type::Mix: each(words, flush32); break;
        case Type::PF32:
            each(words, flush32);
            each(words + kLanes, flush32);
            break;
        case Type::F16: each(words, flush16); break;
        case Type::PF16:
            each(words, [](u32 bits) { return flush16(bits & 0xffff) | flush16(bits >> 16) << 16; });
            break;
        case Type::F64:
            for (int lane = 0; lane < kLanes; ++lane)
                if (!(words[kLanes + lane] & 0x7ff00000u)) {
                    words[lane] = 0;
                    words[kLanes + lane] &= kSign32;
                }
            break;
        default: break;
    }
}

// --- sources ----------------------------------------------------------------------------------------------------

void select_packed_halves(u32* words, const Operand& operand) {
    const int low = operand.flags & kHigh ? 16 : 0, high = operand.flags & kHighForHigh ? 16 : 0;
    u32 flip = 0;
    if (operand.type != Type::PI16)
        flip = (operand.flags & kNeg ? kSign16 : 0) | (operand.flags & kNegHigh ? kSign32 : 0);
    each(words, [=](u32 bits) { return ((bits >> low & 0xffff) | (bits >> high & 0xffff) << 16) ^ flip; });
}

void select_packed_words(u32* words, const Operand& operand) {
    const int low = operand.flags & kHigh ? kLanes : 0, high = operand.flags & kHighForHigh ? kLanes : 0;
    const bool floats = operand.type == Type::PF32;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 first = words[low + lane], second = words[high + lane];
        words[lane] = first ^ (floats && operand.flags & kNeg ? kSign32 : 0);
        words[kLanes + lane] = second ^ (floats && operand.flags & kNegHigh ? kSign32 : 0);
    }
}

// An operand of v_fma_mix: op_sel_hi says f16 and op_sel which half; neg_hi means absolute value here.
void widen_mix(u32* words, const Operand& operand) {
    if (operand.flags & kHighForHigh) {
        const int shift = operand.flags & kHigh ? 16 : 0;
        each(words, [=](u32 bits) { return as_u32(f16_to_f32(static_cast<u16>(bits >> shift))); });
    }
    const u32 keep = operand.flags & kNegHigh ? ~kSign32 : ~u32{0}, flip = operand.flags & kNeg ? kSign32 : 0;
    each(words, [=](u32 bits) { return (bits & keep) ^ flip; });
}

void select_sub_dword(u32* words, unsigned select, bool sext) {
    constexpr unsigned kWord0 = 4, kDword = 6;
    if (select >= kDword) return;
    const int bits = select < kWord0 ? 8 : 16, shift = select < kWord0 ? int(select) * 8 : int(select - kWord0) * 16;
    const u32 mask = (1u << bits) - 1;
    each(words, [=](u32 value) {
        const u32 part = value >> shift & mask;
        return sext ? static_cast<u32>(sign_extend(part, bits)) : part;
    });
}

void apply_sign(u32* words, const Operand& operand) {
    u32 sign = 0;
    u32* place = words;
    switch (operand.type) {
        case Type::F16:
        case Type::BF16: sign = kSign16; break;
        case Type::F32:
        case Type::B32: sign = kSign32; break;  // B32: v_cndmask and v_mov take the modifiers, too
        case Type::F64:
        case Type::B64:
            sign = kSign32;
            place += kLanes;
            break;
        default: return;
    }
    const u32 keep = operand.flags & kAbs ? ~sign : ~u32{0}, flip = operand.flags & kNeg ? sign : 0;
    each(place, [=](u32 bits) { return (bits & keep) ^ flip; });
}

bool sixteen(Type type) {
    return type == Type::B16 || type == Type::I16 || type == Type::U16 || type == Type::F16 || type == Type::BF16;
}

// `place`: position among the encoding's sources, which SDWA and DPP count by. `lanes` loses those DPP leaves alone.
const u32* prepare(Wave& w, const Op& op, const Operand& operand, int place, Scratch& scratch, u64& lanes) {
    const u32* words = vector_words(w, operand, scratch.words);
    if (words != scratch.words) {
        std::memcpy(scratch.words, words, sizeof(u32) * kLanes * operand.dwords);
        words = scratch.words;
    }
    if (op.inst.dpp && place == 0) lanes &= permute_dpp(op.inst, scratch.words, operand.dwords, w.exec());
    if (op.inst.sdwa && place < 2) select_sub_dword(scratch.words, op.inst.src_sel[place], op.inst.sext >> place & 1);
    switch (operand.type) {
        case Type::PI16:
        case Type::PF16:
        case Type::PBF16: select_packed_halves(scratch.words, operand); break;
        case Type::PB32:
        case Type::PF32: select_packed_words(scratch.words, operand); break;
        case Type::Mix: widen_mix(scratch.words, operand); break;
        default:
            if (sixteen(operand.type)) {
                const int shift = operand.flags & kHigh ? 16 : 0;
                each(scratch.words, [=](u32 bits) { return bits >> shift & 0xffff; });
            }
            if (operand.flags & (kNeg | kAbs)) apply_sign(scratch.words, operand);
    }
    if (flushes_inputs(denormals_of(w, operand.type)) && !(op.inst.row->flags & kRawSources))
        flush(scratch.words, operand.type);
    return scratch.words;
}

// --- results ----------------------------------------------------------------------------------------------------

f32 modified(f32 value, unsigned omod, bool clamp, bool nan_to_zero) {
    constexpr f32 kFactors[] = {1, 2, 4, 0.5f};
    if (omod) value *= kFactors[omod];
    if (clamp) {
        if (value != value) return nan_to_zero ? 0 : value;
        value = value < 0 ? 0 : value > 1 ? 1 : value;
    }
    return value;
}

u32 modified16(u32 bits, unsigned omod, bool clamp, bool nan_to_zero, unsigned round) {
    return f32_to_f16(modified(f16_to_f32(static_cast<u16>(bits)), omod, clamp, nan_to_zero), round);
}

// The output modifier has no effect where denormal results are kept, nor in IEEE mode (ISA guide, "Output Modifiers").
bool scales(const Wave& w, Type type) { return !w.ieee() && flushes_outputs(denormals_of(w, type)); }

void drop_minus(u32* words, u32 magnitude) {
    each(words, [=](u32 bits) { return bits & magnitude ? bits : 0; });
}

// What the output modifier multiplies has no denormals and no -0 (likewise, and AMD in LLVM's review D30209).
void prepare_scaling(u32* words, Type type) {
    flush(words, type);
    switch (type) {
        case Type::F32: drop_minus(words, ~kSign32); break;
        case Type::F16: drop_minus(words, kSign16 - 1); break;
        case Type::F64:
            for (int lane = 0; lane < kLanes; ++lane)
                if (!(lane64(words, lane) << 1)) words[kLanes + lane] = 0;
            break;
        default: break;  // packed formats have no output modifier
    }
}

void modify_result(const Wave& w, const Inst& inst, Type type, u32* words) {
    const unsigned omod = inst.omod && scales(w, type) ? inst.omod : 0;
    if (omod) prepare_scaling(words, type);
    if (omod || inst.clamp) {
        const bool zero = w.dx10_clamp();
        const unsigned round = w.round64();
        const bool clamp = inst.clamp;
        auto single = [=](u32 bits) { return as_u32(modified(as_f32(bits), omod, clamp, zero)); };
        switch (type) {
            case Type::F32: each(words, single); break;
            case Type::PF32:
                each(words, single);
                each(words + kLanes, single);
                break;
            case Type::F16: each(words, [=](u32 bits) { return modified16(bits, omod, clamp, zero, round); }); break;
            case Type::PF16:
                each(words, [=](u32 bits) {
                    return modified16(bits & 0xffff, omod, clamp, zero, round) |
                           modified16(bits >> 16, omod, clamp, zero, round) << 16;
                });
                break;
            case Type::F64: {
                constexpr f64 kFactors[] = {1, 2, 4, 0.5};
                for (int lane = 0; lane < kLanes; ++lane) {
                    f64 value = as_f64(lane64(words, lane)) * kFactors[omod];
                    if (clamp) value = value != value ? (zero ? 0 : value) : value < 0 ? 0 : value > 1 ? 1 : value;
                    set_lane64(words, lane, as_u64(value));
                }
                break;
            }
            default: break;
        }
    }
    if (flushes_outputs(denormals_of(w, type))) flush(words, type);
}

// Puts a 16-bit or SDWA result into its part of the register.
void place_result(const Inst& inst, const Operand& dst, bool preserve, const u32* old, u32* words) {
    if (inst.sdwa) {
        constexpr unsigned kWord0 = 4, kDword = 6, kSext = 1, kPreserve = 2;
        const unsigned select = inst.dst_sel, unused = inst.dst_unused;
        if (select >= kDword) return;
        const int bits = select < kWord0 ? 8 : 16,
                  shift = select < kWord0 ? int(select) * 8 : int(select - kWord0) * 16;
        const u32 mask = ((1u << bits) - 1) << shift;
        for (int lane = 0; lane < kLanes; ++lane) {
            const u32 part = words[lane] << shift & mask;
            u32 rest = unused == kPreserve ? old[lane] & ~mask : 0;
            if (unused == kSext && words[lane] >> (bits - 1) & 1)
                rest = shift + bits == 32 ? 0 : ~u32{0} << (shift + bits);
            words[lane] = part | rest;
        }
        return;
    }
    if (!sixteen(dst.type)) return;
    const bool high = inst.vop3 && inst.format != Format::Vop3p && inst.op_sel >> 3 & 1;
    for (int lane = 0; lane < kLanes; ++lane) {
        if (high) words[lane] = (old[lane] & 0xffff) | words[lane] << 16;
        else if (preserve) words[lane] = (old[lane] & 0xffff0000u) | (words[lane] & 0xffff);
    }
}

int host_rounding(unsigned mode) {
    constexpr int kModes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    return kModes[mode];
}

// MODE has one rounding mode for f32 and one for f64 and f16.
bool rounds_like_f64(Type type) { return type == Type::F64 || type == Type::F16 || type == Type::PF16; }

// The function itself, under the wave's rounding mode.
void compute(Lanes& lanes, const Op& op, Wave& w) {
    const unsigned mode = rounds_like_f64(op.dst.type) ? w.round64() : w.round32();
    if (!mode) return op.lanes(lanes);
    std::fesetround(host_rounding(mode));
    op.lanes(lanes);
    std::fesetround(FE_TONEAREST);
}

void write_masks(Wave& w, const Op& op, const Lanes& lanes, u64 written) {
    // Excluded lanes read as zero in a comparison's result.
    if (op.dst.type == Type::Mask) w.set_pair(op.dst.index, lanes.mask_out & written);
    if (op.sdst.type == Type::Mask) w.set_pair(op.sdst.index, lanes.mask_out & written);
}

void run_general(Wave& w, const Op& op) {
    Scratch scratch[3], result;
    Lanes lanes;
    lanes.wave = &w;
    lanes.op = &op;
    u64 written = w.exec();
    int next = 0, place = 0;
    for (int i = 0; i < 4 && op.src[i].kind != Operand::Absent; ++i) {
        if (op.src[i].type == Type::Mask) {
            lanes.mask_in = scalar64(w, op.src[i]);
            if (op.inst.vop3) ++place;
        } else {
            lanes.s[next] = prepare(w, op, op.src[i], place, scratch[next], written);
            ++next;
            ++place;
        }
    }
    lanes.exec = written;
    lanes.d = result.words;
    compute(lanes, op, w);
    write_masks(w, op, lanes, op.inst.dpp ? w.exec() & written : written);
    if (op.dst.kind != Operand::Vector) return;
    modify_result(w, op.inst, op.dst.type, result.words);
    place_result(op.inst, op.dst, op.preserve, w.v(op.dst.index), result.words);
    write_vector(w, op.dst, result.words, written);
}

// VGPR indexing (s_set_gpr_idx_on): M0 shifts the vector registers that the enabled operands name.
void run_indexed(Wave& w, const Op& op) {
    const u32 shift = w.m0() & 0xff, enabled = w.m0() >> 12 & 15;
    Op moved = op;
    auto move = [&](Operand& operand, int bit) {
        if (operand.kind != Operand::Vector || !(enabled >> bit & 1)) return;
        operand.index += shift;
        if (operand.index + operand.dwords > w.vgpr_count) fault(w, op, "VGPR index beyond the wave's registers");
    };
    for (int i = 0; i < 3; ++i) move(moved.src[i], i);
    move(moved.dst, 3);
    run_general(w, moved);
}

constexpr u32 kIndexing = 1u << 27;
constexpr u32 kUnusualMode = kIndexing | 0xf;  // rounding modes other than to nearest even
constexpr u32 kDenormals = 0xf0;               // both kinds kept

}  // namespace

const u32* vector_words(const Wave& w, const Operand& operand, u32* scratch) {
    if (operand.kind == Operand::Vector) return w.v(operand.index);
    if (operand.kind == Operand::Constant) return operand.splat;
    if (operand.dwords <= 1) {
        store(scratch, u32v(scalar32(w, operand)));
        return scratch;
    }
    for (int word = 0; word < operand.dwords; word += 2) {
        Operand pair = operand;
        pair.index += operand.kind == Operand::Scalar ? word : 0;
        const u64 value = scalar64(w, pair);
        store(scratch + word * kLanes, u32v(static_cast<u32>(value)));
        store(scratch + (word + 1) * kLanes, u32v(static_cast<u32>(value >> 32)));
    }
    return scratch;
}

void write_vector(Wave& w, const Operand& operand, const u32* value, u64 lanes) {
    u32* const registers = w.v(operand.index);
    if (lanes == kAllLanes) {
        for (int i = 0; i < operand.dwords; ++i) store(registers + i * kLanes, load<u32v>(value + i * kLanes));
        return;
    }
    alignas(64) u32 spread_mask[kLanes];
    const u32* mask = spread_mask;
    if (lanes == w.exec()) mask = w.mask();
    else spread(lanes, spread_mask);
    const u32v chosen = load<u32v>(mask);
    for (int i = 0; i < operand.dwords; ++i) {
        u32* const place = registers + i * kLanes;
        store(place, (load<u32v>(value + i * kLanes) & chosen) | (load<u32v>(place) & ~chosen));
    }
}

void run_lanes(Wave& w, const Op& op) {
    if (__builtin_expect(!op.plain || (w.mode & (kUnusualMode | kDenormals)) != kDenormals, 0)) {
        if (w.mode & kIndexing) return run_indexed(w, op);
        return run_general(w, op);
    }
    Scratch scratch[3];
    Lanes lanes;
    lanes.wave = &w;
    lanes.op = &op;
    lanes.exec = w.exec();
    int next = 0;
    for (int i = 0; i < 4 && op.src[i].kind != Operand::Absent; ++i) {
        if (op.src[i].type == Type::Mask) lanes.mask_in = scalar64(w, op.src[i]);
        else {
            lanes.s[next] = vector_words(w, op.src[i], scratch[next].words);
            ++next;
        }
    }
    if (op.dst.kind != Operand::Vector) {
        op.lanes(lanes);
        return write_masks(w, op, lanes, lanes.exec);
    }
    if (lanes.exec == kAllLanes) {
        lanes.d = w.v(op.dst.index);
        op.lanes(lanes);
    } else {
        Scratch result;
        lanes.d = result.words;
        op.lanes(lanes);
        write_vector(w, op.dst, result.words, lanes.exec);
    }
    if (op.sdst.type == Type::Mask) write_masks(w, op, lanes, lanes.exec);
}

}  // namespace emu
