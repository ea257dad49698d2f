# SPDX-License-Identifier: MIT
"""rmsnorm: y = x · w / sqrt(mean(x²) + eps), row by row, in bf16 or fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import in_fp32, sample_rows, taken
from utils import Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"bfloat": 2.0**-8, "float": 2.0**-18}
EPS = 1e-5
TINY = 2.0**-126              # results below fp32's normal numbers may be flushed


def generate_input(*, rows: int, width: int, type: str, seed: int, device: Any = None) -> input_t:
    """(x, weight, eps) as ``task.input_t`` says. Deterministic in ``seed`` per device.

    x is normal with a mean of its own per row, so that a mean that is subtracted shows. One column is 64 times as loud:
    sums that are kept in few bits lose the others. Row 1 is 2^-10 times as loud, so that eps decides; the last of three
    rows or more is zero.
    """
    place = default_device(device)
    dtype = {"bfloat": torch.bfloat16, "float": torch.float32}[type]
    rng = generator(seed, place)
    x = torch.randn(rows, width, generator=rng, device=place) + torch.randn(rows, 1, generator=rng, device=place)
    x[:, int(torch.randint(width, (1,), generator=rng, device=place))] *= 64
    x[1:2] *= 2.0**-10
    if rows > 2:
        x[-1] = 0
    weight = 1 + 0.5 * torch.rand(width, generator=rng, device=place)
    weight[torch.rand(width, generator=rng, device=place) < 0.5] *= -1
    return x.to(dtype), weight.to(dtype), EPS


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected y: (Expectation,). ``sample`` limits it to about that many rows, chosen by ``seed``; ``index`` asks
    for exactly these rows instead.

    The bound per element is 2^-8·|y| for bf16, one rounding to nearest: its worst case lies at the ties just above
    a power of two, where errors of fp32 arithmetic find room. For fp32 it is 2^-18·|y|, that is 64 units of rounding
    2^-24: half of the sum's relative error, the root, the division and two products. Sums in fp32 by lanes stay below
    8 of them; one running fp32 sum of 8192 squares drifts to about 30; bf16 or fp16 sums are refused.
    """
    x, weight, eps = data
    index = sample_rows(x.shape[0], sample, seed, x.device) if index is None else index
    rows = taken(x, index)
    values = rows * weight.double() / torch.sqrt(rows.square().mean(1, keepdim=True) + in_fp32(eps))
    kind = "float" if x.dtype == torch.float32 else "bfloat"
    return (Expectation("y", values, values.abs() * BOUND[kind] + TINY, x.dtype, tuple(x.shape), index),)


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
