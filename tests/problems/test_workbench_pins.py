# SPDX-License-Identifier: MIT
"""Every constant of the workbench's bounds is held from above: an answer that is off by 2 to 3 times what it allows is
refused, and passes once the constant alone is four times as large. Kernels hold them from below."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scoring.problem import Problem, discover
from scoring.record import Case

HOME = Path(__file__).resolve().parents[2] / "workbench" / "problems"
Answer = Callable[[Any, tuple[Tensor, ...], dict[str, float]], tuple[Tensor, ...]]


@cache
def problem(name: str) -> Problem:
    return Problem(HOME / name)


def scaled(constant: str, factor: float) -> Answer:
    """The first output, of exact values times 1 + factor · constant."""
    return lambda data, values, bound: (values[0] * (1 + factor * bound[constant]), *values[1:])


def shifted(step: float) -> Answer:
    """One step of fp16's subnormal numbers above what is right, where that is subnormal."""
    def change(data: Any, values: tuple[Tensor, ...], bound: dict[str, float]) -> tuple[Tensor, ...]:
        first = torch.round(values[0].double() * 2.0**24) * 2.0**-24 + step
        return (torch.where((values[0].abs() < 2.0**-15) & (values[0] != 0), first, values[0].double()), *values[1:])
    return change


def spread(name: str, share: float, output: int = 0) -> Answer:
    """An output and ``share`` of its whole bound more."""
    def change(data: Any, values: tuple[Tensor, ...], bound: dict[str, float]) -> tuple[Tensor, ...]:
        allowed = problem(name).call(problem(name).reference.expected, data)[output].bound
        return tuple(value + share * allowed if i == output else value for i, value in enumerate(values))
    return change


def where_loud(data: Any, values: tuple[Tensor, ...], bound: dict[str, float]) -> tuple[Tensor, ...]:
    """As ``spread``, where the sums' share is far above fp16's smallest step."""
    (wrong,) = spread("bias_mask_scale_add", 1.6)(data, values, bound)
    return (torch.where(data[1].abs() > 1, wrong, values[0]),)


def wrong_scale(data: Any, values: tuple[Tensor, ...], bound: dict[str, float]) -> tuple[Tensor, ...]:
    return values[0], values[1] * (1 + 2.5 * bound["scale"]), values[2]


def wrong_ties(data: Any, values: tuple[Tensor, ...], bound: dict[str, float]) -> tuple[Tensor, ...]:
    """Codes rounded the other way within three times the distance from a half that is allowed."""
    quotient = data[0].double() / values[1]
    fraction = quotient - quotient.floor()
    near = (fraction - 0.5).abs() < 3 * bound["tie"]
    other = torch.where(fraction < 0.5, values[0] + 1, values[0] - 1)
    return torch.where(near, other, values[0]), values[1], values[2]


def quiet(data: Any) -> Any:
    """bias_mask_scale_add where results are subnormal."""
    x, residual, bias, mask, scale = data
    return x * 2.0**-17, residual * 2.0**-17, bias * 2.0**-17, mask, scale


def cancelling(data: Any) -> Any:
    """bias_mask_scale_add where the residual all but cancels the rest."""
    x, _residual, bias, mask, scale = data
    rest = torch.where(mask != 0, -(x.float() + bias.float()) * scale, 1.0).half()
    return x, rest, bias, mask, scale


TILE = {"n": 64, "k": 64, "repeat": 2, "pattern": "random"}
FMA = {"rows": 50, "n": 300, "contract": "fused"}
ROWS = {"rows": 33, "width": 512}
LAYER = {"rows": 40, "width": 500}
SOFTMAX = {"batch": 3, "hq": 4, "group": 2, "sq": 8, "sk": 200, "dim": 8, "bias": "none", "causal": 0}
PINS: dict[tuple[str, str], tuple[dict[str, Any], Answer, Callable[[Any], Any]]] = {
    ("rmsnorm", "bfloat"): ({**ROWS, "type": "bfloat"}, scaled("bfloat", 2.5), lambda data: data),
    ("rmsnorm", "float"): ({**ROWS, "type": "float"}, scaled("float", 2.5), lambda data: data),
    ("gelu", "output"): ({"n": 5000, "form": "erf", "edges": 0}, scaled("output", 3), lambda data: data),
    ("gelu", "subnormal"): ({"n": 5000, "form": "tanh", "edges": 1}, shifted(2 * 2.0**-24), lambda data: data),
    ("gemv", "sums"): ({"m": 50, "n": 700}, spread("gemv", 2.4), lambda data: data),
    ("gemv", "output"): ({"m": 50, "n": 1}, spread("gemv", 1.5), lambda data: data),
    ("quantize_int8", "scale"): (
        {"n": 1000, "form": "symmetric", "input": "normal"}, wrong_scale, lambda data: data),
    ("quantize_int8", "tie"): (
        {"n": 100_000, "form": "symmetric", "input": "normal"}, wrong_ties, lambda data: data),
    ("bias_mask_scale_add", "output"): (LAYER, scaled("output", 2.5), lambda data: data),
    ("bias_mask_scale_add", "subnormal"): (LAYER, shifted(2.0**-24), quiet),
    ("bias_mask_scale_add", "sums"): (LAYER, where_loud, cancelling),
    ("masked_softmax", "output"): (SOFTMAX, scaled("output", 2.5), lambda data: data),
    ("masked_softmax", "subnormal"): (SOFTMAX, shifted(2.0**-24), lambda data: data),
    ("fma_contraction", "term"): (FMA, spread("fma_contraction", 2.5), lambda data: data),
    ("fma_contraction", "horner"): (FMA, spread("fma_contraction", 2.5, 1), lambda data: data),
    ("wgmma_tile", "sums"): ({**TILE, "type": "half"}, spread("wgmma_tile", 2.5), lambda data: data),
    ("wgmma_tile", "eight"): ({**TILE, "type": "eight"}, spread("wgmma_tile", 2.5), lambda data: data),
    ("sgemm", "sums"): ({"m": 40, "n": 30, "k": 500, "scale": "plain"}, spread("sgemm", 2.4), lambda data: data),
    ("sgemm", "output"): ({"m": 40, "n": 30, "k": 1, "scale": "both"}, spread("sgemm", 1.4), lambda data: data),
}


def test_every_constant_has_a_pin() -> None:
    known = {(name, constant) for name in discover(HOME) for constant in problem(name).reference.BOUND}
    assert known == set(PINS)


@pytest.mark.parametrize(("name", "constant"), [pytest.param(*pin, id="-".join(pin)) for pin in PINS])
def test_a_constant_is_no_larger_than_it_must_be(name: str, constant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params, answer, changed = PINS[name, constant]
    found = problem(name)
    data = changed(found.generate(Case(params), 11, "cpu"))
    bound = found.reference.BOUND
    expectations = found.call(found.reference.expected, data)
    right = tuple(expectation.values.double() for expectation in expectations)
    # What must be exact stays right, but for codes.
    wrong = tuple(torch.where((e.bound > 0) | (e.dtype == torch.int8), value, e.values.double()).to(e.dtype)
                  for value, e in zip(answer(data, right, bound), expectations, strict=True))
    passed, message = found.check(data, wrong if len(wrong) > 1 else wrong[0])
    assert not passed, message
    monkeypatch.setitem(bound, constant, 4 * bound[constant])
    passed, message = found.check(data, wrong if len(wrong) > 1 else wrong[0])
    assert passed, message
