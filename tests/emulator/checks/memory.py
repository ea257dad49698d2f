# SPDX-License-Identifier: MIT
"""Planted accesses outside of what there is, misaligned ones, and loads whose result is used too early."""

from __future__ import annotations

from tests.emulator.checks.assembly import MARK, Case, replaced

_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
_RESOURCE = "s_mov_b64 s[12:13], s[6:7]\ns_mov_b32 s14, {records}\ns_mov_b32 s15, 0x00027000\n"


def _offsets(
    name: str, wrong: int, right: int, text: str, message: str, check: str = "bounds", lane: int | None = None
) -> Case:
    return replaced(name, check, text, wrong, right, message, lane=lane)


# v2 = v1 + x is where lane 63 ends up one element behind the buffer.
_BEYOND = "v_add_u32 v2, {x}, v1\n"
BOUNDS = [
    _offsets(
        "global_write_beyond",
        772,
        768,
        _BEYOND + "global_store_dword v2, v0, s[6:7] // !",
        r"^write of 4 bytes at 0x\w+; 1 lane",
        lane=63,
    ),
    _offsets(
        "global_read_beyond",
        776,
        768,
        _BEYOND + "global_load_dword v3, v2, s[4:5] // !",
        r"^read of 4 bytes at 0x\w+; 2 lanes",
        lane=62,
    ),
    _offsets(
        "global_read_before", -4, 0, "global_load_dword v3, v1, s[4:5] offset:{x} // !", "^read of 4 bytes", lane=0
    ),
    _offsets(
        "global_read_half_beyond",
        760,
        756,
        _BEYOND + "global_load_dwordx4 v[4:7], v2, s[4:5] // !",
        "^read of 16 bytes",
        lane=63,
    ),
    _offsets(
        "atomic_beyond", 772, 768, _BEYOND + "global_atomic_add v2, v3, s[6:7] // !", "^atomic of 4 bytes", lane=63
    ),
    _offsets(
        "flat_write_beyond",
        1024,
        1020,
        "v_mov_b32 v4, s6\nv_mov_b32 v5, s7\nv_add_co_u32 v4, vcc, {x}, v4\ns_nop 1\n"
        "v_addc_co_u32 v5, vcc, 0, v5, vcc\ns_mov_b64 exec, 1\nflat_store_dword v[4:5], v3 // !",
        "^write of 4 bytes",
        lane=0,
    ),
    _offsets("scalar_read_beyond", 1020, 1016, "s_load_dwordx2 s[8:9], s[4:5], {x} // !", "^scalar read of 8 bytes"),
    _offsets(
        "buffer_write_beyond",
        1028,
        1024,
        _RESOURCE.replace("{records}", "{x}")
        + "v_add_u32 v2, 772, v1\nbuffer_store_dword v3, v2, s[12:15], 0 offen // !",
        "^write of 4 bytes",
        lane=63,
    ),
    # Stride, cache swizzle and swizzle enable, as HipKittens sets them on gfx942: addresses are linear all the same.
    _offsets(
        "cache_swizzled_write_beyond",
        1028,
        1024,
        _RESOURCE.replace("{records}", "{x}")
        + "s_or_b32 s13, s13, 0xc0400000\nv_add_u32 v2, 772, v1\nbuffer_store_dword v3, v2, s[12:15], 0 offen // !",
        "^write of 4 bytes .*; 1 lane",
        lane=63,
    ),
    Case(
        "freed",
        "bounds",
        "global_load_dword v3, v1, s[4:5] // !",
        "global_load_dword v3, v1, s[4:5]",
        "^read of 4 bytes",
        freed=True,
    ),
    Case(
        "null",
        "bounds",
        "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v4, v[2:3], off // !",
        "v_mov_b32 v2, s4\nv_mov_b32 v3, s5\nglobal_load_dword v4, v[2:3], off",
        r"^read of 4 bytes at 0x0; 64 lanes",
    ),
    _offsets(
        "lds_read_beyond",
        3844,
        3840,
        _BEYOND + "ds_read_b32 v3, v2 // !",
        "^read of 4 bytes at 0x1000 of LDS, which has 4096 bytes here; 1 lane",
        lane=63,
    ),
    _offsets(
        "lds_write_beyond",
        4092,
        4080,
        "v_mov_b32 v2, {x}\nds_write_b128 v2, v[4:7] // !",
        "^write of 16 bytes",
        lane=0,
    ),
    _offsets(
        "lds_second_read_beyond",
        255,
        254,
        "v_mov_b32 v2, 0x808\nds_read2_b64 v[4:7], v2 offset1:{x} // !",
        "^read of 8 bytes",
        lane=0,
    ),
    _offsets("lds_atomic_beyond", 4096, 4092, "v_mov_b32 v2, {x}\nds_max_u32 v2, v3 // !", "^atomic of 4 bytes"),
    _offsets(
        "scratch_beyond",
        64,
        60,
        "scratch_store_dword off, v3, off offset:{x} // !",
        "^write of 4 bytes at 0x40 of the lane's scratch, which has 64 bytes here; 64 lanes",
    ),
]

MISALIGNED = [
    _offsets(
        "global_b64_misaligned",
        2,
        4,
        "v_mov_b32 v2, {x}\nglobal_load_dwordx2 v[4:5], v2, s[4:5] // !",
        "^read of 8 bytes .* not a multiple of 4$",
        "misaligned",
        lane=0,
    ),
    _offsets(
        "global_b128_misaligned",
        1,
        4,
        "v_mov_b32 v2, {x}\nglobal_store_dwordx4 v2, v[4:7], s[6:7] // !",
        "^write of 16 bytes .* not a multiple of 4$",
        "misaligned",
    ),
    _offsets(
        "global_short_misaligned",
        7,
        6,
        "v_mov_b32 v2, {x}\nglobal_load_ushort v4, v2, s[4:5] // !",
        "^read of 2 bytes .* not a multiple of 2$",
        "misaligned",
    ),
    _offsets(
        "global_short_in_two_dwords",
        3,
        1,
        "global_load_ushort v4, v1, s[4:5] offset:{x} // !",
        "^read of 2 bytes .* not a multiple of 2$",
        "misaligned",
    ),
    _offsets(
        "lds_short_in_two_dwords",
        3,
        1,
        "ds_read_u16 v4, v1 offset:{x} // !",
        "^read of 2 bytes .* of LDS, not a multiple of 2$",
        "misaligned",
    ),
    _offsets(
        "read_where_bytes_are_merged",
        2,
        1,
        "global_load_dwordx2 v[4:5], v1, s[4:5] offset:1\nglobal_load_dword v6, v1, s[4:5] offset:{x} // !\n"
        "s_waitcnt vmcnt(0)\nv_bfe_u32 v7, v5, 8, 8",
        "^read of 4 bytes",
        "misaligned",
    ),
    _offsets(
        "read_where_bytes_are_merged_after_it",
        "s_mov_b32 s4, s6",
        "s_nop 0",
        "s_mov_b32 s6, s4\nglobal_load_dword v6, v1, s[4:5] offset:1 // !\n{x}\n"
        "global_load_dwordx2 v[4:5], v1, s[4:5] offset:1\ns_waitcnt vmcnt(0)\nv_bfe_u32 v7, v5, 8, 8",
        "^read of 4 bytes",
        "misaligned",
    ),
    _offsets(
        "one_lane_misaligned",
        2,
        4,
        "v_mov_b32 v2, v1\nv_mov_b32 v4, {x}\nv_writelane_b32 v2, s8, 9\n"
        "s_mov_b64 exec, 0x400\nv_mov_b32 v2, v4\ns_mov_b64 exec, -1\nglobal_load_dword v3, v2, s[4:5] // !",
        "^read of 4 bytes",
        "misaligned",
        lane=10,
    ),
    _offsets(
        "atomic_misaligned",
        2,
        4,
        "v_mov_b32 v2, {x}\nglobal_atomic_add v2, v3, s[6:7] // !",
        "^atomic of 4 bytes .* not a multiple of 4$",
        "misaligned",
    ),
    _offsets(
        "atomic64_misaligned",
        4,
        8,
        "v_mov_b32 v2, {x}\nglobal_atomic_add_x2 v2, v[4:5], s[6:7] // !",
        "^atomic of 8 bytes .* not a multiple of 8$",
        "misaligned",
    ),
    _offsets(
        "lds_b64_misaligned",
        2,
        4,
        "v_mov_b32 v2, {x}\nds_read_b64 v[4:5], v2 // !",
        "of LDS, not a multiple of 4$",
        "misaligned",
    ),
    _offsets(
        "lds_b128_misaligned",
        9,
        16,
        "v_mov_b32 v2, {x}\nds_write_b128 v2, v[4:7] // !",
        "of LDS, not a multiple of 4$",
        "misaligned",
    ),
]


def _counts(name: str, loads: str, wrong: str, right: str, use: str, message: str) -> Case:
    return Case(name, "waitcnt", f"{loads}\n{wrong}\n{use} {MARK}", f"{loads}\n{right}\n{use}", message)


_TWO_LOADS = "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5] offset:4"
WAITCNT = [
    _counts(
        "no_vmcnt",
        "global_load_dword v2, v1, s[4:5]",
        "",
        _WAIT,
        "v_add_u32 v3, v2, v2",
        r"^reads v2.* vmcnt\(0\)",
    ),
    _counts(
        "lax_vmcnt",
        _TWO_LOADS,
        "s_waitcnt vmcnt(1)",
        "s_waitcnt vmcnt(0)",
        "v_add_u32 v4, v3, v3",
        r"vmcnt\(0\) or less",
    ),
    _counts(
        "lax_vmcnt_of_first",
        _TWO_LOADS,
        "s_waitcnt vmcnt(2)",
        "s_waitcnt vmcnt(1)",
        "v_add_u32 v4, v2, v2",
        r"vmcnt\(1\) or less",
    ),
    _counts(
        "stores_count",
        "global_load_dword v2, v1, s[4:5]\nglobal_store_dword v1, v3, s[6:7]",
        "s_waitcnt vmcnt(2)",
        "s_waitcnt vmcnt(1)",
        "v_add_u32 v4, v2, v2",
        r"vmcnt\(1\) or less",
    ),
    _counts(
        "wrong_counter",
        "global_load_dword v2, v1, s[4:5]",
        "s_waitcnt lgkmcnt(0)",
        "s_waitcnt vmcnt(0)",
        "v_and_b32 v3, 4, v2",
        "^reads",
    ),
    _counts(
        "loaded_data_stored",
        "global_load_dword v2, v1, s[4:5]",
        "",
        _WAIT,
        "global_store_dword v1, v2, s[6:7]",
        "^reads",
    ),
    _counts("overwritten", "global_load_dword v2, v1, s[4:5]", "", _WAIT, "v_mov_b32 v2, 0", r"^overwrites v2"),
    _counts(
        "overwritten_by_other_load", "global_load_dword v2, v1, s[4:5]", "", _WAIT, "ds_read_b32 v2, v1", "^overwrites"
    ),
    _counts(
        "no_lgkmcnt",
        "ds_write_b32 v1, v3\nds_read_b32 v2, v1",
        "s_waitcnt vmcnt(0)",
        "s_waitcnt lgkmcnt(0)",
        "v_add_u32 v3, v2, v2",
        r"lgkmcnt\(0\) or less",
    ),
    _counts(
        "lax_lgkmcnt",
        "ds_read_b32 v2, v1\nds_read_b32 v3, v1",
        "s_waitcnt lgkmcnt(2)",
        "s_waitcnt lgkmcnt(1)",
        "v_add_u32 v4, v2, v2",
        r"lgkmcnt\(1\) or less",
    ),
    _counts("scalar_load", "s_load_dword s8, s[4:5], 0x0", "", _WAIT, "s_add_u32 s9, s8, s8", r"^reads s8"),
    _counts(
        "scalar_loads_in_any_order",
        "s_load_dword s8, s[4:5], 0x0\ns_load_dword s9, s[4:5], 0x4",
        "s_waitcnt lgkmcnt(1)",
        _WAIT,
        "v_mov_b32 v3, s8",
        r"lgkmcnt\(0\) or less",
    ),
    _counts(
        "lds_behind_scalar_load",
        "ds_read_b32 v2, v1\ns_load_dword s8, s[4:5], 0x0",
        "s_waitcnt lgkmcnt(1)",
        _WAIT,
        "v_mov_b32 v3, v2",
        r"lgkmcnt\(0\) or less",
    ),
    _counts("atomic_result", "global_atomic_add v2, v1, v3, s[6:7] sc0", "", _WAIT, "v_mov_b32 v4, v2", "^reads"),
    _counts(
        "flat_counts_twice",
        "v_mov_b32 v4, s4\nv_mov_b32 v5, s5\nflat_load_dword v2, v[4:5]",
        "s_waitcnt vmcnt(0)",
        _WAIT,
        "v_mov_b32 v3, v2",
        r"lgkmcnt\(0\)",
    ),
    _counts(
        "mask_of_div_fmas", "s_load_dwordx2 vcc, s[4:5], 0x0", "", _WAIT, "v_div_fmas_f32 v4, v2, v3, v5", "^reads VCC"
    ),
    _counts(
        "accumulators",
        "global_load_dwordx4 a[4:7], v1, s[4:5]",
        "",
        _WAIT,
        "v_accvgpr_read_b32 v2, a5",
        r"^reads a5 while a load into a\[4:7\]",
    ),
    _counts(
        "mfma_factor",
        "ds_read_b64 v[2:3], v1",
        "",
        _WAIT,
        "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]",
        r"^reads v\[2:3\]",
    ),
]

CASES = [*BOUNDS, *MISALIGNED, *WAITCNT]
