# SPDX-License-Identifier: MIT
"""Where the published pseudo-code is loose, silent or not about gfx942, and what this suite takes instead.

``CORRECTIONS`` replaces the program of an instruction (named as in assembly). ``TOLERANCES`` says for which results
more than one answer is right, and why. ``NOT_PROGRAMS`` are entries that are prose.

Sources: the LLVM AMDGPU back end (gfx940 tables, ``AMDGPUUsage``), AMD's "AMD Instinct MI300" ISA reference (the text
around the pseudo-code), AMD's device library (what it asks of the instructions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    program: str
    reason: str


@dataclass(frozen=True)
class Tolerance:
    """``ulps`` of the result; ``absolute``: or this far from it; ``flushed``: denormal operands and results may also
    count as zeros; ``dot``: the bound grows with the sum of the products' magnitudes; ``near_integer``: one off;
    ``quotient``: any result where the operands' quotient over- or underflows; ``any``: not compared."""

    reason: str
    ulps: int = 0
    absolute: float = 0.0
    flushed: bool = False
    dot: bool = False
    any: bool = False
    quotient: bool = False
    last: bool = False
    near_integer: bool = False


def _ldexp(kind: str, power: str) -> Correction:
    return Correction(f"D0.{kind} = ldexp(S0.{kind}, 32'I(S1.{power}))",
                      "a product with a power of two that may itself be out of range; the result is rounded once")


def _each(names: str, kinds: dict[str, str], program: str, reason: str) -> dict[str, Correction]:
    return {names.format(suffix): Correction(program.format(kind), reason) for suffix, kind in kinds.items()}


_FLOATS = {"f16": "f16", "f32": "f32", "f64": "f64"}


_ZEROS = "the text compares with +0.0 and with -0.0 to order zeros by their sign; as numbers those are equal"


def _div_scale(kind: str, tiny: int, up: int, gap: int) -> Correction:
    """``D0`` starts as the operand, and the flag is the lane's bit of the scalar destination."""
    flag = "VCC.u64[laneId]"
    numerator, denominator = f"S2.{kind}", f"S1.{kind}"

    def scaled(by: int) -> str:
        return f"D0.{kind} = ldexp(S0.{kind}, {by})" if by > 0 else f"D0.{kind} = ldexp(S0.{kind}, -{-by})"

    small = f"(1.0 / 64'F({denominator}) == DENORM.{kind})" if kind == "f32" else \
        f"(1.0 / {denominator} == DENORM.{kind})"
    ratio = f"({numerator} / {denominator} == DENORM.{kind})"
    return Correction(f"""
{flag} = 1'0U;
D0.{kind} = S0.{kind};
if (({numerator} == 0.0) || ({denominator} == 0.0)) then
  D0.{kind} = NAN.{kind}
elsif exponent({numerator}) - exponent({denominator}) >= {gap} then
  {flag} = 1'1U;
  if S0.{kind} == {denominator} then {scaled(up)} endif
elsif {denominator} == DENORM.{kind} then {scaled(up)}
elsif {small} && {ratio} then
  {flag} = 1'1U;
  if S0.{kind} == {denominator} then {scaled(up)} endif
elsif {small} then {scaled(-up)}
elsif {ratio} then
  {flag} = 1'1U;
  if S0.{kind} == {numerator} then {scaled(up)} endif
elsif exponent({numerator}) <= {tiny} then {scaled(up)}
endif""", "the result where no rule applies is the operand itself; VCC is the lane's bit; the reciprocal is compared "
          "with the denormals of the operands' own format")


def _div_fmas(kind: str, middle: int, by: int) -> Correction:
    return Correction(f"""
if VCC.u64[laneId] then
  D0.{kind} = fma_scaled(S0.{kind}, S1.{kind}, S2.{kind}, exponent(S2.{kind}) > {middle} ? {by} : -{by})
else D0.{kind} = fma(S0.{kind}, S1.{kind}, S2.{kind})
endif""", "the text multiplies by 2**32 (2**64) always, which cannot take back what v_div_scale did; later machines' "
          "text gives the power with its sign, and denormal quotients are only right if rounded once")


def _div_fixup_legacy() -> str:
    return """
sign_out = (sign(S1.f16) ^ sign(S2.f16));
if isNAN(S2.f16) then D0.f16 = cvtToQuietNAN(S2.f16)
elsif isNAN(S1.f16) then D0.f16 = cvtToQuietNAN(S1.f16)
elsif (S1.f16 == 16'0.0) && (S2.f16 == 16'0.0) then D0.f16 = 16'F(0xfe00)
elsif (abs(S1.f16) == +INF) && (abs(S2.f16) == +INF) then D0.f16 = 16'F(0xfe00)
elsif (S1.f16 == 16'0.0) || (abs(S2.f16) == +INF) then D0.f16 = sign_out ? -INF.f16 : +INF.f16
elsif (abs(S1.f16) == +INF) || (S2.f16 == 16'0.0) then D0.f16 = sign_out ? -16'0.0 : 16'0.0
else D0.f16 = sign_out ? -abs(S0.f16) : abs(S0.f16)
endif"""


def _mix(store: str) -> Correction:
    return Correction(f"""
declare in : 32'F[3];
declare S : 32'B[3];
for i in 0 : 2 do
  if !OPSEL_HI.u3[i] then in[i] = S[i].f32
  elsif OPSEL.u3[i] then in[i] = f16_to_f32(S[i][31 : 16].f16)
  else in[i] = f16_to_f32(S[i][15 : 0].f16)
  endif
endfor;
{store}""", "gfx942 has the fused form (LLVM: FeatureFmaMixInsts); the text is that of the older mad_mix")


def _stochastic(kind: str) -> Correction:
    return Correction(f"""
byte = OPSEL[3 : 2].u32 * 8U;
VGPR[laneId][VDST.u32][byte + 7U : byte].{kind} = f32_to_{kind}_sr(S0.f32, S1.u32)""",
                      "the sum wraps in the text, but must carry into the exponent, and is then cut, not rounded again")


CORRECTIONS: dict[str, Correction] = {
    "v_ldexp_f16": _ldexp("f16", "i16"), "v_ldexp_f32": _ldexp("f32", "i32"), "v_ldexp_f64": _ldexp("f64", "i32"),
    **_each("v_rndne_{}", _FLOATS, "D0.{0} = rndne(S0.{0})",
            "floor(x + 0.5) rounds twice; the instruction rounds to nearest even"),
    **_each("v_min_{}", _FLOATS, "D0.{0} = v_min_{0}(S0.{0}, S1.{0})", _ZEROS),
    **_each("v_max_{}", _FLOATS, "D0.{0} = v_max_{0}(S0.{0}, S1.{0})", _ZEROS),
    **_each("v_fract_{}", _FLOATS, "D0.{0} = fract(S0.{0})",
            "x - floor(x) can round up to 1; the result is below 1 (LLVM folds min(x - floor(x), 1 - ulp) into it)"),
    **_each("v_exp_{}", {"f16": "f16", "f32": "f32"}, "D0.{0} = exp2(S0.{0})", "the manual's pow(2, x)"),
    "v_exp_legacy_f32": Correction("D0.f32 = exp2(S0.f32)", "as v_exp_f32: there is no text"),
    "v_log_legacy_f32": Correction("D0.f32 = log2(S0.f32)", "as v_log_f32: there is no text"),
    **_each("v_sin_{}", {"f16": "f16", "f32": "f32"}, "D0.{0} = sin_turns(S0.{0})",
            "the product with 2 pi is not rounded: the operand is in turns"),
    **_each("v_cos_{}", {"f16": "f16", "f32": "f32"}, "D0.{0} = cos_turns(S0.{0})",
            "the product with 2 pi is not rounded: the operand is in turns"),
    **_each("v_frexp_exp_i32_{}", {"f32": "f32", "f64": "f64"}, "D0.i32 = frexp_exponent(S0.{0})",
            "exponent() of a denormal or zero: as C's frexp, 0 for zero"),
    "v_frexp_exp_i16_f16": Correction("D0.i16 = 16'I(frexp_exponent(S0.f16))",
                                      "exponent() of a denormal or zero: as C's frexp, 0 for zero"),
    "v_cvt_off_f32_i4": Correction("D0.f32 = ldexp(i32_to_f32(32'I(signext(S0[3 : 0].i4))), -4)",
                                   "the table is not in the text: the signed 4-bit number over 16"),
    "v_trig_preop_f64": Correction("""
shift = 32'I(S1[4 : 0].u32) * 53;
if exponent(S0.f64) > 1077 then shift += exponent(S0.f64) - 1077 endif;
fraction = (1201'B(2.0 / PI)[1200 : 0] << shift.u32);
result = 64'F(65'B(fraction[1200 : 1148]));
scale = -53 - shift;
if exponent(S0.f64) >= 1968 then scale += 128 endif;
D0.f64 = ldexp(result, scale)""", "the 53 bits kept are those at the top of the shifted fraction, not at its bottom"),
    "v_div_scale_f32": _div_scale("f32", 23, 64, 96), "v_div_scale_f64": _div_scale("f64", 53, 128, 768),
    "v_div_fmas_f32": _div_fmas("f32", 127, 64), "v_div_fmas_f64": _div_fmas("f64", 1023, 128),
    "v_div_fixup_legacy_f16": Correction(_div_fixup_legacy(), "one variable that is f64 here and f16 there"),
    "v_pk_mov_b32": Correction("""
low = S0[OPSEL[0].i32 * 32 + 31 : OPSEL[0].i32 * 32];
high = S1[OPSEL[1].i32 * 32 + 31 : OPSEL[1].i32 * 32];
D0.u64 = { high, low }""", "the text takes bits beyond 32 of a 32-bit number"),
    "v_mad_mix_f32": _mix("D0.f32 = fma(in[0], in[1], in[2])"),
    "v_mad_mixlo_f16": _mix("D0[15 : 0].f16 = f32_to_f16(fma(in[0], in[1], in[2]))"),
    "v_mad_mixhi_f16": _mix("D0[31 : 16].f16 = f32_to_f16(fma(in[0], in[1], in[2]))"),
    "v_cvt_sr_fp8_f32": _stochastic("fp8"), "v_cvt_sr_bf8_f32": _stochastic("bf8"),
    "ds_condxchg32_rtn_b64": Correction("""
addr = ADDR.u32 + OFFSET.u32;
RETURN_DATA[31 : 0] = MEM[addr].b32;
RETURN_DATA[63 : 32] = MEM[addr + 4U].b32;
if DATA[31] then MEM[addr].b32 = 32'B({ 1'0U, DATA[30 : 0] }) endif;
if DATA[63] then MEM[addr + 4U].b32 = 32'B({ 1'0U, DATA[62 : 32] }) endif""", "the text reads operands by other names"),
}


def corrected(name: str, program: str) -> str:
    """The program to use for the instruction of that name."""
    if name in CORRECTIONS:
        return CORRECTIONS[name].program
    if _SIXTEEN_BIT_LOAD.match(name):
        # With ECC on the registers (target feature sramecc+, which an MI300 always has) 16-bit loads write zeros to the
        # half that the text says they preserve: CDNA3 ISA guide, 9.1.6; LLVM's d16PreservesUnusedBits().
        return ("RETURN_DATA" if name.startswith("ds") else "VDATA") + f" = 32'B(0);\n{program}"
    return program


_SIXTEEN_BIT_LOAD = re.compile(r"ds_read_[iu]\w+_d16|(flat|global|scratch|buffer)_load_(ubyte|sbyte|short)_d16")

# Names of the manual and of the assembler.
ASSEMBLER_NAMES = {"v_mad_mix_f32": "v_fma_mix_f32", "v_mad_mixlo_f16": "v_fma_mixlo_f16",
                   "v_mad_mixhi_f16": "v_fma_mixhi_f16"}

NOT_PROGRAMS = {"ds_swizzle_b32", "s_waitcnt", "s_sleep", "s_trap", "s_cbranch_join"}

_APPROXIMATE = "an approximation: the manual gives its accuracy"
TOLERANCES: dict[str, Tolerance] = {
    **{f"v_cvt_sr_{k}_f32": Tolerance("where a denormal result is cut is not published; a neighbour is right", ulps=1)
       for k in ("fp8", "bf8")},
    **{f"v_{f}_f32": Tolerance(_APPROXIMATE + ", 1 ulp, denormals flushed", ulps=1, flushed=True)
       for f in ("exp", "exp_legacy", "log", "log_legacy", "rcp", "rcp_iflag", "rsq", "sqrt")},
    **{f"v_{f}_f16": Tolerance(_APPROXIMATE + ", 0.51 ulp", ulps=1) for f in ("exp", "log", "rcp", "rsq", "sqrt")},
    **{f"v_{f}_f64": Tolerance(_APPROXIMATE + ", 2**29 ulp", ulps=1 << 29, flushed=True)
       for f in ("rcp", "rsq", "sqrt")},
    **{f"v_{f}_f32": Tolerance(_APPROXIMATE + "; absolute, for -256 to 256", absolute=2.0 ** -20, flushed=True)
       for f in ("sin", "cos")},
    **{f"v_{f}_f16": Tolerance(_APPROXIMATE + "; absolute, for -256 to 256", absolute=2.0 ** -10, ulps=1, flushed=True)
       for f in ("sin", "cos")},
    **{name: Tolerance("the order and rounding inside a dot product are not published", dot=True)
       for name in ("v_dot2_f32_f16", "v_dot2c_f32_f16", "v_dot2_f32_bf16", "v_dot2c_f32_bf16")},
    **{f"v_div_scale_{k}": Tolerance("the text cannot be meant literally; whole divisions are tested instead", any=True)
       for k in ("f32", "f64")},
    **{f"v_div_fixup_{k}": Tolerance("the text has no overflow case for quotients beyond the format", quotient=True)
       for k in ("f32", "f64")},
    **{f"v_div_fmas_{k}": Tolerance("scaled sums whose product outweighs the addend occur in no division", last=True)
       for k in ("f32", "f64")},
    "v_cvt_rpi_i32_f32": Tolerance("whether x + 0.5 is rounded before its floor is not published", near_integer=True),
    "v_cvt_pk_u8_f32": Tolerance("whether it truncates or rounds is not published", near_integer=True),
}
