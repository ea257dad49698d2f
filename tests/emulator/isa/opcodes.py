# SPDX-License-Identifier: MIT
"""What the manual's tables (through the ``tinygrad`` wheel) say of each instruction: formats, operands, program."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass, field

from tests.emulator.isa.corrections import ASSEMBLER_NAMES, NOT_PROGRAMS, corrected

# Of the matrix and the scaled conversions the manual gives no program; the latter are of a later machine.
_ELSEWHERE = re.compile(r"v_s?mfma|v_smfmac|v_cvt_scalef32|v_accvgpr|v_(pk_)?(min|max)imum3|v_bitop3|v_cvt_sr_b?f16"
                        r"|v_cvt_pk_b?f16_f32|v_permlane|v_prng|v_ashr_pk|v_dot2_f32_bf16$|v_cvt_f32_bf16")


@dataclass(frozen=True)
class Operand:
    """``field`` of the encoding, ``kind`` such as ``F32`` or ``PK2_F16``, ``width`` in bits, ``where`` as the tables
    name the class of places it may come from."""

    field: str
    kind: str
    width: int
    where: str

    @property
    def floating(self) -> str:
        """``f16``, ``f32`` or ``f64`` where neg and abs mean something, else empty."""
        match = re.fullmatch(r"(F16|F32|F64|PK2_F16|PK2_F32)", self.kind)
        return match.group(1).split("_")[-1].lower() if match else ""


@dataclass(frozen=True)
class Instruction:
    """One instruction in one format (``VOP2``, ``VOP3``, …)."""

    name: str
    format: str
    program: str
    operands: dict[str, Operand] = field(compare=False)

    @property
    def assembly(self) -> str:
        return ASSEMBLER_NAMES.get(self.name, self.name)

    def __hash__(self) -> int:
        return hash((self.name, self.format))


def _plain(name: str) -> str:
    return name.lower().removesuffix("_e32").removesuffix("_e64")


@functools.cache
def instructions() -> dict[tuple[str, str], Instruction]:
    """By (name, format), those with a program that this suite can run."""
    from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS
    from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE
    found = {}
    for op, fields in OPERANDS.items():
        name, form = _plain(op.name), type(op).__name__.removesuffix("Op")
        program = corrected(name, PCODE.get(op, ""))
        if not program or name in NOT_PROGRAMS or _ELSEWHERE.match(name):
            continue
        operands = {key: Operand(key, fmt.name.removeprefix("FMT_NUM_"), width, where.name.removeprefix("OPR_"))
                    for key, (fmt, width, where) in fields.items()}
        for key in ("src1", "vsrc1"):
            if name == "v_ldexp_f16" and key in operands:   # an integer; the tables call it F16
                operands[key] = dataclasses.replace(operands[key], kind="I16")
        found[name, form] = Instruction(name, form, program, operands)
    # The short forms that the tables do not list again: all have the long encoding too.
    for (name, form), short in list(found.items()):
        if form in ("VOP1", "VOP2") and not {(name, "VOP3"), (name, "VOP3SD")} & found.keys() and \
                not re.search("mk_|ak_|swap", name):
            operands = {key.replace("vsrc1", "src1"): o for key, o in short.operands.items()}
            found[name, "VOP3"] = Instruction(name, "VOP3", short.program, operands)
    return found


@functools.cache
def formats(name: str) -> list[str]:
    return [form for other, form in instructions() if other == name]


def of_format(*forms: str) -> list[Instruction]:
    return [i for i in instructions().values() if i.format in forms]
