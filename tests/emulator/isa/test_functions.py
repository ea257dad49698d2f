# SPDX-License-Identifier: MIT
"""Functions of one operand: half precision in steps of three, and single precision all over its range.

Half precision is compared with the manual's programs; approximations in single and double precision with the accuracy
that the manual states for them.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from tests.emulator.isa import valu_cases, valu_oracle
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.opcodes import Instruction, of_format
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.sources import register_text
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import Emulator, random_wave

pytestmark = pytest.mark.toolchain("rocm")

_HALF = re.compile(r"v_(ceil|cos|exp|floor|fract|log|rcp|rndne|rsq|sin|sqrt|trunc|frexp_mant|frexp_exp_i16)_f16"
                   r"|v_cvt_(f16_[iu]16|f32_f16|f32_(fp8|bf8)|[iu]16_f16|norm_[iu]16_f16|pk_f32_(fp8|bf8))")
SINGLE = {"rcp": 1, "rsq": 1, "sqrt": 1, "log": 1, "exp": 1}         # units in the last place
TURNS = 2.0 ** -20                                                   # of sine and cosine, up to 256 turns
DOUBLE = 2.0 ** (29 - 52)                                            # relative
FUNCTIONS = {"rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "log": np.log2, "exp": np.exp2,
             "sin": lambda x: np.sin(2 * np.pi * np.fmod(x, 1.0)), "cos": lambda x: np.cos(2 * np.pi * np.fmod(x, 1.0))}
SNIPPETS = Snippets([*(f"v_{name}_f32 v20, v4" for name in FUNCTIONS),
                     *(f"v_{name}_f64 v[20:21], v[4:5]" for name in ("rcp", "rsq", "sqrt"))])
_WAVES = 1500


@functools.cache
def _halves() -> list[tuple[Instruction, bytes]]:
    found = [i for i in of_format("VOP1") if _HALF.fullmatch(i.name)]
    texts = [f"{i.assembly}_e32 {register_text('v', valu_cases.DESTINATION, i.operands['vdst'].width // 32 or 1)}, v4"
             for i in found]
    return [(i, code) for i, code in zip(found, assemble(texts), strict=True) if code]


def test_half_precision(emulator: Emulator) -> None:
    """A third of all numbers, in steps of three through the encodings."""
    wrong: dict[str, list[str]] = {}
    wave = random_wave(np.random.default_rng(1))
    for instruction, code in _halves():
        tried = []
        for first in range(0, 1 << 16, 3 * 64):
            before = wave.copy()
            before.vgprs[4] = bits = np.arange(first, first + 3 * 64, 3, dtype=np.uint64) & np.uint64(0xFFFF)
            tried.append(valu_cases.Case(instruction, instruction.name, before, [bits], before.exec, code=code))
        for case, right in valu_oracle.expected(tried):
            if found := valu_oracle.mismatches(case, right, emulator.execute(case.code, case.wave)):
                wrong.setdefault(instruction.name, found)
    assert len(_halves()) >= 22
    assert wrong == {}


def _run(text: str, numbers: Array, emulator: Emulator) -> Array:
    """``numbers`` of 32 or 64 bits, a multiple of 64 of them, through the instruction."""
    wave, found = random_wave(np.random.default_rng(2)), []
    words = numbers.view(np.uint32).reshape(-1, 64, numbers.itemsize // 4)
    for part in words:
        wave.vgprs[4:4 + part.shape[1]] = part.T
        after = SNIPPETS.run(text, wave, emulator)
        found.append(after.vgprs[20:20 + part.shape[1]].T)
    return np.ascontiguousarray(np.concatenate(found)).view(numbers.dtype).ravel()


def _single(rng: np.random.Generator, name: str) -> Array:
    count = 64 * _WAVES
    if name == "exp":
        return rng.uniform(-126, 128, count).astype(np.float32)
    if name in ("sin", "cos"):
        return rng.uniform(-256, 256, count).astype(np.float32)
    # Any normal number, and many near 1, where logarithms cancel.
    numbers = rng.integers(0x00800000, 0x7F000000, count, dtype=np.uint32).view(np.float32)
    numbers[::4] = rng.uniform(0.5, 2, len(numbers[::4]))
    return numbers


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy_in_single_precision(name: str, emulator: Emulator) -> None:
    x = _single(np.random.default_rng(len(name)), name)
    found = _run(f"v_{name}_f32 v20, v4", x, emulator).astype(np.float64)
    right = FUNCTIONS[name](x.astype(np.float64))
    error = np.abs(found - right)
    if name in SINGLE:
        with np.errstate(all="ignore"):
            unit = np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)
        # The result may be flushed where it is denormal.
        error = np.where(np.abs(right) < 2.0 ** -126, 0, error / unit)
        assert error.max() <= SINGLE[name], f"{error.max()} ulp at {x[error.argmax()]!r}"
    else:
        assert error.max() <= TURNS, f"{error.max()} at {x[error.argmax()]!r}"


@pytest.mark.parametrize("name", ["rcp", "rsq", "sqrt"])
def test_accuracy_in_double_precision(name: str, emulator: Emulator) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0x0010 << 48, 0x7FD0 << 48, 64 * _WAVES, dtype=np.uint64).view(np.float64)
    found = _run(f"v_{name}_f64 v[20:21], v[4:5]", x, emulator)
    right = FUNCTIONS[name](x)
    assert np.max(np.abs(found - right) / right) <= DOUBLE
