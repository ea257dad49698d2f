# SPDX-License-Identifier: MIT
"""One set of real numbers, quantised to each target's flavour of fp8: how far the kernels of all vendors are from exact
attention of these numbers.

Problems hand every target codes of its own flavour and judge it by these codes. So a flavour that loses more than it
should, in the generator or in a kernel, passes everywhere else.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import backends
from backends import _emulated
from scoring.judge import case_run
from scoring.record import Case
from scoring.run import targets
from tests.test_matrix import ROOT, SETTINGS, Bench, Cell, available, check_on, problem_of

NAME = "flash_attention_fp8"
CASE = Case({"batch": 1, "sq": 64, "sk": 96, "hq": 4, "hk": 2, "dim": 64, "causal": 0, "scales": "head", "rotated": 0,
             "outliers": 0})
DEVICES = {"cpu": ("naive", "CPU"), "cuda": ("mma_sync", "L4"), "rocm": ("mfma", "MI300")}
# Root mean square errors relative to exact attention: of e4m3's three bits of fraction (seen: 0.058 and 0.072), and how
# many times that of a kernel, which rounds its weights as well.
LARGEST, OF_KERNELS = 0.1, 1.5
FLAVOURS = {"cpu": torch.float8_e4m3fn, "cuda": torch.float8_e4m3fn, "rocm": torch.float8_e4m3fnuz}


class Answer(NamedTuple):
    """The newest checked call of a kernel: its inputs, and o."""

    seed: int
    data: Any
    o: Tensor


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q kᵀ / sqrt(dim)) v in fp64; [1, tokens, heads, dim], two query heads to a key head."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    return (torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, -1) @ v).transpose(1, 2)


def of_codes(data: Any) -> Tensor:
    """The same of what codes and scales stand for: all that quantisation leaves of the numbers."""
    return attention(*(codes.double() * scale.double()[..., None]
                       for codes, scale in zip(data[:3], data[3:6], strict=True)))


@cache
def numbers(seed: int) -> tuple[Tensor, ...]:
    """(q, k, v) of ``CASE`` before the generator quantises them."""
    reference, seen = problem_of(NAME).reference, []
    quantise = reference.quantise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "quantise", lambda x, *rest: (seen.append(x), quantise(x, *rest))[1])
        problem_of(NAME).generate(CASE, seed, "cpu", "e4m3fn")
    return tuple(seen)


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """Answers by backend: filled by the tests below, as far as there are compilers."""
    return {}


@pytest.mark.device
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", DEVICES)
def test_a_kernel_is_as_far_from_the_numbers_as_its_flavour(
    backend: str, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Recorded(case_run.CaseRun):
        def verify_slot(self, slot: case_run.Slot, *arguments: Any, **options: Any) -> Any:
            answers[backend] = Answer(slot.seed, slot.data, slot.memory.outputs()[0].clone())
            return super().verify_slot(slot, *arguments, **options)

    if backend == "cuda":
        monkeypatch.setattr(_emulated, "_chosen", [True])
    monkeypatch.setattr(case_run, "CaseRun", Recorded)
    kernel, gpu = DEVICES[backend]
    found = available(backend)
    if not found.can_compile:
        pytest.skip("; ".join(found.reasons))
    (place,) = targets.places(SETTINGS, backends.get(backend), found, gpu if backend != "cpu" else None)
    if place.device is None:
        pytest.skip(place.reason)
    language = backends.get(backend).language
    (path,) = (ROOT / "kernels" / language / NAME).glob(f"{kernel}.*")
    bench = Bench()
    try:
        check_on(place, Cell(backend, NAME, kernel, path), CASE, bench)
    finally:
        bench.close()

    seed, data, o = answers[backend]
    assert data[0].dtype is FLAVOURS[backend]
    exact = attention(*numbers(seed))
    # Both flavours have three bits of fraction: e4m3fnuz has another range, which a scale takes out.
    quantised = rms(of_codes(data) - exact) / rms(exact)
    kernel_error = rms(o - exact) / rms(exact)
    assert 0 < quantised < LARGEST
    assert kernel_error < OF_KERNELS * quantised, (quantised, kernel_error)


@pytest.mark.device
def test_vendors_are_equally_far_from_the_same_numbers(answers: dict[str, Answer]) -> None:
    if len(answers) < 2:
        pytest.skip("fewer than two backends answered")
    assert len({answer.seed for answer in answers.values()}) == 1
    (seed,) = {answer.seed for answer in answers.values()}
    exact = attention(*numbers(seed))
    errors = {backend: rms(answer.o - exact) / rms(exact) for backend, answer in answers.items()}
    assert max(errors.values()) < OF_KERNELS * min(errors.values()), errors


def test_codes_read_in_the_other_flavour_are_far_away() -> None:
    """What the two tests above would see if a kernel took one flavour for the other: half or twice every number."""
    for mine, other in (("e4m3fn", torch.float8_e4m3fnuz), ("e4m3fnuz", torch.float8_e4m3fn)):
        data = problem_of(NAME).generate(CASE, 1, "cpu", mine)
        exact = attention(*numbers(1))
        wrong = (*(codes.view(torch.uint8).view(other) for codes in data[:3]), *data[3:])
        assert rms(of_codes(data) - exact) < LARGEST * rms(exact)
        # The code of -0 in one is NaN in the other.
        assert not rms(of_codes(wrong) - exact) < 5 * LARGEST * rms(exact)
