# SPDX-License-Identifier: MIT
"""Matrix instructions of the emulator: layouts, arithmetic, broadcasts, register files."""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest

from tests.emulator import matrix_model as model
from tests.emulator.matrix_problem import (
    B_AT,
    C_AT,
    CONSTANTS,
    DENSE,
    FILES,
    SPARSE,
    Instruction,
    Problem,
    Wave,
    code_of,
    encoded,
    random_code,
    small_problem,
)

pytestmark = pytest.mark.toolchain("rocm")


@pytest.mark.parametrize("name", [*DENSE, *SPARSE])
def test_layout(name: str) -> None:
    """Small whole numbers, exact in every format, with operands in each register file; EXEC does not matter."""
    one, rng = Instruction.parse(name), np.random.default_rng(len(name))
    for which in FILES:
        code, wave, problem = encoded(one, which), Wave.make(rng), small_problem(one, rng)
        problem.place(wave, which)
        before = wave.vgprs.copy()
        assert wave.run(code) == ""
        assert (problem.result(wave, which[0]) == problem.plain()).all(), which
        changed = np.flatnonzero((wave.vgprs != before).any(axis=1))
        assert changed.size == 0 if which[0] == "a" else changed.max() < one.words


@pytest.mark.parametrize("name", [*DENSE, *SPARSE])
def test_one_element_at_a_time(name: str) -> None:
    one, rng = Instruction.parse(name), np.random.default_rng(5)
    code = encoded(one)
    zero = Problem.make(one, rng, lambda kind: 0, lambda kind: 0)
    for _ in range(6):
        wave, block = Wave.make(rng), int(rng.integers(one.blocks))
        row, k, column = (int(rng.integers(limit)) for limit in (one.m, one.stored, one.m))
        problem = Problem(one, zero.a.copy(), zero.b.copy(), zero.c.copy(), zero.position)
        problem.a[block, row, k] = code_of(one.a, 3)
        problem.b[block, int(problem.position[row, k]), column] = code_of(one.b, -2)
        problem.place(wave)
        assert wave.run(code) == ""
        found = problem.result(wave)
        assert [tuple(at) for at in np.argwhere(found != 0)] == [(block, row, column)]
        assert found[block, row, column] == code_of(one.result, -6)


FUSED = [name for name in [*DENSE, *SPARSE] if not name.endswith(("i8", "_f32", "_f64"))]


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("spread", [0, 3, 20, 100])
def test_fused_sums(name: str, spread: int) -> None:
    """Bit for bit, a sample of the results against exact arithmetic; spread 0 has infinities, NaN and denormals."""
    one, rng = Instruction.parse(name), np.random.default_rng(spread)
    wave = Wave.make(rng)
    problem = Problem.make(one, rng, lambda kind: random_code(rng, kind, spread),
                           lambda kind: random_code(rng, kind, spread and min(spread + 20, 120)))
    problem.place(wave)
    code = encoded(one)
    assert wave.run(code) == ""
    found = problem.result(wave)
    a_format, b_format = model.FORMATS[one.a], model.FORMATS[one.b]
    for at in rng.permutation(found.size)[:32]:
        block, row, column = np.unravel_index(at, found.shape)
        a = [a_format.decode(each) for each in problem.a[block, row]]
        b = [b_format.decode(problem.b[block, k, column]) for k in problem.position[row]]
        right = model.dot(one.a, a, b, problem.c[block, row, column])
        assert f"{found[block, row, column]:08x}" == f"{right:08x}", (block, row, column)


@pytest.mark.parametrize("name", [name for name in DENSE if name.endswith(("_f32", "_f64"))])
def test_multiply_add_chains(name: str) -> None:
    """f32 and f64: one rounding per product, in order of k."""
    one, rng = Instruction.parse(name), np.random.default_rng(3)
    form, wave = model.FORMATS[one.a], Wave.make(rng)
    make = functools.partial(random_code, rng, spread=4)
    problem = Problem.make(one, rng, lambda kind: make(kind) or 1, lambda kind: make(kind) or 1)
    problem.a[0, 0, 0], problem.c[0, 1, :] = form.encode(float("inf")), form.encode(float("nan"))
    problem.place(wave)
    code = encoded(one)
    assert wave.run(code) == ""
    found = problem.result(wave)
    for block, row, column in np.ndindex(found.shape):
        right = problem.c[block, row, column]
        for k in range(one.k):
            right = model.fused_multiply_add(form.decode(problem.a[block, row, k])[0],
                                             form.decode(problem.b[block, k, column])[0], form.decode(right)[0], form)
        assert found[block, row, column] == right, (block, row, column)


def test_integers_wrap() -> None:
    one, rng = Instruction.parse("v_mfma_i32_16x16x32_i8"), np.random.default_rng(1)
    problem = Problem.make(one, rng, lambda kind: int(rng.integers(256)), lambda kind: int(rng.integers(1 << 32)))
    problem.a[0, 0, :], problem.b[0, :, 0], problem.c[0, 0, 0] = 0x80, 0x80, 0x7FFFFFFF
    wave = Wave.make(rng)
    problem.place(wave)
    code = encoded(one)
    assert wave.run(code) == ""
    assert (problem.result(wave) == problem.plain()).all()


@pytest.mark.parametrize("name", [name for name in DENSE if re.search(r"_\d+b_(f32|f16|i8)", name)])
def test_broadcast(name: str) -> None:
    """CBSZ and ABID: a block of A serves several; BLGP: B's lanes come from elsewhere."""
    one, rng = Instruction.parse(name), np.random.default_rng(2)
    problem = small_problem(one, rng)
    sizes = range(one.blocks.bit_length())
    for cbsz, abid in [(size, which) for size in sizes for which in {0, (1 << size) - 1}]:
        code = encoded(one, modifiers=f"cbsz:{cbsz} abid:{abid}")
        wave = Wave.make(rng)
        problem.place(wave)
        assert wave.run(code) == ""
        sources = [block // (1 << cbsz) * (1 << cbsz) + abid for block in range(one.blocks)]
        broadcast = Problem(one, problem.a[sources], problem.b, problem.c, problem.position)
        assert (problem.result(wave) == broadcast.plain()).all()


LANES = {1: [*range(32)] * 2, 2: [*range(32, 64)] * 2, 3: [*range(16, 64), *range(16)],
         **{4 + quarter: [*range(16 * quarter, 16 * quarter + 16)] * 4 for quarter in range(4)}}


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x1_4b_f32", "v_mfma_f32_32x32x2_f32", "v_mfma_f32_16x16x4_f32",
                                  "v_mfma_f32_32x32x4_2b_bf16", "v_mfma_f32_4x4x4_16b_f16", "v_mfma_i32_16x16x4_4b_i8"])
def test_lane_groups(name: str) -> None:
    one, rng = Instruction.parse(name), np.random.default_rng(2)
    plain = encoded(one)
    for group, lanes in LANES.items():
        code, wave, problem = encoded(one, modifiers=f"blgp:{group}"), Wave.make(rng), small_problem(one, rng)
        problem.place(wave)
        moved = Wave(wave.vgprs.copy(), wave.agprs.copy())
        moved.vgprs[B_AT:B_AT + 4] = wave.vgprs[B_AT:B_AT + 4, lanes]
        assert (wave.run(code), moved.run(plain)) == ("", "")
        assert (problem.result(wave) == problem.result(moved)).all()


def test_double_signs() -> None:
    """For f64, BLGP's bits negate the operands."""
    one, rng = Instruction.parse("v_mfma_f64_16x16x4_f64"), np.random.default_rng(2)
    problem = small_problem(one, rng)
    for signs in itertools.product((0, 1), repeat=3):
        code = encoded(one, modifiers="neg:[{},{},{}]".format(*signs) if any(signs) else "")
        wave, flip = Wave.make(rng), [sign << 63 for sign in signs]
        problem.place(wave)
        assert wave.run(code) == ""
        negated = Problem(one, problem.a ^ flip[0], problem.b ^ flip[1], problem.c ^ flip[2], problem.position)
        assert (problem.result(wave) == negated.plain()).all(), signs


@pytest.mark.parametrize(("name", "parts"), [("v_smfmac_f32_16x16x32_f16", 4), ("v_smfmac_f32_32x32x32_fp8_bf8", 2)])
def test_sparse_index_sets(name: str, parts: int) -> None:
    """ABID selects a part of the index register, unless CBSZ is set."""
    one, rng = Instruction.parse(name), np.random.default_rng(4)
    for part, modifiers in [*((each, f"abid:{each}") for each in range(parts)), (0, "cbsz:1 abid:1")]:
        wave, problem = Wave.make(rng), small_problem(one, rng)
        problem.place(wave, part=part)
        code = encoded(one, modifiers=modifiers)
        assert wave.run(code) == ""
        assert (problem.result(wave) == problem.plain()).all(), modifiers


@pytest.mark.parametrize(("name", "constant"), [
    ("v_mfma_f32_16x16x32_fp8_fp8", "-4.0"), ("v_mfma_f32_32x32x8_f16", "0"), ("v_mfma_f32_4x4x4_16b_bf16", "2.0"),
    ("v_mfma_i32_32x32x16_i8", "-7"), ("v_mfma_f64_16x16x4_f64", "1.0"), ("v_mfma_f32_32x32x1_2b_f32", "2.0"),
])
def test_constant_accumulator(name: str, constant: str) -> None:
    one, rng = Instruction.parse(name), np.random.default_rng(6)
    wave, problem = Wave.make(rng), small_problem(one, rng)
    problem.place(wave)
    assert wave.run(encoded(one, c=constant)) == ""
    problem.c[:] = code_of(one.result, CONSTANTS[constant])
    assert (problem.result(wave) == problem.plain()).all()


def test_overlapping_accumulators() -> None:
    """C is read as it was, whatever D overwrites."""
    one, rng = Instruction.parse("v_mfma_f32_16x16x16_bf16"), np.random.default_rng(7)
    code, shifted = encoded(one), encoded(one, c_at=2)
    wave, problem = Wave.make(rng), small_problem(one, rng)
    problem.place(wave)
    other = Wave(wave.vgprs.copy(), wave.agprs)
    other.vgprs[2:2 + one.words] = wave.vgprs[C_AT:C_AT + one.words]
    assert (wave.run(code), other.run(shifted)) == ("", "")
    assert (problem.result(wave) == problem.result(other)).all()


@pytest.mark.parametrize(("name", "modifiers", "complaint"), [
    ("v_mfma_f32_32x32x8_f16", "cbsz:1", "one block only"), ("v_mfma_f32_16x16x32_fp8_fp8", "blgp:1", "blgp"),
    ("v_smfmac_f32_16x16x64_fp8_fp8", "abid:2", "abid"),
])
def test_refused(name: str, modifiers: str, complaint: str) -> None:
    one = Instruction.parse(name)
    code = encoded(one, modifiers=modifiers)
    assert complaint in Wave.make(np.random.default_rng(0)).run(code)
