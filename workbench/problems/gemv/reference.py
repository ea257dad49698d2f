# SPDX-License-Identifier: MIT
"""gemv: y = A x in fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import sample_rows
from utils import CHUNK, Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"sums": 4 * 2.0**-24, "output": 2.0**-22}


def generate_input(*, m: int, n: int, seed: int, device: Any = None) -> input_t:
    """(a, x), both normal. Deterministic in ``seed`` per device."""
    place = default_device(device)
    rng = generator(seed, place)
    return torch.randn(m, n, generator=rng, device=place), torch.randn(n, generator=rng, device=place)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected y: (Expectation,). ``sample`` limits it to about that many rows, chosen by ``seed``; ``index`` asks
    for exactly these instead. fp64 on every device: the bound is too narrow for fp32.

    The bound per element is 4·2^-24·sqrt(n·Σ(a·x)²) + 2^-22·|y|. The error of n - 1 fp32 additions in a row grows like
    the root of their number times the partial sums' size, here sqrt(Σ(a·x)²) at most: a plain loop stays below 0.37 of
    the bound, sums in parts far below. The worst case n·2^-24·Σ|a·x| would let TF32 operands pass for large n.
    """
    a, x = data
    m, n = a.shape
    index = sample_rows(m, sample, seed, a.device) if index is None else index
    rows = torch.arange(m, device=a.device) if index is None else index[0]
    vector = x.double()
    values, squares = (torch.empty(len(rows), dtype=torch.float64, device=a.device) for _ in range(2))
    step = max(1, CHUNK // n)
    for start in range(0, len(rows), step):
        products = a[rows[start : start + step]].double() * vector
        values[start : start + step] = products.sum(1)
        squares[start : start + step] = products.square().sum(1)
    bound = BOUND["sums"] * torch.sqrt(n * squares) + BOUND["output"] * values.abs()
    return (Expectation("y", values, bound, torch.float32, (m,), index),)


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
