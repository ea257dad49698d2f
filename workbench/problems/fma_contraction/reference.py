# SPDX-License-Identifier: MIT
"""fma_contraction: dot products, a polynomial and a product's rounding error, with and without fused multiply-adds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import sample_rows, taken
from utils import Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"term": 2.0**-24, "horner": 2.0**-20}


def generate_input(*, rows: int, n: int, contract: str, seed: int, device: Any = None) -> input_t:
    """(x, y, coefficients, contract), all numbers normal. Deterministic in ``seed`` per device."""
    if contract not in ("fused", "unfused"):
        raise ValueError(f"contract is fused or unfused, not {contract!r}")
    place = default_device(device)
    rng = generator(seed, place)
    x, y = (torch.randn(rows, n, generator=rng, device=place) for _ in range(2))
    return x, y, torch.randn(8, generator=rng, device=place), contract


def residual(a: Tensor, b: Tensor) -> Tensor:
    """What fp32 rounds off of a · b, in fp64: the product of two fp32 numbers has 48 bits, which fp64 holds."""
    return a * b - (a * b).float().double()


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (dots, values, residuals). ``sample`` limits them to about that many rows, chosen by ``seed``;
    ``index`` asks for exactly these instead.

    The bound of dots is n·2^-24·Σ|x·y|, the worst case of n roundings in a row (an unfused term has one more, of its
    product alone). That of values is 16 roundings of at most Σ|c·x^i|. Contraction passes either way. residuals are
    exact either way, and differ: bound 0.
    """
    x, y, coefficients, contract = data
    (count, n) = x.shape
    index = sample_rows(count, sample, seed, x.device) if index is None else index
    left, right, weights = taken(x, index), taken(y, index), coefficients.double()
    products = left * right
    powers = left[:, :1] ** torch.arange(8, device=x.device)
    exact = residual(left[:, 0], right[:, 0])
    rest = exact if contract == "fused" else torch.zeros_like(exact)
    outputs = (
        ("dots", products.sum(1), n * BOUND["term"] * products.abs().sum(1)),
        ("values", (powers * weights).sum(1), BOUND["horner"] * (powers * weights).abs().sum(1)),
        ("residuals", rest, torch.zeros_like(rest)),
    )
    return tuple(Expectation(name, values, bound, torch.float32, (count,), index) for name, values, bound in outputs)


def ref_kernel(data: input_t) -> output_t:
    """(dots, values, residuals) in fresh memory."""
    return tuple(expectation.rounded() for expectation in expected(data))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
