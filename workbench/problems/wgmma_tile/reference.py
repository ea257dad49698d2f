# SPDX-License-Identifier: MIT
"""wgmma_tile: 64 x n products of one tile each, in fp16, bf16, TF32 or fp8, fp32 out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from rows import sample_rows, tf32
from utils import Expectation, check_outputs, default_device, default_fp8, generator

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_workbench_pins.py.
BOUND = {"sums": 2.0**-20, "eight": 2.0**-12}


def generate_input(
    *, n: int, k: int, type: str, repeat: int, pattern: str, seed: int, device: Any = None, fp8: str | None = None,
) -> input_t:
    """(a, b, pattern). Deterministic in ``seed`` per device. Random operands are normal, rounded to the type;
    those of a picture are the same for every seed but for a factor of 1, 2, 3 or 4."""
    place = default_device(device)
    rng = generator(seed, place)
    if pattern == "picture":
        rows = torch.arange(64, device=place, dtype=torch.float32)
        factor = 1 + int(torch.randint(4, (1,), generator=rng, device=place))
        a = factor * rows[None, :, None].expand(repeat, 64, k)
        b = torch.nn.functional.one_hot(torch.arange(n, device=place) % k, k).float().expand(repeat, n, k)
    elif pattern == "random":
        a, b = (torch.randn(repeat, rows, k, generator=rng, device=place) for rows in (64, n))
    else:
        raise ValueError(f"pattern is random or picture, not {pattern!r}")
    match type:
        case "half" | "bfloat":
            dtype = torch.float16 if type == "half" else torch.bfloat16
            a, b = a.to(dtype), b.to(dtype)
        case "tfloat":
            a, b = tf32(a), tf32(b)
        case "eight":
            a, b = a.to(default_fp8(fp8)), b.to(default_fp8(fp8))
        case _:
            raise ValueError(f"type is half, bfloat, tfloat or eight, not {type!r}")
    return a.contiguous(), b.contiguous(), pattern


def _tiles(x: Tensor, index: tuple[Tensor, ...] | None) -> Tensor:
    """The tiles that ``index`` names, in fp64: torch gathers bytes on every device, fp8 not on all."""
    return (x if index is None else x.view(torch.uint8).index_select(0, index[0]).view(x.dtype)).double()


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected c: (Expectation,). ``sample`` limits it to about a sixteenth as many tiles, chosen by ``seed``;
    ``index`` asks for exactly these instead.

    The bound per element is 2^-20·Σ|a·b| for fp16, bf16 and TF32, whose products are exact in fp32 and whose sums are
    kept there: 16 units of rounding of the sum of magnitudes. For fp8 it is 2^-12·Σ|a·b| as in fp8_gemm: the adder
    of Hopper and Ada keeps 13 fraction bits, and sums of 128 products at most may stay in it.
    """
    a, b, _pattern = data
    repeat, n = a.shape[0], b.shape[1]
    if index is None and sample is not None:
        index = sample_rows(repeat, max(2, sample // 16), seed, a.device)
    left, right = (_tiles(x, index) for x in (a, b))
    values = left @ right.transpose(1, 2)
    magnitude = left.abs() @ right.abs().transpose(1, 2)
    bound = magnitude * BOUND["eight" if a.element_size() == 1 else "sums"]
    return (Expectation("c", values, bound, torch.float32, (repeat, 64, n), index),)


def ref_kernel(data: input_t) -> output_t:
    """c in fresh memory."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
