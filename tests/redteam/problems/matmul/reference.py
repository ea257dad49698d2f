# SPDX-License-Identifier: MIT
"""matmul: c = diag(s)·a·bᵀ in fp32, with inputs in which no part of the work is negligible."""

from __future__ import annotations

from typing import Any

import torch
from task import input_t, output_t
from utils import Expectation, check_outputs, default_device, generator


def generate_input(*, m: int, n: int, k: int, seed: int, device: Any = None) -> input_t:
    """a and b normal, s = ±2^U(-1.5, 1.5), c NaN."""
    place = default_device(device)
    rng = generator(seed, place)
    a, b = (torch.randn(rows, k, generator=rng, device=place) for rows in (m, n))
    sign = 1 - 2 * torch.randint(0, 2, (m,), generator=rng, device=place)
    s = sign * torch.exp2(3 * torch.rand(m, generator=rng, device=place) - 1.5)
    return a, b, s, torch.full((m, n), torch.nan, device=place)


def expected(data: input_t, sample: int | None = None) -> tuple[Expectation, ...]:
    """The fp64 product, within 2^-19·Σ|s·a·b| + 2^-22·|c|.

    fp32 sums of 512 products in any usual order come to about a hundredth of that. Operands rounded to ten mantissa
    bits (TF32) differ by about 2^-12·sqrt(k)·|ab|, some 2^-16.5 of Σ|ab| at k = 512: many times the bound.
    """
    a, b, s, _ = data
    scale = s.double()[:, None]
    values = scale * (a.double() @ b.double().t())
    magnitude = scale.abs() * (a.double().abs() @ b.double().abs().t())
    bound = magnitude * 2.0**-19 + values.abs() * 2.0**-22
    return (Expectation("c", values, bound, torch.float32, tuple(values.shape)),)


def ref_kernel(data: input_t) -> output_t:
    """c in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message)."""
    return check_outputs(expected(data), output)
