# SPDX-License-Identifier: MIT
"""foreign: softmax of scaled rows, as a leaderboard's folder would state it: three functions and no more."""

import torch
from task import input_t, output_t


def generate_input(rows: int, cols: int, seed: int) -> input_t:
    """x normal with one large element in each row, scale in [0.5, 1.5]."""
    place = "cuda" if torch.cuda.is_available() else "cpu"
    rng = torch.Generator(device=place).manual_seed(seed)
    x = torch.randn(rows, cols, generator=rng, device=place)
    x[torch.arange(rows, device=place), torch.randint(0, cols, (rows,), generator=rng, device=place)] += 3.0
    return x, 0.5 + float(torch.rand(1, generator=rng, device=place))


def ref_kernel(data: input_t) -> output_t:
    """y in fresh memory."""
    x, scale = data
    return torch.softmax(x.double() * scale, dim=-1).float()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """Every element within 2^-16 of its value: finite, and no wider than fp32 arithmetic needs."""
    expected = ref_kernel(data)
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return False, f"expected {expected.dtype} {list(expected.shape)}"
    good = torch.isfinite(output) & ((output - expected).abs() <= 2.0**-16 * expected.abs())
    return bool(good.all()), f"{int((~good).sum())} elements are wrong"
