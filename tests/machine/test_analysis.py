# SPDX-License-Identifier: MIT
"""Instructions, loops, overlap and warnings on text written by hand: no tool is needed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from backends.machine import difference, document, gfx, overlap, sass, units
from backends.machine.loops import loops
from backends.machine.model import Function, Image, Instruction, Place, Resources
from backends.machine.warnings import warnings

TEXT = """
	.target	sm_90a
	.section	.text._Z4loopPf,"ax",@progbits
_Z4loopPf:
.text._Z4loopPf:
	//## File "/src/a.h", line 7 inlined at "/src/k.cu", line 30
	//## File "/src/k.cu", line 30
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
	//## File "/src/k.cu", line 31
        /*0010*/                   MUFU.EX2 R2, R1 ;
        /*0020*/              @!P0 BRA `(.L_x_3) ;
.L_x_1:
        /*0030*/               @P1 BRA `(.L_x_0) ;
        /*0040*/                   EXIT ;
.L_x_3:
        /*0050*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3], R4 ;
        /*0060*/              @!P0 BRA `(.L_x_3) ;
        /*0070*/                   BRA `(.L_x_1) ;
.L_x_4:
        /*0080*/                   BRA `(.L_x_4);
        /*0090*/                   NOP ;
"""


def code(texts: Sequence[str], unit_of=units.sass) -> tuple[Instruction, ...]:
    """Instructions 16 bytes apart; ``-> 0x20`` at the end is a branch's target."""
    found = []
    for at, text in enumerate(texts):
        text, _, target = text.partition(" -> ")
        guarded = text.startswith("@")
        opcode = text.split()[guarded]
        found.append(Instruction(16 * at, text, opcode, unit_of(opcode), (Place("k.cu", at + 1),),
                                 int(target, 16) if target else None, guarded))
    return tuple(found)


def function(texts: Sequence[str], **facts) -> Function:
    return Function("_Z1kv", "k", "sm_90a", code(texts), 16 * len(texts), Resources(**facts))


def test_sass_is_read_with_places_and_targets():
    (found,) = sass.parse(TEXT).values()
    assert [each.address for each in found] == [0, 16, 32, 48, 64, 80, 96, 112]    # what pads the end is left out
    assert found[0].places == (Place("/src/a.h", 7), Place("/src/k.cu", 30))
    assert found[1].places == (Place("/src/k.cu", 31),) == found[2].places
    assert (found[2].text, found[2].target, found[2].guarded) == ("@!P0 BRA 0x50", 0x50, True)


def test_a_loop_that_polls_out_of_line_is_part_of_the_loop_it_comes_from():
    """By addresses alone, the branch back from 0x70 would look like a loop over 0x30 to 0x70."""
    (found,) = sass.parse(TEXT).values()
    outer, poll = loops(found)
    assert (outer.start, outer.depth, outer.innermost, outer.polls) == (0x10, 1, True, False)
    assert (poll.start, poll.end, poll.depth, poll.polls) == (0x50, 0x70, 2, True)
    assert document.shown([outer, poll]) == [outer]


def test_nested_loops():
    body = code(["MOV R0, R1", "FADD R1, R1, R2", "FMUL R2, R2, R3", "@P0 BRA 0x20 -> 0x20", "@P1 BRA 0x10 -> 0x10",
                 "EXIT"])
    outer, inner = loops(body)
    assert (outer.start, outer.end, outer.innermost) == (0x10, 0x50, False)
    assert (inner.start, inner.end, inner.innermost, inner.depth) == (0x20, 0x40, True, 2)


PRODUCT, WAIT = "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0", "WARPGROUP.DEPBAR.LE gsb0, {}"


def test_exponentials_before_a_wait_run_beside_products_and_those_behind_do_not():
    before = overlap.overlap(code([PRODUCT, PRODUCT, WAIT.format("0x1"), *["MUFU.EX2 R2, R3"] * 6, WAIT.format("0x0")]))
    behind = overlap.overlap(code([PRODUCT, PRODUCT, WAIT.format("0x1"), WAIT.format("0x0"), *["MUFU.EX2 R2, R3"] * 6]))
    assert before
    assert behind
    assert (before.products, before.exponentials, before.beside, before.waits) == (2, 6, 6, ((1, 0), (0, 6)))
    assert (behind.exponentials, behind.beside, behind.waits) == (6, 0, ((1, 0), (0, 0)))
    assert overlap.line(before) == "2 HGMMA n64 | wait wgmma ≤ 1 | 6 MUFU.EX2 | wait wgmma ≤ 0"
    assert "6 of 6 exponentials stand where a product is under way" in overlap.summary(before)


def test_a_product_issued_at_the_end_of_a_loop_is_under_way_at_its_beginning():
    view = overlap.overlap(code([*["MUFU.EX2 R2, R3"] * 4, WAIT.format("0x0"), PRODUCT]))
    assert view
    assert (view.beside, view.waits) == (4, ((0, 4),))


@pytest.mark.parametrize(("texts", "unit_of"), [
    (["HMMA.16816.F32 R4, R8, R12, R4", "MUFU.EX2 R20, R21", "FADD R30, R6, R7", "MUFU.EX2 R22, R23"], units.sass),
    (["v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", "v_exp_f32 v20, v21", "v_accvgpr_read v1, a3",
      "v_exp_f32 v22, v23"], units.gfx),
])
def test_without_groups_a_product_is_under_way_until_its_result_is_touched(texts, unit_of):
    view = overlap.overlap(code(texts, unit_of))
    assert view
    assert (view.exponentials, view.beside, view.waits) == (2, 1, ())


def test_long_orders_are_folded():
    view = overlap.overlap(code([PRODUCT, WAIT.format("0x0")] * 5))
    assert view
    assert overlap.line(view) == "5 × (1 HGMMA n64 | wait wgmma ≤ 0)"
    mixed = overlap.overlap(code(["HMMA.16816.F32 R4, R8, R12, R4", "MUFU.EX2 R20, R21"] * 20))
    assert mixed
    assert overlap.line(mixed) == "20 HMMA among 20 exponentials"


@pytest.mark.parametrize(("opcode", "unit"), [
    ("HGMMA.64x256x16.F32.BF16", "tensor"), ("QMMA.16832.F32.E4M3.E4M3", "tensor"), ("MUFU.EX2", "special"),
    ("F2FP.BF16.F32.PACK_AB", "conversion"), ("UTMALDG.2D", "tma"), ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "wait"),
    ("SYNCS.ARRIVE.TRANS64", "barrier"), ("WARPGROUP.DEPBAR.LE", "wait"), ("LDGSTS.E.BYPASS.128", "global"),
    ("STL.64", "local"), ("UIADD3", "integer"), ("WARPSYNC.ALL", "barrier"), ("NEWOP", "other"),
])
def test_units_of_sass(opcode, unit):
    assert units.sass(opcode) == unit


@pytest.mark.parametrize(("opcode", "unit"), [
    ("v_mfma_f32_32x32x8_f16", "tensor"), ("v_exp_f32", "special"), ("v_cvt_pk_fp8_f32", "conversion"),
    ("ds_read_b128", "shared"), ("ds_bpermute_b32", "cross-lane"), ("buffer_load_dwordx4", "buffer"),
    ("scratch_store_dword", "local"), ("s_waitcnt", "wait"), ("s_barrier", "barrier"), ("s_cbranch_scc1", "branch"),
    ("v_pk_fma_f32", "fp32"), ("v_add_u32", "integer"), ("s_load_dwordx4", "constant"), ("v_accvgpr_write", "move"),
])
def test_units_of_gfx(opcode, unit):
    assert units.gfx(opcode) == unit


def image(*functions: Function, source: str = "", log: str = "") -> Image:
    return Image("k.cu", functions, source=source, log=log)


def kinds(found: Image) -> list[str]:
    return [each.kind for each in warnings(found)]


def test_warnings_tell_what_costs_time_and_nothing_else():
    clean = function([PRODUCT, PRODUCT, PRODUCT, PRODUCT, WAIT.format("0x0"), "EXIT"])
    assert kinds(image(clean, source="wgmma.mma_async")) == []
    serial = function([PRODUCT, WAIT.format("0x0")] * 4)
    assert kinds(image(serial)) == ["serialised"]
    local = function(["STL [R1], R2", "LDL R2, [R1]", "EXIT"])
    (told,) = warnings(image(local))
    assert (told.kind, told.function) == ("local", "k")
    assert "2 accesses" in told.text
    assert "k.cu:1 (1), k.cu:2 (1)" in told.text
    unpacked = function(["F2FP.F16.E4M3.UNPACK_B R2, R3"] * 2 + ["HMMA.16816.F32 R4, R8, R12, R4"])
    assert kinds(image(unpacked)) == ["fp8"]
    plain = function(["FADD R1, R2, R3", "EXIT"])
    assert kinds(image(plain, source="asm(\"mma.sync.aligned…\")")) == ["absent"]
    assert kinds(image(plain, source="x + y")) == []


def test_what_ptxas_says_is_passed_on_for_the_functions_that_are_shown():
    log = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
           "insufficient register resources for the wgmma pipeline in the function '{}'")
    plain = function(["EXIT"])
    (told,) = warnings(image(plain, log=log.format("_Z1kv")))
    assert told.text.endswith("serialized due to insufficient register resources for the wgmma pipeline")
    assert kinds(image(plain, log=log.format("_Z5otherv"))) == []


def test_occupancy_is_a_bound_until_the_launch_is_known():
    """The figures of three steps of attention on an L4, whose launches ask for dynamic shared memory."""
    def of(dynamic: int | None) -> tuple[float, bool]:
        body = Function("_Z1kv", "k", "sm_89", code(["LDS R1, [R2]", "EXIT"]), 32, Resources(
            registers=168, threads=128, dynamic_shared=None))
        found = document.function_document(body, dynamic_shared=dynamic)
        return round(found["occupancy"], 2), found["occupancy_is_bound"]

    assert of(None) == (0.25, True)
    assert [of(dynamic) for dynamic in (45056, 71680, 90112)] == [(0.17, False), (0.08, False), (0.08, False)]


def test_a_difference_leaves_out_registers_and_pairs_functions_by_name():
    old = function(["MOV R0, R1", "FADD R1, R1, R2", "@P0 BRA 0x10 -> 0x10", "EXIT"])
    same = function(["MOV R7, R9", "FADD R4, R4, R5", "@P1 BRA 0x10 -> 0x10", "EXIT"])
    other = function(["MOV R7, R9", "FMUL R4, R4, R5", "@P1 BRA 0x10 -> 0x10", "EXIT"])
    assert difference.diff(old, same) == []
    assert [line for line in difference.diff(old, other) if line[0] in "+-"] == ["-FADD R, R, R", "+FMUL R, R, R"]
    found = difference.document(image(old), image(other))
    assert (len(found["functions"]), found["only_old"], found["only_new"]) == (1, [], [])


def test_the_calls_around_an_address_are_those_whose_ranges_hold_it_innermost_first():
    random = Random(3)
    calls = []
    for number in range(200):
        first = random.randrange(1000)
        calls.append((first, first + random.randrange(60), random.randrange(5), Place("a.h", number)))
    around = gfx._around(calls)
    seen = set()
    for address in range(-1, 1070):
        held = [call for call in calls if call[0] <= address < call[1]]
        assert around(address) == tuple(place for *_, place in sorted(held, key=lambda call: -call[2]))
        seen.add(len(held))
    assert {0, 1, 5} <= seen
    assert gfx._around([])(4) == ()
