# SPDX-License-Identifier: MIT
"""y = alpha * x. One multiplication, correctly rounded, so the bound is zero."""

from __future__ import annotations

from typing import Any

import torch
from task import input_t, output_t
from utils import Expectation, check_outputs, default_device, generator


def generate_input(*, n: int, seed: int, device: Any = None) -> input_t:
    """x normal, alpha a power of two, y NaN."""
    place = default_device(device)
    rng = generator(seed, place)
    x = torch.randn(n, generator=rng, device=place)
    alpha = 2.0 ** int(torch.randint(-3, 4, (1,), generator=rng, device=place))
    return x, alpha, torch.full((n,), torch.nan, device=place)


def expected(data: input_t, sample: int | None = None) -> tuple[Expectation, ...]:
    """The exact product."""
    x, alpha, _ = data
    values = x * alpha
    return (Expectation("y", values, torch.zeros_like(values), torch.float32, tuple(x.shape)),)


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message)."""
    return check_outputs(expected(data), output)
