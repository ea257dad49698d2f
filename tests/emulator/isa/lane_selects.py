# SPDX-License-Identifier: MIT
"""SDWA (parts of registers) and DPP (other lanes), as the ISA reference's chapters on them describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.emulator.isa import sources
from tests.emulator.isa.opcodes import Operand
from tests.emulator.isa.values import Array, value

if TYPE_CHECKING:
    from tests.emulator.isa.valu_cases import Case

_SELECTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
            "WORD_1": (16, 16), "DWORD": (0, 32)}
_CODES = {name: i for i, name in enumerate(_SELECTS)}
_LANES = np.arange(64)


def _sign_extended(bits: Array, width: int) -> Array:
    top = np.uint64(1 << (width - 1))
    with np.errstate(over="ignore"):
        return ((bits ^ top) - top) & np.uint64(0xFFFFFFFF)


def sdwa(case: Case, texts: list[str], operands: list[Operand], result: Operand | None, rng: np.random.Generator,
         raw: bool) -> list[str]:
    """Selects parts of the sources and a place for the result; returns the assembler's words for it. ``raw``: the
    program reads the select by itself."""
    words = []
    for i, operand in enumerate(operands):
        name = _source_select(operand, rng, raw, "pk" in case.instruction.name)
        words.append(f"src{i}_sel:{name}")
        if raw:
            case.names["SDWA_SRC0_SEL"] = value("U", 3, np.array([_CODES[name]]))
            continue
        start, width = _SELECTS[name]
        part = case.operands[i] >> np.uint64(start) & np.uint64((1 << width) - 1)
        if operand.floating and width == operand.width:
            neg, absolute = bool(rng.integers(0, 2)), bool(rng.integers(0, 2))
            part = sources.negated(operand.floating, part, neg, absolute)
            texts[i] = ("-" if neg else "") + (f"|{texts[i]}|" if absolute else texts[i])
        elif not operand.floating and rng.random() < 0.5:
            part = _sign_extended(part, width)
            texts[i] = f"sext({texts[i]})"
        case.operands[i] = part
    if result is None or case.instruction.format == "VOPC":
        return words
    choices = ["DWORD"] if result.floating == "f32" or result.width > 32 else \
        ["DWORD", "WORD_0", "WORD_1"] if result.floating else list(_SELECTS)
    name = str(rng.choice(choices))
    # The sign of a NaN is not published, so neither is its extension.
    unused = str(rng.choice(["UNUSED_PAD", "UNUSED_PRESERVE", *([] if result.floating else ["UNUSED_SEXT"])]))
    start, width = _SELECTS[name]

    def place(found: Array, old: Array) -> Array:
        part = (found & np.uint64((1 << width) - 1)) << np.uint64(start)
        hole = np.uint64(((1 << width) - 1) << start)
        if unused == "UNUSED_PRESERVE":
            return part | old & ~hole
        if unused == "UNUSED_SEXT":
            return _sign_extended(part, start + width) if start + width < 32 else part
        return part

    if name != "DWORD":
        case.place = place
    return [f"dst_sel:{name} dst_unused:{unused}", *words]


def _source_select(operand: Operand, rng: np.random.Generator, raw: bool, pair: bool) -> str:
    if raw:
        return str(rng.choice(["WORD_0", "WORD_1"] if pair else ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3"]))
    if operand.floating == "f32":
        return "DWORD"
    if operand.floating == "f16":
        return str(rng.choice(["WORD_0", "WORD_1"]))
    return str(rng.choice(list(_SELECTS)))


def dpp(case: Case, rng: np.random.Generator, width: int) -> list[str]:
    """Moves the first source between lanes. A lane whose source does not exist or is disabled writes nothing, or with
    bound_ctrl reads zero."""
    word, origin = _control(rng, width)
    row_mask, bank_mask = (int(rng.integers(0, 16)), int(rng.integers(0, 16))) if rng.random() < 0.5 else (15, 15)
    if word.startswith("row_bcast"):
        row_mask = 0xA if word.endswith("15") else 0xC      # as compilers use it; other rows have no source
    bound = bool(rng.integers(0, 2))
    inside = (origin >= 0) & case.wave.exec[np.clip(origin, 0, 63)]
    bits = case.operands[0][np.clip(origin, 0, 63)]
    case.operands[0] = np.where(inside, bits, np.uint64(0))
    masked = ((row_mask >> (_LANES // 16)) & 1) & ((bank_mask >> (_LANES % 16 // 4)) & 1)
    case.enabled = case.wave.exec & (masked == 1) & (inside | bound)
    words = [word, f"row_mask:0x{row_mask:x}", f"bank_mask:0x{bank_mask:x}"]
    return words + (["bound_ctrl:0"] if bound else [])


def _control(rng: np.random.Generator, width: int) -> tuple[str, Array]:
    """The assembler's word and for each lane the lane it reads, -1 for none."""
    lane, row = _LANES % 16, _LANES // 16 * 16
    by = int(rng.integers(1, 16))
    kind = int(rng.integers(0, 13)) if width <= 32 else 12
    if kind in (0, 11):
        quad = [int(q) for q in rng.integers(0, 4, 4)]
        return f"quad_perm:[{','.join(map(str, quad))}]", _LANES // 4 * 4 + np.array(quad)[_LANES % 4]
    if kind == 12:
        by = int(rng.integers(0, 16))
        return f"row_newbcast:{by}", row + by
    tables = {
        1: (f"row_shl:{by}", np.where(lane + by < 16, _LANES + by, -1)),
        2: (f"row_shr:{by}", np.where(lane - by >= 0, _LANES - by, -1)),
        3: (f"row_ror:{by}", row + (lane - by) % 16),
        4: ("row_mirror", row + 15 - lane),
        5: ("row_half_mirror", _LANES // 8 * 8 + 7 - _LANES % 8),
        6: ("row_bcast:15", row - 1),
        7: ("row_bcast:31", np.where(_LANES >= 32, 31, -1)),
        8: ("wave_shl:1", np.where(_LANES < 63, _LANES + 1, -1)),
        9: ("wave_shr:1", _LANES - 1),
        10: ("wave_rol:1" if by & 1 else "wave_ror:1", (_LANES + (1 if by & 1 else -1)) % 64),
    }
    return tables[kind]
