// SPDX-License-Identifier: MIT
#include "classes.h"

#include <cstdio>
#include <cstring>

namespace emu::counters {
namespace {

// A wave of 64 goes through a SIMD of 16 lanes in four cycles; the transcendental unit and the 32-bit multiplier have four
// lanes (AMD CDNA 3 ISA guide and white paper: full and quarter rate). 64-bit and packed arithmetic is at full rate.
constexpr u32 kTurn = 4, kQuarter = 16;

bool starts(const char* text, const char* with) { return !std::strncmp(text, with, std::strlen(with)); }

bool quarter_rate(const char* name) {
    return starts(name, "v_mul_lo_u32") || starts(name, "v_mul_hi_") || starts(name, "v_mad_u64_u32") ||
           starts(name, "v_mad_i64_i32");
}

// "v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_32x32x1_2b_f32", "v_smfmac_f32_16x16x64_fp8_fp8"
u64 products(const char* name) {
    const char* shape = std::strpbrk(name, "123456789");
    while (shape && !(std::strchr(shape, 'x') && shape[-1] == '_')) shape = std::strpbrk(shape + 1, "123456789");
    unsigned m = 0, n = 0, k = 0, blocks = 1;
    int used = 0;
    if (!shape || std::sscanf(shape, "%ux%ux%u%n", &m, &n, &k, &used) != 3) return 0;
    if (std::sscanf(shape + used, "_%ub", &blocks) != 1) blocks = 1;
    return u64{m} * n * k * blocks;
}

Kind matrix(const Row& row) {
    if (!row.passes) return {Class::Valu, Unit::Valu, kTurn, 0, false};  // v_accvgpr_read and _write
    const bool sparse = starts(row.name, "v_smfmac");
    return {Class::Matrix, Unit::Matrix, row.passes * 4u, 2 * products(row.name) / (sparse ? 2 : 1), sparse};
}

Kind scalar_program(const Row& row) {
    if (row.flags & kBranch) return {Class::Branch, Unit::None, 0, 0, false};
    if (starts(row.name, "s_barrier")) return {Class::Barrier, Unit::None, 0, 0, false};
    if (starts(row.name, "s_waitcnt")) return {Class::Waitcnt, Unit::None, 0, 0, false};
    if (starts(row.name, "s_nop")) return {Class::Nop, Unit::None, 0, 0, false};
    if (starts(row.name, "s_setprio")) return {Class::Priority, Unit::None, 0, 0, false};
    return {Class::Other, Unit::None, 0, 0, false};
}

Kind vector(const Row& row) {
    const u32 cycles = row.flags & kTranscendental || quarter_rate(row.name) ? kQuarter : kTurn;
    if (row.flags & kTranscendental) return {Class::Transcendental, Unit::Valu, cycles, 0, false};
    if (row.format == Format::Vop3p) return {Class::Packed, Unit::Valu, cycles, 0, false};
    return {row.flags & kDoubleRate ? Class::Wide : Class::Valu, Unit::Valu, cycles, 0, false};
}

}  // namespace

const char* name(Class klass) {
    constexpr const char* kNames[kClasses] = {
        "salu",       "smem",        "valu",   "transcendental", "packed",  "wide64", "mfma",    "lds",  "vmem_load",
        "vmem_store", "vmem_atomic", "branch", "barrier",        "waitcnt", "nop",    "setprio", "other"};
    return kNames[static_cast<int>(klass)];
}

const char* matrix_type(const Row& row) {
    const char* const last = std::strrchr(row.name, '_') + 1;
    return !std::strcmp(last, "bf8") || !std::strcmp(last, "fp8") ? "fp8" : last;
}

Kind classify(const Op& op) {
    if (!op.inst.row) return {};
    const Row& row = *op.inst.row;
    switch (row.format) {
        case Format::Sop1:
        case Format::Sop2:
        case Format::Sopk:
        case Format::Sopc:
            if (row.flags & kBranch || starts(row.name, "s_setpc") || starts(row.name, "s_swappc"))
                return {Class::Branch, Unit::None, 0, 0, false};
            return {Class::Salu, Unit::Salu, kTurn, 0, false};
        case Format::Sopp: return scalar_program(row);
        case Format::Smem: return {Class::Smem, Unit::Smem, kTurn, 0, false};
        case Format::Mai: return matrix(row);
        case Format::Ds: return {Class::Lds, Unit::Lds, 0, 0, false};
        case Format::Flat:
        case Format::Global:
        case Format::Scratch:
        case Format::Mubuf:
        case Format::Mtbuf:
            if (row.flags & kAtomic) return {Class::Atomic, Unit::Vmem, 0, 0, false};
            if (row.flags & kStore) return {Class::Store, Unit::Vmem, 0, 0, false};
            if (row.flags & kLoad) return {Class::Load, Unit::Vmem, 0, 0, false};
            return {};  // cache control
        default: return vector(row);
    }
}

}  // namespace emu::counters
