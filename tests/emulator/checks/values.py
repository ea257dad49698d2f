# SPDX-License-Identifier: MIT
"""Planted uses of values that nothing was written to: registers and LDS."""

from __future__ import annotations

from tests.emulator.checks.assembly import MARK, Case, unmarked

_READ_STORE = "\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]"


def _defined(name: str, define: str, use: str, message: str, lane: int | None = None) -> Case:
    """Without ``define`` it is a bug, at the last line of ``use`` unless it marks another."""
    marked = use if MARK in use else f"{use} {MARK}"
    return Case(name, "uninitialised", marked, f"{define}\n{unmarked(use)}", message, lane=lane)


REGISTERS = [
    _defined("vector_address", "v_mov_b32 v40, 0", "global_load_dword v2, v40, s[4:5]", "^the address is undefined$"),
    _defined(
        "scalar_address", "s_mov_b64 s[30:31], s[4:5]", "s_load_dword s8, s[30:31], 0x0", "^the address is undefined$"
    ),
    _defined("lds_address", "v_mov_b32 v40, 0", "ds_read_b32 v2, v40", "^the address is undefined$"),
    _defined(
        "buffer_resource",
        "s_mov_b64 s[28:29], 0\ns_mov_b64 s[30:31], 0",
        "buffer_load_dword v2, v1, s[28:31], 0 offen",
        "^the address is undefined$",
    ),
    _defined(
        "stored_value",
        "v_mov_b32 v40, 0",
        "global_store_dword v1, v40, s[6:7]",
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "stored_sum",
        "v_mov_b32 v40, 0",
        "v_add_u32 v2, v40, v0\nglobal_store_dword v1, v2, s[6:7]",
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "stored_wide",
        "v_mov_b32 v34, 0\nv_mov_b32 v35, 0",
        "v_mov_b32 v32, 0\nv_mov_b32 v33, 0\nglobal_store_dwordx4 v1, v[32:35], s[6:7]",
        "^what is stored",
    ),
    _defined(
        "atomic_operand",
        "v_mov_b32 v40, 0",
        "global_atomic_add v1, v40, s[6:7]",
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "one_lane",
        "v_mov_b32 v40, 0",
        "s_mov_b64 exec, 0x7fff\nv_mov_b32 v40, 0\ns_mov_b64 exec, 0xffff\nglobal_store_dword v1, v40, s[6:7]",
        "^what is stored to memory is undefined; 1 lane$",
        lane=15,
    ),
    _defined(
        "scalar_branch",
        "s_mov_b32 s30, 0",
        "s_cmp_eq_u32 s30, 0\ns_cbranch_scc1 .Ldone_{kernel}",
        "^what the branch depends on",
    ),
    _defined(
        "vector_branch",
        "v_mov_b32 v40, 0",
        "v_cmp_lt_u32 vcc, 5, v40\ns_cbranch_vccnz .Ldone_{kernel}",
        "^what the branch depends on",
    ),
    _defined(
        "matrix_factor",
        "v_mov_b32 v40, 0\nv_mov_b32 v41, 0\ns_nop 1",
        "v_mfma_f32_16x16x16_f16 v[4:7], v[40:41], v[2:3], 0\ns_nop 6\nglobal_store_dword v1, v5, s[6:7]",
        "^what is stored",
    ),
    _defined(
        "agpr",
        "v_accvgpr_write_b32 a32, v2",
        "v_accvgpr_read_b32 v2, a32\nglobal_store_dword v1, v2, s[6:7]",
        "^what is stored",
    ),
    _defined(
        "divergence",
        "v_mov_b32 v40, 0",
        "v_cmp_lt_u32 vcc, 5, v40\ns_and_saveexec_b64 s[8:9], vcc\ns_cbranch_execz .Ldone_{kernel}",
        "^what the branch depends on",
    ),
]

MEMORY = [
    _defined(
        "lds_never_written",
        "ds_write_b32 v1, v0",
        "ds_read_b32 v2, v1" + _READ_STORE,
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "lds_counted_from_nothing",
        "ds_write_b32 v1, v3",
        "ds_add_u32 v1, v0\nds_read_b32 v2, v1" + _READ_STORE,
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "lds_exchanged",
        "ds_wrxchg_rtn_b32 v4, v1, v0",
        "ds_read_b32 v2, v1" + _READ_STORE,
        "^what is stored to memory is undefined$",
    ),
    _defined(
        "lds_partly_written",
        "ds_write_b64 v3, v[4:5] offset:8",
        "ds_write_b64 v3, v[4:5]\nds_read_b128 v[8:11], v3\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v10, s[6:7]",
        "^what is stored",
    ),
    _defined(
        "lds_as_index",
        "ds_write_b32 v1, v3",
        "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v4, v2, s[4:5]",
        "^the address is undefined$",
    ),
    _defined(
        "scratch_never_written",
        "scratch_store_dword off, v0, off offset:8",
        "scratch_load_dword v2, off, off offset:8\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v2, s[6:7]",
        "^what is stored",
    ),
]

CASES = [*REGISTERS, *MEMORY]
