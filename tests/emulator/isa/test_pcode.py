# SPDX-License-Identifier: MIT
"""The oracle by itself: every program runs, and many give what was worked out by hand, by NumPy or by Python."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.isa import evaluate, fast, floats, opcodes
from tests.emulator.isa.arithmetic import two_over_pi
from tests.emulator.isa.floats import BF8, BF16, F16, F32, F64, FP8
from tests.emulator.isa.pcode import compiled

pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.str_pcode")

# Programs about the program counter, hardware registers or indexed registers: another test drives these.
_MACHINE = {"s_call_b64", "s_cbranch_i_fork", "s_getpc_b64", "s_swappc_b64", "s_cbranch_g_fork", "s_getreg_b32",
            "s_movreld_b32", "s_movreld_b64", "s_movrels_b32", "s_movrels_b64", "s_setreg_b32",
            "s_setreg_imm32_b32", "s_set_gpr_idx_on", "s_setpc_b64", "s_rfe_b64"}
_ALU = ("SOP1", "SOP2", "SOPK", "SOPC", "VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOPC")


def f32(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def f64(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def f16(number: float) -> int:
    return int(np.float16(number).view(np.uint16))


def alu(name: str, *sources: int, width: int = 32, out: int = 32, form: str = "", mode: int = evaluate.MODE,
        **more: tuple[str, int, int]) -> int:
    forms = [form] if form else opcodes.formats(name)
    program = opcodes.instructions()[name, forms[0]].program
    names = {f"S{i}": ("B", width, [s]) for i, s in enumerate(sources)}
    names.setdefault("D0", ("B", 32, [0]))
    env = evaluate.run(program, mode, **{**names, **more})
    return evaluate.result(env, "D0", out)[0]


def test_every_program_compiles() -> None:
    programs = opcodes.instructions()
    assert len(programs) > 1200
    for instruction in programs.values():
        compiled(instruction.program)


def test_every_alu_program_runs() -> None:
    rng = np.random.default_rng(5)
    ran = 0
    for instruction in opcodes.of_format(*_ALU):
        if instruction.name in _MACHINE:
            continue
        wide = {"S2": ("B", 128, [int(x) << 70 | 5 for x in rng.integers(0, 2**32, 64)])}
        names = {f"S{i}": ("B", 64, rng.integers(0, 2**64, 64, dtype=np.uint64)) for i in range(3)}
        names |= {"D0": ("B", 32, rng.integers(0, 2**32, 64)), "SCC": ("U", 1, [1]), "M0": ("U", 32, [0]),
                  "SIMM32": ("B", 32, [f32(1.5)]), "SIMM16": ("B", 16, [f16(1.5)]), "VCC": ("U", 64, [5] * 64),
                  "EXEC": ("U", 64, [7] * 64)}
        if instruction.name == "v_mqsad_u32_u8":
            names |= wide
        environment = evaluate.environment(
            {k: evaluate.value(v[0], v[1], evaluate._exact(v[2])) for k, v in names.items()}, 64)
        environment.registers = lambda lane, index: evaluate.value("B", 32, [9])
        environment.set_register = lambda lane, index, found: None
        compiled(instruction.program).run(environment)
        ran += 1
    assert ran > 780


NAN, SNAN, INF = f32(math.nan), 0x7F800001, f32(math.inf)
MINUS_ZERO = 0x80000000


@pytest.mark.parametrize(("name", "sources", "expected"), [
    ("v_add_f32", (f32(1.5), f32(2.25)), f32(3.75)),
    ("v_add_f32", (f32(3.4e38), f32(3.4e38)), INF),
    ("v_add_f32", (1, 1), 2),
    ("v_add_f32", (INF, INF | MINUS_ZERO), NAN),
    ("v_sub_f32", (f32(1.0), f32(1.0)), 0),
    ("v_subrev_f32", (f32(1.0), f32(3.0)), f32(2.0)),
    ("v_mul_f32", (f32(-0.0), f32(3.0)), MINUS_ZERO),
    ("v_mul_f32", (SNAN, f32(3.0)), SNAN | 0x400000),
    ("v_mul_legacy_f32", (0, INF), 0),
    ("v_min_f32", (f32(0.0), MINUS_ZERO), MINUS_ZERO),
    ("v_max_f32", (f32(0.0), MINUS_ZERO), 0),
    ("v_min_f32", (NAN, f32(2.0)), f32(2.0)),
    ("v_min_f32", (SNAN, f32(2.0)), SNAN | 0x400000),
    ("v_max_f32", (f32(2.0), NAN), f32(2.0)),
    ("v_med3_f32", (f32(3.0), f32(1.0), f32(2.0)), f32(2.0)),
    ("v_min3_f32", (f32(3.0), f32(1.0), f32(2.0)), f32(1.0)),
    ("v_fma_f32", (f32(1 + 2**-12), f32(1 + 2**-12), f32(-1.0)), f32(2**-11 + 2**-24)),
    ("v_ldexp_f32", (f32(1.0), 0xFFFFFF6B), 1),                       # 2**-149
    ("v_ldexp_f32", (f32(2.0**-149), 250), f32(2.0**101)),
    ("v_cvt_i32_f32", (f32(-1.9),), 0xFFFFFFFF),
    ("v_cvt_i32_f32", (f32(3e9),), 0x7FFFFFFF),
    ("v_cvt_u32_f32", (f32(-3.0),), 0),
    ("v_cvt_u32_f32", (NAN,), 0),
    ("v_cvt_f32_u32", (0xFFFFFFFF,), f32(2.0**32)),
    ("v_cvt_f32_i32", (0xFFFFFFFF,), f32(-1.0)),
    ("v_cvt_f16_f32", (f32(65520.0),), f16(math.inf)),
    ("v_cvt_f16_f32", (f32(2.0**-25 * 1.5),), 1),
    ("v_cvt_f32_f16", (0x0001,), f32(2.0**-24)),
    ("v_cvt_f32_ubyte2", (0x00AB0000,), f32(171.0)),
    ("v_cvt_off_f32_i4", (0x8,), f32(-0.5)),
    ("v_rndne_f32", (f32(2.5),), f32(2.0)),
    ("v_rndne_f32", (f32(-0.4),), MINUS_ZERO),
    ("v_ceil_f32", (f32(-0.5),), MINUS_ZERO),
    ("v_floor_f32", (f32(-0.5),), f32(-1.0)),
    ("v_fract_f32", (f32(-2.0**-30),), f32(1 - 2.0**-24)),
    ("v_frexp_exp_i32_f32", (1,), (-148) & 0xFFFFFFFF),
    ("v_frexp_mant_f32", (1,), f32(0.5)),
    ("v_bfrev_b32", (1,), 0x80000000),
    ("v_ffbh_u32", (0x00010000,), 15),
    ("v_ffbh_u32", (0,), 0xFFFFFFFF),
    ("v_ffbh_i32", (0xFFFF0000,), 16),
    ("v_ffbl_b32", (0x00010000,), 16),
    ("v_bfe_u32", (0xABCD1234, 8, 12), 0xD12),
    ("v_bfe_i32", (0xABCD1234, 8, 12), 0xFFFFFD12),
    ("v_bfe_i32", (0xABCD1234, 8, 0), 0),
    ("v_bfi_b32", (0xFF00, 0x1234, 0xABCD), 0x12CD),
    ("v_alignbit_b32", (0x11223344, 0x55667788, 8), 0x44556677),
    ("v_alignbyte_b32", (0x11223344, 0x55667788, 1), 0x44556677),
    ("v_perm_b32", (0x11223344, 0x55667788, 0x070C0D00), 0x1100FF88),
    ("v_perm_b32", (0x11223344, 0xF5667788, 0x09080A0B), 0xFF000000),
    ("v_sad_u8", (0x01020304, 0x04030201, 5), 13),
    ("v_msad_u8", (0x01020304, 0x04030200, 5), 10),
    ("v_sad_hi_u8", (0x01020304, 0x04030201, 5), 0x80005),
    ("v_sad_u16", (0x00010002, 0x00030001, 0), 3),
    ("v_lerp_u8", (0xFF00FF01, 0xFF01FF02, 0x01010001), 0xFF01FF02),
    ("v_mul_i32_i24", (0xFFFFFF, 3), 0xFFFFFFFD),
    ("v_mul_hi_u32_u24", (0xFFFFFF, 0xFFFFFF), 0xFFFF),
    ("v_mad_i32_i24", (0xFFFFFF, 3, 10), 7),
    ("v_mul_hi_i32", (0xFFFFFFFF, 5), 0xFFFFFFFF),
    ("v_mul_hi_u32", (0xFFFFFFFF, 5), 4),
    ("v_lshl_add_u32", (3, 33, 1), 7),
    ("v_xad_u32", (5, 1, 1), 5),
    ("v_bcnt_u32_b32", (0xF0F0, 3), 11),
    ("v_ashrrev_i32", (4, 0x80000000), 0xF8000000),
    ("v_cvt_pk_i16_i32", (0x12345, 0xFFFF0000), 0x80007FFF),
    ("v_cvt_pk_u16_u32", (0x12345, 5), 0x0005FFFF),
    ("v_cvt_pknorm_i16_f32", (f32(1.0), f32(-2.0)), 0x80017FFF),
    ("v_cvt_pknorm_u16_f32", (f32(0.5), NAN), 0x00008000),
    ("v_cvt_pkrtz_f16_f32", (f32(1 + 2**-11 + 2**-12), f32(65535.0)), f16(65504.0) << 16 | f16(1.0)),
    ("v_pack_b32_f16", (0x1111, 0x2222), 0x22221111),
    ("v_pk_add_f16", (f16(1) << 16 | f16(2), f16(3) << 16 | f16(4), 0), f16(4) << 16 | f16(6)),
    ("v_pk_mad_u16", (0x00020003, 0x00040005, 0x00010001), 0x00090010),
    ("v_pk_ashrrev_i16", (0x00010002, 0x80008000, 0), 0xC000E000),
    ("v_dot4_i32_i8", (0xFF020304, 0x02010101, 10), 17),
    ("v_dot8_u32_u4", (0x11111111, 0x87654321, 1), 37),
    ("v_dot2_f32_f16", (f16(1) << 16 | f16(2), f16(3) << 16 | f16(4), f32(1)), f32(12.0)),
    ("v_cubeid_f32", (f32(1), f32(2), f32(-3)), f32(5.0)),
    ("v_cubema_f32", (f32(1), f32(2), f32(-3)), f32(-6.0)),
    ("v_div_fixup_f32", (f32(7.0), f32(0.0), f32(-1.0)), INF | MINUS_ZERO),
    ("v_div_fixup_f32", (f32(7.0), 0, 0), 0xFFC00000),
    ("v_cvt_pk_fp8_f32", (f32(240.0), f32(1.0)), 0x407F),
    ("v_cvt_pk_bf8_f32", (f32(57344.0), f32(-1.0)), 0xC07F),
    ("v_cvt_f32_fp8", (0x80,), NAN),
    ("v_cvt_f32_fp8", (0x01,), f32(2.0**-10)),
    ("v_cvt_f32_bf8", (0x01,), f32(2.0**-17)),
    ("s_bfe_i32", (0xABCD1234, 12 << 16 | 8), 0xFFFFFD12),
    ("s_bcnt1_i32_b32", (0xFF,), 8),
    ("s_flbit_i32_b32", (0x00010000,), 15),
    ("s_quadmask_b32", (0x00F00001,), 0x21),
    ("s_wqm_b32", (0x00400001,), 0x00F0000F),
    ("s_brev_b32", (0x80000001,), 0x80000001),
    ("s_pack_lh_b32_b16", (0x11112222, 0x33334444), 0x33332222),
    ("s_mul_hi_i32", (0x80000000, 2), 0xFFFFFFFF),
    ("s_bfm_b32", (4, 8), 0xF00),
    ("s_absdiff_i32", (3, 10), 7),
    ("s_sext_i32_i8", (0x80,), 0xFFFFFF80),
])
def test_results_worked_out_by_hand(name: str, sources: tuple[int, ...], expected: int) -> None:
    assert f"{alu(name, *sources):#010x}" == f"{expected:#010x}"


@pytest.mark.parametrize(("name", "sources", "expected"), [
    ("v_add_f64", (f64(1.0), f64(2.0**-53)), f64(1.0)),
    ("v_fma_f64", (f64(1 + 2**-30), f64(1 + 2**-30), f64(-1.0)), f64(2**-29 + 2**-60)),
    ("v_ldexp_f64", (f64(1.0), (-1074) & 0xFFFFFFFF), 1),
    ("v_cvt_f64_f32", (f32(1.5),), f64(1.5)),
    ("v_trunc_f64", (f64(-1.5),), f64(-1.0)),
    ("v_fract_f64", (f64(2.25),), f64(0.25)),
    ("v_mad_u64_u32", (0xFFFFFFFF, 0xFFFFFFFF, 5), 0xFFFFFFFE00000006),
    ("v_mad_i64_i32", (0xFFFFFFFF, 2, 5), 3),
    ("v_lshl_add_u64", (1 << 40, 4, 7), (1 << 44) + 7),
    ("v_lshlrev_b64", (4, 1 << 62), 0),
    ("v_ashrrev_i64", (4, 1 << 63), 0xF8 << 56),
    ("v_pk_fma_f32", (f32(2) << 32 | f32(3), f32(4) << 32 | f32(5), f32(1) << 32 | f32(1)), f32(9) << 32 | f32(16)),
    ("v_qsad_pk_u16_u8", (0x0000000504030201, 0x04030201, 0), 0x000D000A_00040000),
    ("v_cvt_pk_f32_fp8", (0x4044,), f32(1.0) << 32 | f32(1.5)),
    ("s_brev_b64", (1,), 1 << 63),
    ("s_bitreplicate_b64_b32", (0b101,), 0b110011),
    ("s_bfe_u64", (0xABCD1234 << 16, 16 << 16 | 24), 0xCD12),
])
def test_results_of_64_bits(name: str, sources: tuple[int, ...], expected: int) -> None:
    assert f"{alu(name, *sources, width=64, out=64):#018x}" == f"{expected:#018x}"


def test_carry_goes_to_the_lane_of_the_mask() -> None:
    program = opcodes.instructions()["v_add_co_u32", "VOP2"].program
    env = evaluate.run(program, S0=("B", 32, [1, 2]), S1=("B", 32, [0xFFFFFFFF] * 2), VCC=("U", 64, [0, 0]),
                       D0=("B", 32, [0, 0]))
    assert evaluate.result(env, "VCC", 64) == [1, 2]
    assert evaluate.result(env) == [0, 1]


def test_compare_class_tells_the_kinds_of_numbers_apart() -> None:
    program = opcodes.instructions()["v_cmp_class_f32", "VOP3"].program
    kinds = [SNAN, NAN, INF | MINUS_ZERO, f32(-1), MINUS_ZERO | 1, MINUS_ZERO, 0, 1, f32(1), INF]
    for i, bits in enumerate(kinds):
        for probe in range(10):
            env = evaluate.run(program, S0=("B", 32, [bits]), S1=("B", 32, [1 << probe]), D0=("B", 64, [0]))
            assert evaluate.result(env, "D0", 64)[0] == (i == probe)


def test_integers_saturate_when_they_are_clamped() -> None:
    program = opcodes.instructions()["v_sub_u32", "VOP2"].program
    env = evaluate.run(program, wide=True, S0=("B", 32, [3, 9]), S1=("B", 32, [5, 2]), D0=("B", 32, [0, 0]))
    assert evaluate.result(env) == [0, 7]


def test_two_over_pi() -> None:
    bits = two_over_pi(1201)
    assert bits >> (1201 - 64) == 0xA2F9836E4E441529          # Payne and Hanek's table starts so
    assert float(Fraction(bits, 1 << 1201)) == 2 / math.pi


def test_rounding_and_denormal_modes() -> None:
    third = (f32(1.0), f32(2.0**-25))
    assert [alu("v_add_f32", *third, mode=evaluate.MODE | r) for r in range(4)] == \
        [f32(1), f32(1) + 1, f32(1), f32(1)]
    assert alu("v_add_f32", 1, 1, mode=0x300) == 0
    assert alu("v_mul_f32", f32(2.0**-126), f32(0.5), mode=0x300 | 0x10) == 0
    assert alu("v_add_f16", 1, 1, mode=0x300 | 0x30) == 0


FORMATS = [F16, BF16, F32, F64]


def _operands(fmt: floats.Format, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << fmt.width, count, dtype=np.uint64, endpoint=False) if fmt.width < 64 else \
        rng.integers(0, 2**64, count, dtype=np.uint64)
    near = rng.integers(fmt.bias - 3, fmt.bias + 4, count, dtype=np.uint64) << np.uint64(fmt.mbits)
    near |= rng.integers(0, 1 << fmt.mbits, count, dtype=np.uint64)
    edges = np.array([0, 1, fmt.largest, fmt.inf, fmt.nan, fmt.inf | 1, 1 << fmt.mbits, (1 << fmt.mbits) - 1,
                      fmt.sign, fmt.sign | 1, fmt.sign | fmt.inf], dtype=np.uint64)
    bits[::3] = near[::3]
    bits[::7] = rng.choice(edges, len(bits[::7]))
    return bits


@pytest.mark.parametrize("fmt", [F16, F32, F64], ids=lambda f: f.name)
def test_numpy_and_exact_arithmetic_agree(fmt: floats.Format) -> None:
    a, b, c = (_operands(fmt, 4000, seed) for seed in (1, 2, 3))
    for name in ("add", "multiply", "divide"):
        exact = getattr(floats, name)
        expected = fast.each(lambda x, y, f=exact: f(fmt, x, y), a, b)
        np.testing.assert_array_equal(getattr(fast, name)(fmt, a, b), expected, err_msg=name)
    np.testing.assert_array_equal(fast.sqrt(fmt, a), fast.each(lambda x: floats.sqrt(fmt, x), a))
    np.testing.assert_array_equal(fast.fma(fmt, a, b, c), fast.each(lambda x, y, z: floats.fma(fmt, x, y, z), a, b, c))
    for other in (f for f in FORMATS if f is not fmt):
        np.testing.assert_array_equal(fast.convert(fmt, other, a),
                                      fast.each(lambda x, o=other: floats.convert(fmt, o, x), a))


@pytest.mark.parametrize("mode", range(4))
def test_exact_arithmetic_is_the_fraction_rounded(mode: int) -> None:
    """Against Python's fractions: the result is the neighbour that the mode asks for."""
    a, b, c = (_operands(F16, 400, seed) for seed in (4, 5, 6))
    for x, y, z in zip(map(int, a), map(int, b), map(int, c), strict=True):
        if any((v & 0x7C00) == 0x7C00 for v in (x, y, z)):
            continue
        exact = Fraction(floats.to_float(F16, x)) * Fraction(floats.to_float(F16, y)) + \
            Fraction(floats.to_float(F16, z))
        found = floats.to_float(F16, floats.fma(F16, x, y, z, mode))
        if math.isinf(found):
            assert abs(exact) >= 65504
        elif mode == floats.UP:
            assert found >= exact
        elif mode == floats.DOWN:
            assert found <= exact
        elif mode == floats.ZERO:
            assert abs(found) <= abs(exact)
        else:
            assert abs(Fraction(found) - exact) <= Fraction(1, 1 << 25) or found == float(np.float16(float(exact)))


@pytest.mark.parametrize(("fmt", "largest", "smallest"), [(FP8, 240.0, 2.0**-10), (BF8, 57344.0, 2.0**-17)])
def test_eight_bit_formats_of_this_machine(fmt: floats.Format, largest: float, smallest: float) -> None:
    numbers = [floats.to_float(fmt, b) for b in range(256)]
    assert math.isnan(numbers[0x80])
    assert sum(map(math.isnan, numbers)) == 1
    assert max(n for n in numbers if not math.isnan(n)) == largest
    assert numbers[1] == smallest
    for bits in range(256):
        assert floats.convert(F32, fmt, floats.convert(fmt, F32, bits)) == bits
