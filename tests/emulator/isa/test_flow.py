# SPDX-License-Identifier: MIT
"""What changes the flow or the state of a wave: branches, calls, forks, hardware registers, indexed scalar registers.

What is right follows from the programs' text by hand ("AMD Instinct MI300" ISA reference, "Program Flow Control").
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa.memory_cases import state_differences
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.wave import EXEC, M0, VCC, Emulator, EmulatorError, Wave, random_wave

pytestmark = pytest.mark.toolchain("rocm")

LOOP = """s_mov_b32 s20, 0
s_mov_b32 s21, 10
1: s_add_u32 s20, s20, s21
s_sub_u32 s21, s21, 1
s_cmp_lg_u32 s21, 0
s_cbranch_scc1 1b"""
FORWARD = "{}\ns_mov_b32 s20, 1\n2: s_mov_b32 s21, 2"
BRANCHES = ["s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz",
            "s_cbranch_execnz", "s_cbranch_cdbgsys", "s_cbranch_cdbguser", "s_cbranch_cdbgsys_or_user",
            "s_cbranch_cdbgsys_and_user"]
LANE_LOOP = """v_mov_b32 v20, 0
s_mov_b64 s[4:5], exec
1: v_add_u32 v20, v20, v8
v_sub_u32 v8, v8, 1
v_cmp_ne_u32 vcc, 0, v8
s_and_b64 exec, exec, vcc
s_cbranch_execnz 1b
s_mov_b64 exec, s[4:5]"""
GET = "s_getpc_b64 s[20:21]\ns_nop 0\ns_getpc_b64 s[22:23]"
SET = "s_getpc_b64 s[20:21]\ns_add_u32 s20, s20, 16\ns_addc_u32 s21, s21, 0\ns_setpc_b64 s[20:21]\ns_mov_b32 s24, 1\n" \
      "s_mov_b32 s25, 2\ns_mov_b32 s26, 3"
CALL = "s_mov_b32 s24, 1\ns_call_b64 s[20:21], 1f\ns_mov_b32 s25, 2\ns_branch 2f\n1: s_mov_b32 s26, 3\n" \
       "s_setpc_b64 s[20:21]\n2: s_nop 0"
SWAP = "s_getpc_b64 s[22:23]\ns_add_u32 s22, s22, 24\ns_addc_u32 s23, s23, 0\ns_swappc_b64 s[20:21], s[22:23]\n" \
       "s_mov_b32 s25, 2\ns_branch 2f\ns_nop 0\ns_mov_b32 s26, 3\ns_setpc_b64 s[20:21]\n2: s_nop 0"
ASTRAY = "s_mov_b64 s[20:21], 4\ns_setpc_b64 s[20:21]"
# Each side of a fork marks its lanes; the side with fewer lanes runs first.
I_FORK = "s_mov_b32 s30, 0\ns_cbranch_i_fork s[40:41], 1f\nv_mov_b32 v20, 1\ns_add_u32 s30, s30, 1\ns_branch 2f\n" \
         "1: v_mov_b32 v20, 2\ns_add_u32 s30, s30, 16\n2: s_cbranch_join s50"
G_FORK = "s_mov_b32 s30, 0\ns_getpc_b64 s[42:43]\ns_add_u32 s42, s42, 28\ns_addc_u32 s43, s43, 0\n" \
         "s_cbranch_g_fork s[40:41], s[42:43]\nv_mov_b32 v20, 1\ns_add_u32 s30, s30, 1\ns_branch 2f\n" \
         "s_nop 0\nv_mov_b32 v20, 2\ns_add_u32 s30, s30, 16\n2: s_cbranch_join s50"
NOTHING = ["s_nop 3", "s_wakeup", "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_setprio 2", "s_icache_inv", "s_incperflevel 1",
           "s_decperflevel 1", "s_ttracedata", "s_sethalt 0", "s_setkill 0", "s_sleep 2", "s_sendmsg 1", "s_trap 3",
           "s_setvskip 0, 0"]
REFUSED = ["s_sethalt 1", "s_setkill 1", "s_sendmsghalt 1", "s_trap 2", "s_setvskip -1, 3", "s_rfe_b64 s[4:5]",
           "s_rfe_restore_b64 s[4:5], s6",
           "s_sendmsg 2", "s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS), 0\ns_getreg_b32 s20, hwreg(HW_REG_TRAPSTS)",
           "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 28, 1), 1", "s_getreg_b32 s20, hwreg(40)"]
ENDS = ["s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done", "s_barrier"]
GETS = {"s_getreg_b32 s20, hwreg(HW_REG_MODE)": 0x3F0, "s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 4)": 0xF,
        "s_getreg_b32 s20, hwreg(HW_REG_MODE, 9, 1)": 1, "s_getreg_b32 s20, hwreg(HW_REG_LDS_ALLOC, 12, 9)": 4,
        "s_getreg_b32 s20, hwreg(HW_REG_XCC_ID)": 0, "s_getreg_b32 s20, hwreg(HW_REG_IB_STS)": 0}
SETS = {"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0xd": 0x3FD, "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s4": 0x3D0,
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 0": 0x1F0}
ROUND = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), {}\nv_add_f32 v20, v8, v9"
MOVES = ["s_movrels_b32 s20, s30", "s_movrels_b64 s[20:21], s[30:31]", "s_movreld_b32 s20, s30",
         "s_movreld_b64 s[20:21], s[30:31]", "s_movreld_b32 s20, 7"]
INDEX = "s_set_gpr_idx_on s4, gpr_idx(SRC0)\ns_set_gpr_idx_idx s5\ns_set_gpr_idx_mode gpr_idx(SRC0,DST)\n" \
        "v_mov_b32 v20, v8\ns_set_gpr_idx_off\nv_mov_b32 v24, v8"
SPECIALS = {"s_mov_b32 s20, src_scc": "scc", "s_mov_b32 s20, src_vccz": "vccz", "s_mov_b32 s20, src_execz": "execz",
            "s_add_u32 s20, src_scc, 0": "scc", "v_readlane_b32 s20, v8, s5\ns_mov_b32 s20, src_vccz": "vccz"}
APERTURES = {"s_mov_b64 s[20:21], src_shared_base": 1 << 48, "s_mov_b64 s[20:21], src_private_base": 2 << 48}
SNIPPETS = Snippets([*SPECIALS, *APERTURES, LOOP, LANE_LOOP, GET, SET, CALL, SWAP, ASTRAY, I_FORK, G_FORK, INDEX,
                     *(FORWARD.format(f"{b} 2f") for b in BRANCHES), *NOTHING, *REFUSED, *GETS, *SETS, *MOVES,
                     *(f"{e}\ns_mov_b32 s20, 1" for e in ENDS), *(ROUND.format(m) for m in range(4))])


def _wave(mask: int = (1 << 64) - 1, lds_bytes: int = 0) -> Wave:
    return random_wave(np.random.default_rng(11), mask, lds_bytes)


def test_loop(emulator: Emulator) -> None:
    after = SNIPPETS.run(LOOP, _wave(), emulator)
    assert (after.sgprs[20], after.sgprs[21], after.scc) == (55, 0, 0)


def test_loop_that_lanes_leave_one_by_one(emulator: Emulator) -> None:
    before = _wave(0xFFFF_0000_FFFF_0001)
    before.vgprs[8] = np.arange(64) % 9 + 1
    after = SNIPPETS.run(LANE_LOOP, before, emulator)
    on = before.exec
    count = before.vgprs[8].astype(np.int64)
    assert np.array_equal(after.vgprs[20][on], (count * (count + 1) // 2)[on])
    assert np.array_equal(after.vgprs[20][~on], before.vgprs[20][~on])
    assert after.pair(EXEC) == before.pair(EXEC)


@pytest.mark.parametrize("branch", BRANCHES)
def test_branches(branch: str, emulator: Emulator) -> None:
    for scc in (0, 1):
        for vcc in (0, 1 << 40):
            for mask in (0, 1 << 63):
                for debug in (0, 1 << 20, 1 << 21, 3 << 20):
                    before = _wave(mask)
                    before.scc, before.status = scc, debug
                    before.set_scalar(VCC, 64, vcc)
                    user, system = bool(debug & 1 << 20), bool(debug & 1 << 21)
                    taken = {"s_branch": True, "s_cbranch_scc0": not scc, "s_cbranch_scc1": bool(scc),
                             "s_cbranch_vccz": not vcc, "s_cbranch_vccnz": bool(vcc), "s_cbranch_execz": not mask,
                             "s_cbranch_execnz": bool(mask), "s_cbranch_cdbgsys": system, "s_cbranch_cdbguser": user,
                             "s_cbranch_cdbgsys_or_user": system or user,
                             "s_cbranch_cdbgsys_and_user": system and user}[branch]
                    right = before.copy()
                    right.sgprs[21] = 2
                    if not taken:
                        right.sgprs[20] = 1
                    after = SNIPPETS.run(FORWARD.format(f"{branch} 2f"), before, emulator)
                    assert state_differences(before, right, after) == [], (scc, vcc, mask, debug)


def test_program_counter(emulator: Emulator) -> None:
    after = SNIPPETS.run(GET, _wave(), emulator)
    assert after.pair(22) - after.pair(20) == 8


def test_jump_by_register(emulator: Emulator) -> None:
    after = SNIPPETS.run(SET, before := _wave(), emulator)
    assert (after.sgprs[24], after.sgprs[25], after.sgprs[26]) == (before.sgprs[24], 2, 3)


def test_jump_to_where_no_instruction_begins_is_refused(emulator: Emulator) -> None:
    with pytest.raises(EmulatorError, match="where no instruction begins"):
        SNIPPETS.run(ASTRAY, _wave(), emulator)


@pytest.mark.parametrize("text", [CALL, SWAP])
def test_calls_return(text: str, emulator: Emulator) -> None:
    after = SNIPPETS.run(text, _wave(), emulator)
    assert (after.sgprs[25], after.sgprs[26]) == (2, 3)


@pytest.mark.parametrize("text", [I_FORK, G_FORK])
@pytest.mark.parametrize("condition", [0, (1 << 64) - 1, 0xFF, ~0xFF & (1 << 64) - 1, 0x5555_5555_5555_5555])
def test_both_sides_of_a_fork_run(text: str, condition: int, emulator: Emulator) -> None:
    mask = 0x0FFF_FFFF_FFFF_FFF0
    before = _wave(mask)
    before.set_scalar(40, 64, condition)
    before.sgprs[50] = 0                       # the fork's depth to which JOIN returns
    after = SNIPPETS.run(text, before, emulator)
    passing = np.array([condition >> lane & 1 for lane in range(64)], dtype=bool)
    right = np.where(before.exec, np.where(passing, 2, 1), before.vgprs[20])
    assert np.array_equal(after.vgprs[20], right)
    sides = 16 * bool(condition & mask) + bool(~condition & mask)
    assert after.sgprs[30] == sides
    # The side that waited is the one that has the lanes in the end: lanes come together by the code that follows.
    both = sides == 17
    larger = condition & mask if (condition & mask).bit_count() > (~condition & mask).bit_count() else ~condition & mask
    assert after.pair(EXEC) == (larger if both else mask)


@pytest.mark.parametrize("text", NOTHING)
def test_no_effect_on_results(text: str, emulator: Emulator) -> None:
    before = _wave()
    assert state_differences(before, before, SNIPPETS.run(text, before, emulator)) == []


@pytest.mark.parametrize("text", REFUSED)
def test_refused_by_name(text: str, emulator: Emulator) -> None:
    with pytest.raises(EmulatorError, match=text.split("\n")[-1].split()[0]):
        SNIPPETS.run(text, _wave(), emulator)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_runs_after_the_end(end: str, emulator: Emulator) -> None:
    before = _wave()
    assert state_differences(before, before, SNIPPETS.run(f"{end}\ns_mov_b32 s20, 1", before, emulator)) == []


@pytest.mark.parametrize(("text", "value"), GETS.items())
def test_hardware_registers(text: str, value: int, emulator: Emulator) -> None:
    after = SNIPPETS.run(text, _wave(lds_bytes=1024), emulator)
    assert after.sgprs[20] == value


@pytest.mark.parametrize(("text", "mode"), SETS.items())
def test_mode_register(text: str, mode: int, emulator: Emulator) -> None:
    before = _wave()
    before.sgprs[4] = 0xFFFFFFFD
    right = before.copy()
    right.mode = mode
    assert state_differences(before, right, SNIPPETS.run(text, before, emulator)) == []


def test_mode_rounds(emulator: Emulator) -> None:
    """One and a quarter of its last place, both signs: nearest even, up, down, to zero."""
    right = {0: (0x3F800000, 0xBF800000), 1: (0x3F800001, 0xBF800000), 2: (0x3F800000, 0xBF800001),
             3: (0x3F800000, 0xBF800000)}
    for mode, (plus, minus) in right.items():
        before = _wave()
        sign = np.where(np.arange(64) % 2, 0x80000000, 0).astype(np.uint32)
        before.vgprs[8], before.vgprs[9] = 0x3F800000 | sign, 0x33000000 | sign
        after = SNIPPETS.run(ROUND.format(mode), before, emulator)
        assert after.vgprs[20][0] == plus
        assert after.vgprs[20][1] == minus


@pytest.mark.parametrize("text", MOVES)
def test_scalar_registers_by_index(text: str, emulator: Emulator) -> None:
    before = _wave()
    before.sgprs[M0] = 6
    right, wide = before.copy(), "b64" in text
    source = 36 if "movrels" in text else 30
    to = 26 if "movreld" in text else 20
    for i in range(2 if wide else 1):
        right.sgprs[to + i] = 7 if text.endswith(" 7") else before.sgprs[source + i]
    assert state_differences(before, right, SNIPPETS.run(text, before, emulator)) == []


def test_index_mode_begins_changes_and_ends(emulator: Emulator) -> None:
    before = _wave()
    before.sgprs[4], before.sgprs[5] = 0x104, 0x302
    right = before.copy()
    right.vgprs[22], right.vgprs[24] = before.vgprs[10], before.vgprs[8]
    right.sgprs[M0] = int(before.sgprs[M0]) & 0xFFFF0F00 | 9 << 12 | 2
    assert state_differences(before, right, SNIPPETS.run(INDEX, before, emulator)) == []


@pytest.mark.parametrize(("text", "what"), SPECIALS.items())
def test_conditions_as_operands(text: str, what: str, emulator: Emulator) -> None:
    for truth in (0, 1):
        before = _wave(0 if what == "execz" and truth else 1)
        before.scc = truth if what == "scc" else 0
        before.set_scalar(VCC, 64, 0 if truth else 1 << 33)
        assert SNIPPETS.run(text, before, emulator).sgprs[20] == truth


@pytest.mark.parametrize(("text", "value"), APERTURES.items())
def test_apertures_as_operands(text: str, value: int, emulator: Emulator) -> None:
    assert SNIPPETS.run(text, _wave(), emulator).pair(20) == value
