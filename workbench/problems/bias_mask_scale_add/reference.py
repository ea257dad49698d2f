# SPDX-License-Identifier: MIT
"""bias_mask_scale_add: y = (x + bias) · mask · scale + residual, fp16 in and out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import in_fp32, sample_rows, taken
from utils import Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"output": 2.0**-11, "subnormal": 2.0**-25, "sums": 2.0**-22}


def generate_input(*, rows: int, width: int, seed: int, device: Any = None) -> input_t:
    """(x, residual, bias, mask, scale). Deterministic in ``seed`` per device.

    All are normal but the mask, 1 with probability 3/4, and scale, 1 / (3/4) and a bit. Of the x that the mask hides, a
    quarter are infinite and a quarter NaN. The first element is not hidden.
    """
    place = default_device(device)
    rng = generator(seed, place)
    x, residual = (torch.randn(rows, width, generator=rng, device=place) for _ in range(2))
    bias = torch.randn(width, generator=rng, device=place)
    mask = torch.rand(rows, width, generator=rng, device=place) < 0.75
    mask[0, 0] = True
    kind = torch.rand(rows, width, generator=rng, device=place)
    x[~mask & (kind < 0.25)] = math.inf
    x[~mask & (kind > 0.75)] = math.nan
    scale = 4 / 3 + 0.1 * float(torch.rand(1, generator=rng, device=place))
    return x.half(), residual.half(), bias.half(), mask.to(torch.uint8), scale


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected y: (Expectation,). ``sample`` limits it to about that many rows, chosen by ``seed``; ``index`` asks
    for exactly these rows instead.

    The bound per element is 2^-11·|y| + 2^-25, one rounding to fp16, and 2^-22·(|(x + bias)·scale| + |residual|) for
    three roundings in fp32, whose errors stay when the two summands cancel. Hidden elements are exact: bound 0.
    """
    x, residual, bias, mask, scale = data
    index = sample_rows(x.shape[0], sample, seed, x.device) if index is None else index
    rest, shown = taken(residual, index), taken(mask, index) != 0
    term = torch.where(shown, (taken(x, index) + bias.double()) * in_fp32(scale), 0.0)
    values = term + rest
    bound = (BOUND["output"] * values.abs() + BOUND["subnormal"] + BOUND["sums"] * (term.abs() + rest.abs()))
    return (Expectation("y", values, torch.where(shown, bound, 0.0), torch.float16, tuple(x.shape), index),)


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
