# SPDX-License-Identifier: MIT
"""What judges the programs: it must see a wrong bit, and only that."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
running = pytest.importorskip("tests.emulator.programs.running")
program = pytest.importorskip("tests.emulator.programs.program")

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("got", "wanted"), [([1.0, -0.0], [1.0, -0.0]), ([NAN, INF], [-NAN, INF])])
def test_equal_bits_pass(got: list[float], wanted: list[float]) -> None:
    assert running.differences("x", torch.tensor(got), program.Expected(torch.tensor(wanted))) is None


@pytest.mark.parametrize(("got", "wanted"), [([1.0, 0.0], [1.0, -0.0]), ([1.0, 2.0], [1.0, NAN]),
                                             ([1.0, INF], [1.0, 3e38])])
def test_another_bit_is_seen(got: list[float], wanted: list[float]) -> None:
    assert "1 of 2 wrong, first at (1,)" in running.differences("x", torch.tensor(got),
                                                                program.Expected(torch.tensor(wanted)))


@pytest.mark.parametrize("got", [[1.0, 2.1], [1.0, NAN], [1.0, INF]])
def test_a_tolerance_is_kept(got: list[float]) -> None:
    expected = program.Expected(torch.tensor([1.0, 2.0]), rtol=0.01, atol=0.01)
    assert running.differences("x", torch.tensor([1.005, 2.02]), expected) is None
    assert "1 of 2 wrong" in running.differences("x", torch.tensor(got), expected)


def test_an_infinity_needs_no_tolerance() -> None:
    expected = program.Expected(torch.tensor([-INF, NAN]), rtol=0.01)
    assert running.differences("x", torch.tensor([-INF, NAN]), expected) is None
