# SPDX-License-Identifier: MIT
"""Planted races in LDS and in global memory, and divergent barriers. Workgroups have up to two waves, grids two
workgroups."""

from __future__ import annotations

from tests.emulator.checks.assembly import Case, replaced

_SYNC = "s_waitcnt lgkmcnt(0)\ns_barrier"


def _waves(first: str, between: str, second: str) -> str:
    """Wave 0 does ``first``, then both ``between``, then wave 1 ``second``."""
    return f"""
        s_cmp_eq_u32 s3, 0
        s_cbranch_scc0 .Lbetween_{{kernel}}
        {first}
        .Lbetween_{{kernel}}:
        {between}
        s_cmp_eq_u32 s3, 1
        s_cbranch_scc0 .Ldone_{{kernel}}
        {second}
    """


def _lds(
    name: str, first: str, second: str, message: str, wrong: str = "", right: str = _SYNC, lane: int | None = 0
) -> Case:
    return Case(
        name,
        "lds-race",
        _waves(first, wrong, second + " // !"),
        _waves(first, right, second),
        message,
        threads=128,
        lane=lane,
        wave=1,
    )


_OWN_LOAD = "s_mov_b32 m0, {base}\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]"
LDS = [
    _lds("read_after_write", "ds_write_b32 v1, v0", "ds_read_b32 v2, v1", "^read of LDS byte 0, which wave 0 wrote"),
    _lds("write_after_read", "ds_read_b32 v2, v1", "ds_write_b32 v1, v0", "^write of LDS byte 0, which wave 0 read"),
    _lds(
        "write_after_write", "ds_write_b32 v1, v0", "ds_write_b32 v1, v0", "^write of LDS byte 0, which wave 0 wrote"
    ),
    _lds(
        "one_dword",
        "ds_write_b32 v1, v0",
        "v_mov_b32 v2, 40\nds_read_b32 v3, v2",
        "^read of LDS byte 40, which wave 0 wrote",
    ),
    _lds(
        "wide_read",
        "ds_write_b32 v1, v0 offset:12",
        "v_mov_b32 v2, 0\nds_read_b128 v[4:7], v2",
        "^read of LDS byte 12, ",
    ),
    _lds(
        "write_not_waited_for",
        "ds_write_b32 v1, v0",
        "ds_read_b32 v2, v1",
        "^read of LDS byte 0, which wave 0 wrote",
        wrong="s_barrier",
    ),
    _lds(
        "write_waited_for_in_part",
        "ds_write_b32 v1, v0\nds_write_b32 v1, v0 offset:1024",
        "ds_read_b32 v2, v1 offset:1024",
        "^read of LDS byte 1024, which wave 0 wrote",
        wrong="s_waitcnt lgkmcnt(1)\ns_barrier",
    ),
    _lds(
        "read_not_waited_for",
        "ds_read_b32 v2, v1",
        "ds_write_b32 v1, v0",
        "^write of LDS byte 0, which wave 0 read",
        wrong="s_barrier",
    ),
    _lds("atomic_and_write", "ds_add_u32 v1, v3", "ds_write_b32 v1, v0", "^write of LDS byte 0, which wave 0 wrote"),
    _lds(
        "through_flat",
        "ds_write_b32 v1, v0",
        "s_mov_b64 s[8:9], src_shared_base\nv_mov_b32 v4, 0\nv_mov_b32 v5, s9\nflat_load_dword v6, v[4:5]",
        "^read of LDS byte 0, which wave 0 wrote",
    ),
    # Sixteen lanes read one row, and sixteen one column: who reads what another lane reads is not looked at again.
    _lds(
        "row_of_a_tile",
        "v_mov_b32 v2, 40\nds_write_b32 v2, v0",
        "v_and_b32 v2, 60, v1\nds_read_b32 v3, v2",
        "^read of LDS byte 40, which wave 0 wrote",
        lane=10,
    ),
    _lds(
        "column_of_a_tile",
        "v_mov_b32 v2, 0xcc\nds_write_b32 v2, v0",
        "v_and_b32 v2, 0xc0, v1\nds_read_b128 v[4:7], v2",
        "^read of LDS byte 204, which wave 0 wrote",
        lane=48,
    ),
    replaced(
        "second_barrier",
        "lds-race",
        f"""
        v_lshlrev_b32 v2, 2, v0
        v_xor_b32 v3, 0x100, v2
        ds_write_b32 v2, v0
        {_SYNC}
        ds_read_b32 v4, v3
        s_waitcnt lgkmcnt(0)
        {{x}}
        s_cmp_eq_u32 s3, 1
        s_cbranch_scc0 .Ldone_{{kernel}}
        ds_write_b32 v2, v4 // !
        """,
        "",
        "s_barrier",
        "^write of LDS byte 256, which wave 0 read",
        threads=128,
        wave=1,
    ),
    replaced(
        "atomics_and_writes",
        "lds-race",
        "v_mov_b32 v2, 0\n{x}",
        "ds_write_b32 v2, v0 // !",
        "ds_add_u32 v2, v0",
        "^write of LDS byte 0, which wave 0 wrote",
        threads=128,
    ),
    replaced(
        "same_value",
        "lds-race",
        "ds_write_b32 v1, {x} // !",
        "v0",
        "v1",
        "^write of LDS byte 0, which wave 0 wrote",
        threads=128,
    ),
    replaced(
        "bytes",
        "lds-race",
        "v_mov_b32 v2, {x}\nv_mov_b32 v3, s3\nds_write_b8 v2, v3 // !",
        "7",
        "s3",
        "^write of LDS byte 7, which wave 0 wrote",
        threads=128,
    ),
    replaced(
        "own_load",
        "lds-race",
        _OWN_LOAD.format(base=0) + "\n{x}\nds_read_b32 v2, v1 // !",
        "s_waitcnt lgkmcnt(0)",
        "s_waitcnt vmcnt(0)",
        r"own load from memory to it is under way; s_waitcnt vmcnt\(0\)",
    ),
    replaced(
        "own_load_of_two",
        "lds-race",
        _OWN_LOAD.format(base=0)
        + "\n"
        + _OWN_LOAD.format(base=256)
        + "\ns_waitcnt vmcnt({x})\nds_read_b32 v2, v1 // !",
        "2",
        "1",
        r"own load from memory to it is under way; s_waitcnt vmcnt\(1\)",
    ),
    _lds(
        "others_load",
        _OWN_LOAD.format(base=0),
        "ds_read_b32 v2, v1",
        "^read of LDS byte 0, which wave 0 wrote",
        wrong=_SYNC,
        right="s_waitcnt vmcnt(0)\ns_barrier",
    ),
]

BARRIER = [
    replaced(
        "half_of_the_lanes",
        "barrier",
        "s_mov_b64 exec, 0xffffffff\nglobal_store_dword v1, v0, s[6:7]\n{x}s_barrier // !\ns_mov_b64 exec, -1\n"
        "global_store_dword v1, v0, s[6:7]",
        "",
        "s_mov_b64 exec, -1\n",
        r"^the barrier was run by 32 lanes \(0 to 31\) of the wave; 32 lanes \(32 to 63\) skipped it and went on$",
        lane=32,
    ),
    replaced(
        "two_halves",
        "barrier",
        "s_mov_b64 exec, {x}\ns_barrier // !\ns_not_b64 exec, exec\ns_barrier\ns_mov_b64 exec, -1",
        "0x55555555",
        "-1",
        "^the barrier was run by 16 lanes",
        lane=1,
    ),
    # Lanes that do nothing more have left: with them, a barrier of the others is fine.
    replaced(
        "left",
        "barrier",
        "s_mov_b64 exec, 0xff\ns_barrier // !\ns_mov_b64 exec, {x}\nglobal_store_dword v1, v0, s[6:7]",
        "0x1ff",
        "0x7f",
        "1 |lane 8 skipped",
        lane=8,
    ),
]

# Never ends, so that it is no part of CASES: wave 0 waits for what wave 1 would do behind the barrier.
DEADLOCK = replaced(
    "deadlock",
    "barrier",
    """s_cmp_eq_u32 s3, 1
       s_cbranch_scc1 .Lwait_{kernel}
       ds_write_b32 v3, v3
       .Lagain_{kernel}:
       ds_read_b32 v2, v3
       s_waitcnt lgkmcnt(0)
       v_readfirstlane_b32 s8, v2
       {x}
       s_cbranch_scc1 .Lagain_{kernel}
       .Lwait_{kernel}:
       s_barrier // !""",
    "s_cmp_eq_u32 s8, s8",
    "s_cmp_lg_u32 s8, s8",
    r"^the wave has run \d+ instructions and does not end; 1 wave waits for it at a barrier$",
    wave=0,
    threads=128,
)

_OF_GROUP = (  # 64 dwords, each group its own values
    "s_mul_i32 s8, s2, {x}\nv_add_u32 v2, s8, v1\nv_add_u32 v3, s2, v0\nglobal_store_dword v2, v3, s[6:7] // !"
)


def _groups(first: str, second: str) -> str:
    return f"""
        s_cmp_eq_u32 s2, 0
        s_cbranch_scc0 .Lsecond_{{kernel}}
        {first}
        s_endpgm
        .Lsecond_{{kernel}}:
        {second}
    """


_STORE = "global_store_dword v1, v0, s[6:7]"
_RELEASE = "s_waitcnt vmcnt(0)\nbuffer_wbl2 sc1\ns_waitcnt vmcnt(0)\nglobal_atomic_add v2, v3, s[6:7] offset:1020 sc1"
_ACQUIRE = "global_atomic_add v4, v2, v3, s[6:7] offset:1020 sc0 sc1\ns_waitcnt vmcnt(0)\nbuffer_inv sc1"


def _race(
    name: str, first: str, second: str, message: str, right_first: str, right_second: str, lane: int | None = 0
) -> Case:
    return Case(
        name,
        "global-race",
        _groups(first, second),
        _groups(right_first, right_second),
        message,
        group=1,
        groups=2,
        lane=lane,
    )


_MEET = "global_atomic_add v4, v2, v3, s[6:7] offset:1020 sc0 sc1"
_READ = "global_load_dword v5, v1, s[6:7]"
GLOBAL = [
    replaced(
        "groups_write",
        "global-race",
        _OF_GROUP,
        "0",
        "256",
        r"^write at 0x\w+, which workgroup \(0,0,0\) wrote in the same",
        groups=2,
        group=1,
        lane=0,
    ),
    replaced(
        "groups_write_one_place",
        "global-race",
        "v_mov_b32 v2, 0\nv_mov_b32 v3, {x}\nglobal_store_dword v2, v3, s[6:7] // !",
        "s2",
        "7",  # the same value: whoever comes last changes nothing
        "^write at",
        groups=2,
        group=1,
    ),
    replaced("groups_overlap", "global-race", _OF_GROUP, "252", "256", "^write at", groups=2, group=1, lane=0),
    # Four rows of sixteen dwords, and seven dwords: neighbours are looked at together, and the rest of them is, too.
    replaced(
        "groups_rows_overlap",
        "global-race",
        "v_and_b32 v2, 0xc0, v1\nv_lshlrev_b32 v2, 1, v2\nv_and_b32 v3, 60, v1\nv_add_u32 v2, v2, v3\n"
        "s_mul_i32 s8, s2, {x}\nv_add_u32 v2, s8, v2\nv_add_u32 v3, s2, v0\n"
        "global_store_dword v2, v3, s[6:7] // !",
        "60",
        "64",
        "^write at",
        groups=2,
        group=1,
        lane=0,
    ),
    replaced(
        "groups_few_overlap",
        "global-race",
        "s_mov_b64 exec, 0x7f\n" + _OF_GROUP,
        "24",
        "28",
        "^write at",
        groups=2,
        group=1,
        lane=0,
    ),
    _race(
        "group_reads_row",
        "v_mov_b32 v7, 40\nglobal_store_dword v7, v0, s[6:7]",
        "v_and_b32 v5, 60, v1\nglobal_load_dword v6, v5, s[6:7] // !",
        r"^read at 0x\w+, which workgroup \(0,0,0\) wrote",
        f"v_mov_b32 v7, 40\nglobal_store_dword v7, v0, s[6:7]\n{_RELEASE}",
        f"{_ACQUIRE}\nv_and_b32 v5, 60, v1\nglobal_load_dword v6, v5, s[6:7]",
        lane=10,
    ),
    _race(
        "group_reads",
        _STORE,
        _READ + " // !",
        r"^read at 0x\w+, which workgroup \(0,0,0\) wrote",
        f"{_STORE}\n{_RELEASE}",
        f"{_ACQUIRE}\n{_READ}",
    ),
    _race(
        "group_overwrites",
        _READ,
        _STORE + " // !",
        r"^write at 0x\w+, which workgroup \(0,0,0\) read",
        f"{_READ}\n{_RELEASE}",
        f"{_ACQUIRE}\n{_STORE}",
    ),
    _race(
        "no_acquire",
        f"{_STORE}\n{_RELEASE}",
        _READ + " // !",
        "^read at",
        f"{_STORE}\n{_RELEASE}",
        f"{_ACQUIRE}\n{_READ}",
    ),
    _race(
        "no_release", _STORE, f"{_ACQUIRE}\n{_READ} // !", "^read at", f"{_STORE}\n{_RELEASE}", f"{_ACQUIRE}\n{_READ}"
    ),
    _race(
        "scalar_read",
        _STORE,
        "s_load_dword s8, s[6:7], 0x8 // !",
        r"^read at 0x\w+, which workgroup \(0,0,0\) wrote",
        f"{_STORE}\n{_RELEASE}",
        f"{_ACQUIRE}\ns_load_dword s8, s[6:7], 0x8",
        lane=-1,
    ),
    _race(
        "atomic_and_store",
        "global_atomic_add v1, v0, s[6:7]",
        _STORE + " // !",
        r"^write at 0x\w+, which workgroup",
        "global_atomic_add v1, v0, s[6:7]",
        "global_atomic_add v1, v0, s[6:7]",
    ),
    _race(  # an atomic alone orders nothing
        "relaxed_atomics",
        f"{_STORE}\n{_MEET}",
        f"{_MEET}\ns_waitcnt vmcnt(0)\n{_READ} // !",
        "^read at",
        f"{_STORE}\n{_RELEASE}",
        f"{_ACQUIRE}\n{_READ}",
    ),
    _race(
        "atomic_and_read",
        "global_atomic_add v1, v0, s[6:7]",
        _READ + " // !",
        r"^read at",
        "global_atomic_add v1, v0, s[6:7]",
        _READ + " sc1",
    ),
    replaced(
        "groups_bytes",
        "global-race",
        "v_mov_b32 v2, {x}\nv_mov_b32 v3, s2\nglobal_store_byte v2, v3, s[6:7] // !",
        "5",
        "s2",
        "^write at",
        groups=2,
        group=1,
    ),
]

CASES = [*LDS, *BARRIER, *GLOBAL]
