# SPDX-License-Identifier: MIT
"""quantize_int8: fp16 to int8 codes with one scale for the tensor, symmetric or with a zero point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import sample_rows, taken
from utils import Expectation, check_outputs, default_device, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"scale": 2.0**-22, "tie": 2.0**-12}


def generate_input(*, n: int, form: str, input: str, seed: int, device: Any = None) -> input_t:
    """(x, form). Deterministic in ``seed`` per device. Normal values have a mean of 1/2, so that no range is
    symmetric by chance; x[0] is never 0."""
    if form not in ("symmetric", "asymmetric"):
        raise ValueError(f"form is symmetric or asymmetric, not {form!r}")
    place = default_device(device)
    rng = generator(seed, place)
    match input:
        case "normal":
            x = 0.5 + torch.randn(n, generator=rng, device=place)
            x[0] = 1.25 + float(torch.rand(1, generator=rng, device=place))
        case "positive":
            x = 0.5 + 1.5 * torch.rand(n, generator=rng, device=place)
        case "zero":
            x = torch.zeros(n, device=place)
        case _:
            raise ValueError(f"input is normal, positive or zero, not {input!r}")
    return x.half(), form


def parameters(x: Tensor, form: str) -> tuple[float, float]:
    """(scale, -lo / scale, the zero point before it is rounded and shifted; 0 if symmetric), in fp64."""
    low, high = (float(value) for value in torch.aminmax(x))
    if form == "symmetric":
        largest = max(-low, high)
        return (largest / 127 if largest else 1.0), 0.0
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255 if high > low else 1.0
    return scale, -low / scale


def near_half(x: Tensor) -> Tensor:
    """Where ``x`` is so close to a half that fp32 division may round it either way."""
    return ((x - x.floor()) - 0.5).abs() < BOUND["tie"]


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (q, scale, zero). ``sample`` limits q to about that many elements, chosen by ``seed``; ``index``
    asks for exactly these instead. The extremes are those of all of x.

    scale is a quotient of exact numbers (differences of fp16 numbers have 11 bits and their exponents' distance): one
    rounding or two in fp32, 2^-24 each, against a bound of 2^-22. x / scale is at most 255 and in error by 2^-22 of
    itself at most, which is 2^-14: within 2^-12 of a half either neighbour is right. Codes are exact elsewhere.
    """
    x, form = data
    index = sample_rows(x.shape[0], sample, seed, x.device) if index is None else index
    scale, before = parameters(x, form)
    shift = torch.tensor([before], dtype=torch.float64, device=x.device)
    zero = torch.round(shift) - 128 if form == "asymmetric" else shift
    loose = near_half(shift) if form == "asymmetric" else torch.zeros(1, dtype=torch.bool, device=x.device)
    quotient = taken(x, index) / scale
    q = (torch.round(quotient) + zero).clamp(-128, 127)
    q_bound = (near_half(quotient) | loose).double()
    scales = torch.tensor([scale], dtype=torch.float64, device=x.device)
    return (
        Expectation("q", q.float(), q_bound.float(), torch.int8, tuple(x.shape), index),
        Expectation("scale", scales, scales * BOUND["scale"], torch.float32, (1,)),
        Expectation("zero", zero, loose.double(), torch.int32, (1,)),
    )


def ref_kernel(data: input_t) -> output_t:
    """(q, scale, zero) in fresh memory."""
    return tuple(expectation.rounded() for expectation in expected(data))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
