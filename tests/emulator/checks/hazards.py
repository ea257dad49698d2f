# SPDX-License-Identifier: MIT
"""Wait states: pairs of instructions and how many must come between, by the ISA guide's tables for MI300. Each is
planted with one too few and is silent with as many."""

from __future__ import annotations

from tests.emulator.checks.assembly import MARK, Case

_COMPARE_EXEC = "v_cmpx_eq_u32 vcc, v2, v2"
_MFMA16 = "v_mfma_f32_16x16x16_f16"  # 4 passes
_MFMA32 = "v_mfma_f32_32x32x8_f16"  # 8
_MFMA4 = "v_mfma_f32_4x4x4_16b_f16"  # 2
_MFMA64 = "v_mfma_f32_32x32x4_2b_f16"  # 16
_AB = "v[2:3], v[4:5]"

# name: (the earlier instruction, wait states, the later one)
PAIRS: dict[str, tuple[str, int, str]] = {
    "transcendental": ("v_exp_f32 v2, v3", 1, "v_add_f32 v4, v2, v3"),
    "sdwa_destination": (
        "v_add_u32_sdwa v2, v3, v4 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD",
        1,
        "v_add_u32 v5, v2, v3",
    ),
    "op_sel_destination": ("v_fma_f16 v2, v3, v4, v5 op_sel:[0,0,0,1]", 1, "v_add_u32 v5, v2, v3"),
    "mask_to_vector": ("v_cmp_eq_u32 s[8:9], v2, v3", 2, "v_cndmask_b32 v4, v2, v3, s[8:9]"),
    "vcc_to_vector": ("v_cmp_eq_u32 vcc, v2, v3", 2, "v_cndmask_b32 v4, v2, v3, vcc"),
    "scalar_to_vector": ("v_readfirstlane_b32 s8, v2", 2, "v_add_u32 v4, s8, v3"),
    "readlane_source": ("v_mov_b32 v2, 1", 1, "v_readlane_b32 s8, v2, 3"),
    "readfirstlane_source": ("v_mov_b32 v2, 1", 1, "v_readfirstlane_b32 s8, v2"),
    "exec_to_readlane": (_COMPARE_EXEC, 4, "v_readlane_b32 s8, v3, 0"),
    "exec_to_writelane": (_COMPARE_EXEC, 4, "v_writelane_b32 v4, s10, 0"),
    "lane_select": ("v_readfirstlane_b32 s8, v2", 4, "v_readlane_b32 s9, v3, s8"),
    "scalar_to_memory": ("v_readfirstlane_b32 s8, v2", 5, "buffer_load_dword v4, v1, s[12:15], s8 offen"),
    "dpp_source": ("v_mov_b32 v2, v3", 2, "v_mov_b32_dpp v4, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"),
    "exec_to_dpp": (_COMPARE_EXEC, 5, "v_mov_b32_dpp v4, v5 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"),
    "div_fmas": ("v_cmp_eq_u32 vcc, v2, v3", 4, "v_div_fmas_f32 v4, v2, v3, v5"),
    "div_scale_to_fmas": ("v_div_scale_f32 v2, vcc, v3, v3, v3", 4, "v_div_fmas_f32 v4, v5, v6, v7"),
    "vccz": ("v_cmp_eq_u32 vcc, v2, v3", 5, "v_add_u32 v4, src_vccz, v3"),
    "setreg_getreg": ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s8", 2, "s_getreg_b32 s9, hwreg(HW_REG_MODE)"),
    "setreg_setreg": ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s8", 2, "s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s9"),
    "m0_to_add_tid": ("s_mov_b32 m0, 0", 1, "ds_read_addtid_b32 v4"),
    "m0_to_movrel": ("s_mov_b32 m0, 0", 1, "s_movrels_b32 s9, s8"),
    "m0_to_lds_load": ("s_mov_b32 m0, 0", 1, "buffer_load_dword v1, s[12:15], 0 offen lds"),
    "m0_to_message": ("s_mov_b32 m0, 0", 1, "s_sendmsg sendmsg(MSG_INTERRUPT)"),
    "exec_to_mfma": (_COMPARE_EXEC, 4, f"{_MFMA16} a[0:3], {_AB}, a[0:3]"),
    "vector_to_mfma": ("v_mov_b32 v2, 1", 2, f"{_MFMA16} a[0:3], {_AB}, a[0:3]"),
    "vector_to_accumulator": ("v_accvgpr_write_b32 a2, v6", 2, f"{_MFMA16} a[0:3], {_AB}, a[0:3]"),
    "store_data": ("global_store_dwordx4 v1, v[4:7], s[6:7]", 2, "v_mov_b32 v5, 1"),
    "buffer_store_data": ("buffer_store_dwordx3 v[4:6], v1, s[12:15], 0 offen", 2, "v_mov_b32 v5, 1"),
    "f64_fma": (
        "v_mfma_f64_4x4x4_4b_f64 a[0:1], v[2:3], v[4:5], a[0:1]",
        2,
        "v_fma_f64 v[8:9], v[10:11], v[10:11], v[10:11]",
    ),
    "dot_read": ("v_dot4_i32_i8 v2, v3, v4, v5", 3, "v_add_u32 v6, v2, v3"),
    "dot_overwritten": ("v_dot4_i32_i8 v2, v3, v4, v5", 3, "v_mov_b32 v2, 0"),
    "dot_to_factor": ("v_dot4_i32_i8 v2, v3, v4, v5", 3, "v_dot4_i32_i8 v6, v2, v4, v5"),
    "mfma_to_vector": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "v_add_f32 v12, v10, v2"),
    "mfma_to_accvgpr_read": (f"{_MFMA16} a[0:3], {_AB}, 0", 7, "v_accvgpr_read_b32 v8, a3"),
    "mfma_to_store": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "global_store_dword v1, v9, s[6:7]"),
    "mfma_to_address": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "global_load_dword v12, v8, s[4:5]"),
    "mfma_to_lds": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "ds_write_b32 v1, v11"),
    "mfma_overwritten": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "v_mov_b32 v8, 0"),
    "mfma_overwritten_by_load": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, "global_load_dword v8, v1, s[4:5]"),
    "mfma_to_factor": (f"{_MFMA16} v[8:11], {_AB}, 0", 7, f"{_MFMA16} v[12:15], v[10:11], v[4:5], 0"),
    "mfma_to_other_accumulator": (f"{_MFMA16} v[8:11], {_AB}, 0", 5, f"{_MFMA16} v[10:13], {_AB}, v[10:13]"),
    "mfma_accumulator_overwritten": (f"{_MFMA16} v[8:11], {_AB}, v[12:15]", 3, "v_mov_b32 v13, 0"),
    "mfma32_to_vector": (f"{_MFMA32} v[8:23], {_AB}, 0", 11, "v_add_f32 v24, v23, v2"),
    "mfma32_to_other_accumulator": (f"{_MFMA32} v[8:23], {_AB}, 0", 9, f"{_MFMA16} v[8:11], {_AB}, v[8:11]"),
    "mfma32_accumulator_overwritten": (f"{_MFMA32} a[16:31], {_AB}, a[0:15]", 7, "v_accvgpr_write_b32 a0, v2"),
    "mfma4_to_vector": (f"{_MFMA4} v[8:11], {_AB}, 0", 5, "v_add_f32 v12, v10, v2"),
    "mfma4_to_accumulator": (f"{_MFMA4} v[8:11], {_AB}, 0", 2, f"{_MFMA4} v[8:11], {_AB}, v[8:11]"),
    "mfma4_to_other_accumulator": (f"{_MFMA4} v[8:11], {_AB}, 0", 3, f"{_MFMA4} v[10:13], {_AB}, v[10:13]"),
    "mfma4_accumulator_overwritten": (f"{_MFMA4} v[8:11], {_AB}, v[12:15]", 1, "v_mov_b32 v13, 0"),
    "mfma64_to_vector": (f"{_MFMA64} v[8:39], {_AB}, 0", 19, "v_add_f32 v5, v39, v2"),
    "mfma64_overwritten": (f"{_MFMA64} a[0:31], {_AB}, a[0:31]", 19, "v_accvgpr_write_b32 a31, v2"),
    "f32_mfma_to_vector": ("v_mfma_f32_16x16x4_f32 v[8:11], v2, v4, 0", 10, "v_add_f32 v12, v10, v2"),
    "f32_mfma_to_factor": (
        "v_mfma_f32_16x16x4_f32 v[8:11], v2, v4, 0",
        10,
        "v_mfma_f32_16x16x4_f32 v[12:15], v10, v4, 0",
    ),
    "f32_mfma_to_other_accumulator": (
        "v_mfma_f32_16x16x4_f32 v[8:11], v2, v4, 0",
        8,
        "v_mfma_f32_16x16x4_f32 v[10:13], v2, v4, v[10:13]",
    ),
    "f32_mfma32_to_vector": ("v_mfma_f32_32x32x2_f32 v[8:23], v2, v4, 0", 18, "v_add_f32 v24, v10, v2"),
    "f64_mfma4_to_vector": ("v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], 0", 6, "v_add_u32 v12, v9, v2"),
    "f64_mfma4_to_store": (
        "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], 0",
        9,
        "global_store_dword v1, v9, s[6:7]",
    ),
    "f64_mfma4_to_factor": (
        "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], 0",
        6,
        "v_mfma_f64_4x4x4_4b_f64 v[12:13], v[8:9], v[4:5], 0",
    ),
    "f64_mfma4_to_accumulator": (
        "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], 0",
        4,
        "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], v[8:9]",
    ),
    "f64_mfma16_to_vector": ("v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], 0", 11, "v_add_u32 v16, v9, v2"),
    "f64_mfma16_to_store": (
        "v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], 0",
        18,
        "global_store_dword v1, v9, s[6:7]",
    ),
    "f64_mfma16_to_other_accumulator": (
        "v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], 0",
        9,
        "v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], v[8:9]",
    ),
    "smfmac_to_vector": ("v_smfmac_f32_16x16x32_f16 v[8:11], v[2:3], v[4:7], v12", 7, "v_add_f32 v13, v10, v2"),
    "mfma_to_smfmac_index": (
        f"{_MFMA16} v[8:11], {_AB}, 0",
        7,
        "v_smfmac_f32_16x16x32_f16 v[16:19], v[2:3], v[4:7], v8",
    ),
}


def _nops(count: int) -> str:
    lines = []
    while count:
        lines.append(f"s_nop {min(count, 16) - 1}")
        count -= min(count, 16)
    return "\n".join(lines)


def _text(earlier: str, states: int, later: str, mark: str = "") -> str:
    return f"{earlier}\n{_nops(states)}\n{later} {mark}"


CASES = [
    Case(
        f"hazard_{name}",
        "hazard",
        _text(earlier, states - 1, later, MARK),
        _text(earlier, states, later),
        rf": {states} wait states? must come between, there (is|are) {states - 1}$",
    )
    for name, (earlier, states, later) in PAIRS.items()
]
