# SPDX-License-Identifier: MIT
"""Cases for vector arithmetic: each instruction in each of its encodings, with hard operands.

A case holds the state before and the operands as the program sees them, with all modifiers applied; the assembler
says afterwards whether gfx942 has it.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.emulator.isa import sources
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.lane_selects import dpp, sdwa
from tests.emulator.isa.opcodes import Instruction, Operand, formats, of_format
from tests.emulator.isa.sources import Source
from tests.emulator.isa.values import Array, Value, value
from tests.emulator.isa.wave import VCC, Wave, random_wave

FORMATS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")
SOURCE_AT = (4, 8, 12)
DESTINATION = 20
MASK_AT, CARRY_AT, SCALAR_AT = 30, 34, 38
_FIELDS = (("src0",), ("src1", "vsrc1"), ("src2",))
_CARRY_IN = re.compile(r"v_(addc|subb|subbrev)_co_u32|v_cndmask_b32")
_CARRY_OUT = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_u32|v_div_scale|v_mad_[iu]64_[iu]32")
_CONSTANT_K = re.compile(r"v_(fma|mad)(mk|ak)_")
_SATURATES = re.compile(r"v_(pk_)?(add|sub|subrev|mad)_(pk_)?[iu](16|32)$|v_mad_[iu]32_[iu](16|24)|v_dot[248]c?_[iu]32"
                        r"|v_(add|sub)_[iu]32$|v_mul_[iu]32_[iu]24|v_pk_mul_lo|v_mad_legacy|v_(addc?|subb?|sub(b)?rev)_co_u32")
# Instructions whose fields the program reads by itself.
_RAW = re.compile(r"v_cvt_(pk_)?f32_[bf]{1,2}8|v_pk_mov|v_mad_mix|v_cvt_(pk|sr)_[bf]{1,2}8|v_dot[48]")
ELSEWHERE = re.compile(r"v_(readlane|readfirstlane|writelane|swap|nop|clrexcp|screen|permlane)")
MODES = (0x3F1 | 1 << 2, 0x3F2 | 2 << 2, 0x3F3 | 3 << 2, 0x300, 0x1F0)
# In IEEE mode, and where denormal results are kept, OMOD does nothing (ISA reference, 6.2.2).
_UNSCALED = (0x3F0, 0x300, 0x1F0)
_ARITHMETIC = re.compile(r"v_(pk_)?(add|sub|subrev|mul|fma|fmac|min|max)_f(16|32|64)$|v_cvt_f(16|32|64)_(f|i|u)")


@dataclass
class Case:
    instruction: Instruction
    text: str
    wave: Wave
    operands: list[Array]
    enabled: Array                          # lanes that write
    destination: int = DESTINATION
    mask_to: int = VCC                      # where a mask goes, if the instruction makes one
    carry_in: int = 0
    names: dict[str, Value] = field(default_factory=dict)
    clamp: bool = False
    scale: float = 1.0                      # OMOD
    high: bool = False                      # the result goes to the upper half
    place: Callable[[Array, Array], Array] | None = None    # SDWA: (result, old) -> register
    code: bytes = b""

    @property
    def saturates(self) -> bool:
        return self.clamp and bool(_SATURATES.match(self.instruction.name))

    @property
    def writes_mask(self) -> bool:
        name = self.instruction.name
        return name.startswith("v_cmp") or bool(_CARRY_OUT.match(name))


def source_operands(instruction: Instruction) -> list[Operand]:
    found = []
    for keys in _FIELDS:
        operand = next((instruction.operands[k] for k in keys if k in instruction.operands), None)
        if operand and operand.kind != "M64":
            found.append(operand)
    return found


def cases(instruction: Instruction, rng: np.random.Generator) -> Iterator[Case]:
    """All variants worth trying; some the assembler will refuse."""
    if ELSEWHERE.match(instruction.name):
        return
    build = _Builder(instruction, rng)
    full, some = (1 << 64) - 1, [int(rng.integers(0, 1 << 63)) << 1, int(rng.integers(0, 1 << 63)), 1 << 17, 0]
    yield build(full)
    yield build(full)
    yield build(some[0], alias=True)
    yield build(some[int(rng.integers(1, 4))])
    for i in range(len(build.operands)):
        yield build(full, constant=i)
        yield build(some[0], scalar=i)
    if instruction.format in ("VOP1", "VOP2", "VOPC"):
        yield build(full, literal=0)
        for _ in range(4):
            yield build(full if rng.random() < 0.5 else some[0], sdwa=True)
        if instruction.format != "VOPC":
            for _ in range(6):
                yield build(full if rng.random() < 0.5 else some[0], dpp=True)
    else:
        for _ in range(3):
            yield build(full, modify=True)
        if not re.match("v_mad_[iu]64|v_div_scale|.*sad_|v_pk_mov", instruction.name):
            yield build(full, clamp=True, modify=True)
        if _ARITHMETIC.match(instruction.name) and instruction.format == "VOP3" and "cvt" not in instruction.name:
            yield build(full, omod=True, mode=0x100)
            for mode in _UNSCALED:
                yield build(full, omod=True, mode=mode)
        if instruction.format == "VOP3" and formats(instruction.name) == ["VOP3"]:
            for _ in range(3):
                yield build(full, op_sel=True)
    if _ARITHMETIC.match(instruction.name) or re.match("v_cmp_(lt|class)_f", instruction.name):
        for mode in MODES:
            yield build(full, mode=mode)


class _Builder:
    def __init__(self, instruction: Instruction, rng: np.random.Generator) -> None:
        self.instruction, self.rng = instruction, rng
        self.operands = source_operands(instruction)
        self.result = instruction.operands.get("vdst")
        self.packed = instruction.format == "VOP3P"

    def __call__(self, exec_mask: int, *, alias: bool = False, constant: int = -1, scalar: int = -1, literal: int = -1,
                 modify: bool = False, clamp: bool = False, omod: bool = False, op_sel: bool = False,
                 sdwa: bool = False, dpp: bool = False, mode: int = 0x3F0) -> Case:
        wave = random_wave(self.rng, exec_mask)
        wave.mode = mode
        given = [self._source(wave, i, o, i == constant, i == scalar, i == literal)
                 for i, o in enumerate(self.operands)]
        case = Case(self.instruction, "", wave, [g.bits for g in given], wave.exec)
        if alias and self.result and self.result.width <= 64 and scalar < 0:
            case.destination = SOURCE_AT[0]
        texts = [g.text for g in given]
        suffixes: list[str] = []
        form = ""
        if sdwa:
            form = "_sdwa"
            suffixes += self._sdwa(case, texts)
        elif dpp:
            form = "_dpp"
            suffixes += self._dpp(case, texts)
        elif self.packed:
            suffixes += self._packed(case, texts, modify)
        elif modify:
            self._modify(case, texts)
        if op_sel:
            suffixes += self._op_sel(case)
        if clamp:
            case.clamp = True
            suffixes.append("clamp")
        if omod:
            case.scale, text = [(2.0, "mul:2"), (4.0, "mul:4"), (0.5, "div:2")][int(self.rng.integers(0, 3))]
            if mode in _UNSCALED:
                case.scale = 1.0
            suffixes.append(text)
        case.text = self._text(case, texts, form, constant >= 0 or scalar >= 0, suffixes)
        return case

    def _source(self, wave: Wave, i: int, operand: Operand, constant: bool, scalar: bool, literal: bool) -> Source:
        found = None
        if constant and not (self.packed and operand.width == 64):
            found = sources.inline(self.rng, operand)
        elif literal:
            found = sources.literal(self.rng, operand)
        elif scalar:
            at = SCALAR_AT if operand.width > 32 or self.rng.random() < 0.7 else int(self.rng.choice([VCC, 124]))
            if _CARRY_IN.match(self.instruction.name) or "div_fmas" in self.instruction.name:
                at = SCALAR_AT
            bits = int(sources.register_bits(self.rng, operand)[0])
            found = sources.sgpr(wave, at, bits, max(32, operand.width))
        return found or sources.vgpr(wave, SOURCE_AT[i], sources.register_bits(self.rng, operand), operand.width)

    def _modify(self, case: Case, texts: list[str]) -> None:
        if self.instruction.format == "VOP3SD" or _CARRY_IN.match(self.instruction.name):
            return
        for i, operand in enumerate(self.operands):
            neg, absolute = bool(self.rng.integers(0, 2)), bool(self.rng.integers(0, 2))
            if operand.floating and not operand.kind.startswith("PK"):
                case.operands[i] = sources.negated(operand.floating, case.operands[i], neg, absolute)
                texts[i] = ("-" if neg else "") + (f"|{texts[i]}|" if absolute else texts[i])

    def _op_sel(self, case: Case) -> list[str]:
        bits = [int(b) for b in self.rng.integers(0, 2, len(self.operands) + 1)]
        if _RAW.match(self.instruction.name):
            # The last two bits choose the byte (sr), the last the half (pk).
            field_ = [0, 0, bits[1], bits[2]] if "_sr_" in self.instruction.name else [0, 0, bits[2]]
            number = field_[-1] << 3 | (field_[2] << 2 if len(field_) == 4 else 0)
            case.names["OPSEL"] = value("U", 4, np.array([number]))
            return [f"op_sel:[{','.join(map(str, field_))}]"]
        for i, operand in enumerate(self.operands):
            if bits[i] and operand.width == 16:
                case.operands[i] = case.operands[i] >> np.uint64(16)
            elif operand.width != 16:
                bits[i] = 0
        if self.result and self.result.width != 16:
            bits[-1] = 0
        case.high = bool(bits[-1])
        case.names["OPSEL"] = value("U", 4, np.array([bits[-1] << 3]))
        return [f"op_sel:[{','.join(map(str, bits))}]"]

    def _packed(self, case: Case, texts: list[str], modify: bool) -> list[str]:
        """op_sel picks the half that the low result reads, op_sel_hi the one for the high; neg_lo and neg_hi follow."""
        count, name = len(self.operands), self.instruction.name
        low, high = [0] * count, [1] * count
        mixed = "mad_mix" in name
        if mixed:
            high = [0] * count
        if modify and not re.match(r"v_dot[48]", name):
            low = [int(b) for b in self.rng.integers(0, 2, count)]
            high = [int(b) for b in self.rng.integers(0, 2, count)]
        for i, operand in enumerate(self.operands):
            if texts[i][0] not in "vsm" and not mixed:
                low[i] = high[i] = 0          # a constant has one half that is not in doubt
            if texts[i][0] not in "vs" and mixed:
                high[i] = 0
            if not operand.kind.startswith("PK2_") and not mixed:
                low[i], high[i] = 0, 1
        neg_low, neg_high = [0] * count, [0] * count
        if modify and (mixed or any("F" in o.kind for o in self.operands)) and name != "v_pk_mov_b32":
            neg_low = [int(b) for b in self.rng.integers(0, 2, count)]
            neg_high = [int(b) for b in self.rng.integers(0, 2, count)]
        neg_low = [n if "F" in o.kind or mixed else 0 for n, o in zip(neg_low, self.operands, strict=True)]
        neg_high = [n if "F" in o.kind or mixed else 0 for n, o in zip(neg_high, self.operands, strict=True)]
        if mixed:
            return self._mixed(case, texts, low, high, neg_low, neg_high)
        for i, operand in enumerate(self.operands):
            if not operand.kind.startswith("PK2_"):
                if neg_low[i] and operand.floating:
                    neg_low[i] = neg_high[i] = 0
                continue
            half = np.uint64(operand.width // 2)
            part = np.uint64((1 << int(half)) - 1)
            if not _RAW.match(name):
                bits = case.operands[i]
                first = bits >> half & part if low[i] else bits & part
                second = bits >> half & part if high[i] else bits & part
                sign = np.uint64(1 << (int(half) - 1))
                case.operands[i] = (first ^ sign if neg_low[i] else first) | \
                    (second ^ sign if neg_high[i] else second) << half
        case.names["OPSEL"] = value("U", 4, np.array([sum(b << i for i, b in enumerate(low))]))
        written = [("op_sel", low, 0), ("op_sel_hi", high, 1), ("neg_lo", neg_low, 0), ("neg_hi", neg_high, 0)]
        return [f"{label}:[{','.join(map(str, bits))}]" for label, bits, usual in written
                if any(b != usual for b in bits)]

    def _mixed(self, case: Case, texts: list[str], low: list[int], high: list[int], neg: list[int],
               absolute: list[int]) -> list[str]:
        for i in range(3):
            sign = np.uint64((1 << 31 if low[i] else 1 << 15) if high[i] else 1 << 31)
            bits = case.operands[i]
            bits = bits & ~sign if absolute[i] else bits
            case.operands[i] = bits ^ sign if neg[i] else bits
            texts[i] = ("-" if neg[i] else "") + (f"|{texts[i]}|" if absolute[i] else texts[i])
        case.names["OPSEL"] = value("U", 4, np.array([sum(b << i for i, b in enumerate(low))]))
        case.names["OPSEL_HI"] = value("U", 3, np.array([sum(b << i for i, b in enumerate(high))]))
        return [f"op_sel:[{','.join(map(str, low))}]", f"op_sel_hi:[{','.join(map(str, high))}]"]

    def _sdwa(self, case: Case, texts: list[str]) -> list[str]:
        return sdwa(case, texts, self.operands, self.result, self.rng, bool(_RAW.match(self.instruction.name)))

    def _dpp(self, case: Case, texts: list[str]) -> list[str]:
        words = dpp(case, self.rng, self.operands[0].width)
        if self.operands[0].floating and self.rng.random() < 0.5:
            case.operands[0] = sources.negated(self.operands[0].floating, case.operands[0], True, False)
            texts[0] = "-" + texts[0]
        return words

    def _text(self, case: Case, texts: list[str], form: str, special: bool, suffixes: list[str]) -> str:
        name, fmt = self.instruction.name, self.instruction.format
        short = fmt in ("VOP1", "VOP2", "VOPC")
        has_short = bool({"VOP1", "VOP2", "VOPC"} & set(formats(name)))
        mnemonic = self.instruction.assembly + (form or ("_e32" if short else "_e64" if has_short else ""))
        parts: list[str] = []
        if not name.startswith("v_cmp"):
            assert self.result
            parts.append(sources.register_text("v", case.destination, max(1, self.result.width // 32)))
        if case.writes_mask:
            if short or (special and self.rng.random() < 0.5):
                case.mask_to = VCC
            else:
                case.mask_to = int(self.rng.choice([VCC, MASK_AT]))
            parts.append("vcc" if case.mask_to == VCC else f"s[{MASK_AT}:{MASK_AT + 1}]")
        parts += texts
        if _CONSTANT_K.match(name):
            self._constant(case, parts)
        if _CARRY_IN.match(name):
            at = VCC if short else CARRY_AT
            case.carry_in = case.wave.pair(at)
            parts.append("vcc" if short else f"s[{CARRY_AT}:{CARRY_AT + 1}]")
        elif "div_fmas" in name:
            case.carry_in = case.wave.pair(VCC)
        return f"{mnemonic} {', '.join(parts)} {' '.join(suffixes)}".strip()

    def _constant(self, case: Case, parts: list[str]) -> None:
        kind, width = ("F16", 16) if "f16" in self.instruction.name else ("F32", 32)
        bits = int(sources.hard_numbers(self.rng, kind, width, 1)[0])
        case.names["SIMM32"] = case.names["SIMM16"] = value("B", 32, np.array([bits]))
        parts.insert(2 if "mk_" in self.instruction.name else 3, f"0x{bits:x}")


@functools.cache
def assembled(form: str) -> list[Case]:
    """The cases of one format that gfx942 has."""
    tried = []
    for instruction in of_format(form):
        tried += list(cases(instruction, np.random.default_rng(zlib.crc32(f"{instruction.name} {form}".encode()))))
    for case, code in zip(tried, assemble([c.text for c in tried]), strict=True):
        case.code = code or b""
    return [c for c in tried if c.code]
