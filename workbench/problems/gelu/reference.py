# SPDX-License-Identifier: MIT
"""gelu: x · Φ(x) in fp16, exactly or by the tanh approximation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import sample_rows, taken
from utils import Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"output": 2.0**-10, "subnormal": 2.0**-24}


def generate_input(*, n: int, form: str, edges: int, seed: int, device: Any = None) -> input_t:
    """(x, form). Deterministic in ``seed`` per device.

    x is normal, clamped to ±4; with ``edges`` uniform over ±10, an eighth of it subnormal, and some ±inf, -0 and +0.
    x[0] is between -3 and -2, where the two forms differ most.
    """
    if form not in ("erf", "tanh"):
        raise ValueError(f"form is erf or tanh, not {form!r}")
    place = default_device(device)
    rng = generator(seed, place)
    if edges:
        x = 20 * torch.rand(n, generator=rng, device=place) - 10
        kind = torch.rand(n, generator=rng, device=place)
        x = torch.where(kind < 1 / 8, x * 2.0**-18, x)
        for number, value in enumerate((math.inf, -math.inf, -0.0, 0.0)):
            x[(kind > 1 - (number + 1) / 64) & (kind <= 1 - number / 64)] = value
    else:
        x = torch.randn(n, generator=rng, device=place).clamp_(-4, 4)
    x[0] = -2 - float(torch.rand(1, generator=rng, device=place))
    return x.half(), form


def gelu(x: Tensor, form: str) -> Tensor:
    """In fp64, without cancellation for negative x."""
    if form == "erf":
        y = 0.5 * x * torch.special.erfc(-x / math.sqrt(2))
    else:
        y = x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return torch.where(x == -math.inf, 0.0, y)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected y: (Expectation,). ``sample`` limits it to about that many elements, chosen by ``seed``; ``index``
    asks for exactly these instead.

    The bound per element is 2^-10·|y| + 2^-24: one rounding to fp16 is at most 2^-11·|y|, or 2^-25 of a subnormal
    result, and as much again for fp32 arithmetic. 1 + erf(x/√2) in fp32 loses all digits below x = -5, which costs more
    than the bound from about -4.5 down; erfc does not.
    """
    x, form = data
    index = sample_rows(x.shape[0], sample, seed, x.device) if index is None else index
    values = gelu(taken(x, index), form)
    bound = values.abs() * BOUND["output"] + BOUND["subnormal"]
    return (Expectation("y", values.float(), bound.float(), torch.float16, tuple(x.shape), index),)


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
