// SPDX-License-Identifier: MIT
// Scalar memory: loads, stores, clocks and caches (atomics are in smem_atomic.cpp).
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "Scalar Memory Operations".
#include "smem.h"

#include "../table.h"

namespace emu {
namespace {

const void* host(u64 address) { return reinterpret_cast<const void*>(address); }
void* host_for_write(u64 address) { return reinterpret_cast<void*>(address); }

template <u32 Dwords>
void set_destination(Wave& w, const Op& op, const u32* words) {
    if (op.dst.index + Dwords > kM0) fault(w, op, "loads beyond the scalar registers");
    for (u32 i = 0; i < Dwords; ++i) w.sgpr[op.dst.index + i] = words[i];
}

template <u32 Dwords>
void load_from(Wave& w, const Op& op, u64 address) {
    u32 words[Dwords] = {};
    if (touch_scalar(w, op, address, 4 * Dwords)) std::memcpy(words, host(address), sizeof words);
    set_destination<Dwords>(w, op, words);
}

template <u32 Dwords>
void store_to(Wave& w, const Op& op, u64 address) {
    if (touch_scalar(w, op, address, 4 * Dwords, AccessKind::Write))
        std::memcpy(host_for_write(address), &w.sgpr[op.vdata.index], 4 * Dwords);
}

template <u32 Dwords>
void s_load(Wave& w, const Op& op) {
    load_from<Dwords>(w, op, scalar_address(w, op));
}

template <u32 Dwords>
void s_store(Wave& w, const Op& op) {
    store_to<Dwords>(w, op, scalar_address(w, op));
}

// Beyond the buffer's end each dword reads as zero by itself, and is not stored.
template <u32 Dwords>
void s_buffer_load(Wave& w, const Op& op) {
    if (const u64 address = scalar_buffer_address(w, op, 4 * Dwords)) return load_from<Dwords>(w, op, address);
    const ScalarBuffer buffer = scalar_buffer(w, op);
    const u64 offset = scalar_offset(w, op);
    u32 words[Dwords] = {};
    for (u32 i = 0; i < Dwords; ++i) {
        const u64 from = offset + 4 * i;
        if (from + 4 > buffer.bytes || from + 4 < from) continue;
        if (touch_scalar(w, op, buffer.base + from, 4)) std::memcpy(&words[i], host(buffer.base + from), 4);
    }
    set_destination<Dwords>(w, op, words);
}

template <u32 Dwords>
void s_buffer_store(Wave& w, const Op& op) {
    if (const u64 address = scalar_buffer_address(w, op, 4 * Dwords)) return store_to<Dwords>(w, op, address);
    const ScalarBuffer buffer = scalar_buffer(w, op);
    const u64 offset = scalar_offset(w, op);
    for (u32 i = 0; i < Dwords; ++i) {
        const u64 from = offset + 4 * i;
        if (from + 4 > buffer.bytes || from + 4 < from) continue;
        if (touch_scalar(w, op, buffer.base + from, 4, AccessKind::Write))
            std::memcpy(host_for_write(buffer.base + from), &w.sgpr[op.vdata.index + i], 4);
    }
}

// These name memory by where the hardware keeps a wave's scratch, which is not where it is kept here.
void s_scratch(Wave& w, const Op& op) {
    fault(
        w, op,
        "scalar access to scratch memory: compilers for gfx942 do not use it, and the emulator does not have it");
}

// A wave's clock counts its own instructions, four cycles each (what one that has a SIMD to itself needs at least), so that a
// kernel that reads it gives the same result every time. Rates as MI300X documents them: 2.1 GHz for the shader clock (its
// peak), 100 MHz for the other.
u64 cycles(const Wave& w) { return w.executed * 4; }

void s_memtime(Wave& w, const Op& op) { set_scalar64(w, op.dst, cycles(w)); }
void s_memrealtime(Wave& w, const Op& op) { set_scalar64(w, op.dst, cycles(w) / 21); }

// Memory is always up to date, so caches have nothing to do.
void nothing(Wave&, const Op&) {}

// A probe asks for a translation without reading: with no page tables, the answer is never seen.
constexpr Row kRows[] = {
    {"s_load_dword", Format::Smem, 0, "b32=", nullptr, s_load<1>, kLoad, 0},
    {"s_load_dwordx2", Format::Smem, 1, "b32x2=", nullptr, s_load<2>, kLoad, 0},
    {"s_load_dwordx4", Format::Smem, 2, "b32x4=", nullptr, s_load<4>, kLoad, 0},
    {"s_load_dwordx8", Format::Smem, 3, "b32x8=", nullptr, s_load<8>, kLoad, 0},
    {"s_load_dwordx16", Format::Smem, 4, "b32x16=", nullptr, s_load<16>, kLoad, 0},
    {"s_scratch_load_dword", Format::Smem, 5, "b32=", nullptr, s_scratch, kLoad, 0},
    {"s_scratch_load_dwordx2", Format::Smem, 6, "b32x2=", nullptr, s_scratch, kLoad, 0},
    {"s_scratch_load_dwordx4", Format::Smem, 7, "b32x4=", nullptr, s_scratch, kLoad, 0},
    {"s_buffer_load_dword", Format::Smem, 8, "b32=", nullptr, s_buffer_load<1>, kLoad, 0},
    {"s_buffer_load_dwordx2", Format::Smem, 9, "b32x2=", nullptr, s_buffer_load<2>, kLoad, 0},
    {"s_buffer_load_dwordx4", Format::Smem, 10, "b32x4=", nullptr, s_buffer_load<4>, kLoad, 0},
    {"s_buffer_load_dwordx8", Format::Smem, 11, "b32x8=", nullptr, s_buffer_load<8>, kLoad, 0},
    {"s_buffer_load_dwordx16", Format::Smem, 12, "b32x16=", nullptr, s_buffer_load<16>, kLoad, 0},
    {"s_store_dword", Format::Smem, 16, "=b32", nullptr, s_store<1>, kStore, 0},
    {"s_store_dwordx2", Format::Smem, 17, "=b32x2", nullptr, s_store<2>, kStore, 0},
    {"s_store_dwordx4", Format::Smem, 18, "=b32x4", nullptr, s_store<4>, kStore, 0},
    {"s_scratch_store_dword", Format::Smem, 21, "=b32", nullptr, s_scratch, kStore, 0},
    {"s_scratch_store_dwordx2", Format::Smem, 22, "=b32x2", nullptr, s_scratch, kStore, 0},
    {"s_scratch_store_dwordx4", Format::Smem, 23, "=b32x4", nullptr, s_scratch, kStore, 0},
    {"s_buffer_store_dword", Format::Smem, 24, "=b32", nullptr, s_buffer_store<1>, kStore, 0},
    {"s_buffer_store_dwordx2", Format::Smem, 25, "=b32x2", nullptr, s_buffer_store<2>, kStore, 0},
    {"s_buffer_store_dwordx4", Format::Smem, 26, "=b32x4", nullptr, s_buffer_store<4>, kStore, 0},
    {"s_dcache_inv", Format::Smem, 32, "", nullptr, nothing, 0, 0},
    {"s_dcache_wb", Format::Smem, 33, "", nullptr, nothing, 0, 0},
    {"s_dcache_inv_vol", Format::Smem, 34, "", nullptr, nothing, 0, 0},
    {"s_dcache_wb_vol", Format::Smem, 35, "", nullptr, nothing, 0, 0},
    {"s_memtime", Format::Smem, 36, "b64=", nullptr, s_memtime, 0, 0},
    {"s_memrealtime", Format::Smem, 37, "b64=", nullptr, s_memrealtime, 0, 0},
    {"s_atc_probe", Format::Smem, 38, "", nullptr, nothing, 0, 0},
    {"s_atc_probe_buffer", Format::Smem, 39, "", nullptr, nothing, 0, 0},
    {"s_dcache_discard", Format::Smem, 40, "", nullptr, nothing, 0, 0},
    {"s_dcache_discard_x2", Format::Smem, 41, "", nullptr, nothing, 0, 0},
};

}  // namespace

std::span<const Row> smem_rows() { return kRows; }

}  // namespace emu
