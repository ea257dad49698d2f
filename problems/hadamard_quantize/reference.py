# SPDX-License-Identifier: MIT
"""hadamard_quantize: bf16 rows to fp8 codes with scales, rotated by random signs times a Hadamard matrix or not.

``block_scales.hadamard`` and ``quantise`` are the definition, here in fp64. **What is allowed:** with v = y / scale,

* a code must be v rounded to nearest even. Where v is within δ of the middle of two codes, fp32 may round it either
  way: then the neighbour is right as well.
  Rotated, δ = 2^-20·(‖x‖ / scale + |v|·max ‖x‖ / max |y|). fp32 makes an element of y wrong by some 2^-23·‖x‖
  (log2(dim) sums of a fast transform, or dim products of a tensor core), the maximum, which all of v depends on,
  likewise, and the quotient by 2^-22 at most (a scale, a reciprocal, a product).
  Not rotated, δ = 2^-14·|v|, which means in the middle exactly: v is 448 or 240 times a quotient of two bf16 numbers,
  the middle a number of 5 bits. 7·2^a·m and o·2^b·M with m, M below 2^8 and o below 2^5 are equal or 2^-13 apart.
* a scale may be off by 2^-21 of itself and, rotated, by 2^-20·max ‖x‖ / largest.

Codes are compared as bytes, and those of neighbours of one sign differ by 1. Next to 0 lies a code of either sign, so
what is allowed there is their distance as bytes. The share of a bound that a neighbour takes is 1 / 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from block_scales import BLOCK, SMALLEST, hadamard, levelled, shared, spread_out, with_outliers
from utils import CHUNK, Expectation, check_outputs, default_device, default_fp8, generator, sample_positions

# The constants of the bounds, see above; held from both sides by tests/problems/test_pins.py.
BOUND = {"step": 2.5, "tie": 2.0**-14, "sums": 2.0**-20, "scale": 2.0**-21}
FLAVOURS = {448.0: torch.float8_e4m3fn, 240.0: torch.float8_e4m3fnuz}
SMALLEST_EXPONENT = {448.0: -6, 240.0: -7}     # of a normal number


def generate_input(
    *, batch: int, tokens: int, heads: int, dim: int, rotated: int, scales: str, outliers: int, seed: int,
    device: Any = None, fp8: str | None = None,
) -> input_t:
    """(x, signs, rotated, scales, largest) as ``task.input_t`` says. Deterministic in ``seed`` per device.

    Standard normal numbers, what shares a scale larger or smaller than its neighbours by a factor of 1.4 to 2
    (``levelled``), with ``outliers`` 0.1 % of them 10 to 100 times larger, and each column times 2^U(-1, 1), so that
    the columns that a rotation mixes differ. With more than one block, the last one of the last head is zero.
    """
    place = default_device(device)
    rng = generator(seed, place)
    x = torch.randn(batch, tokens, heads, dim, generator=rng, device=place)
    x *= torch.exp2(2 * torch.rand(dim, generator=rng, device=place) - 1)
    x = levelled(x, scales, rng)
    if outliers:
        x = with_outliers(x, rng)
    if tokens > BLOCK:
        x[-1, (tokens - 1) // BLOCK * BLOCK :, -1] = 0
    signs = (2 * torch.randint(0, 2, (dim,), generator=rng, device=place) - 1).float()
    signs[0], signs[-1] = -1, 1                  # of either sign at least one
    return x.to(torch.bfloat16), signs, bool(rotated), scales, float(torch.finfo(default_fp8(fp8)).max)


# ---- mathematics ----------------------------------------------------------------------------------------------------

def turned(x: Tensor, signs: Tensor, rotated: bool) -> Tensor:
    """y of rows x [..., dim], fp64."""
    if not rotated:
        return x.double()
    size = x.shape[-1]
    return (x.double() * signs.double()) @ (hadamard(size, x.device).sign().double() * size**-0.5)


def batches(x: Tensor) -> Iterator[slice]:
    """Slices of tokens, whole blocks, small enough for a few copies in fp64."""
    step = max(1, CHUNK // (x[:, :1].numel() * BLOCK)) * BLOCK
    return (slice(start, start + step) for start in range(0, x.shape[1], step))


def extremes(data: input_t) -> tuple[Tensor, Tensor]:
    """(largest |y|, largest ‖x‖), fp64, of what shares a scale, in the shape of the scales."""
    x, signs, rotated, scales, _ = data
    made = torch.zeros(2, *x.shape[:3], dtype=torch.float64, device=x.device)
    for part in batches(x):
        made[0, :, part] = turned(x[:, part], signs, rotated).abs().amax(-1)
        made[1, :, part] = x[:, part].double().norm(dim=-1)
    if scales == "tensor":
        return made[0].amax().view(1, 1, 1), made[1].amax().view(1, 1, 1)
    if scales == "head":
        return made[0].amax(1, keepdim=True), made[1].amax(1, keepdim=True)
    blocks = torch.nn.functional.pad(made, (0, 0, 0, -made.shape[2] % BLOCK)).unflatten(2, (-1, BLOCK)).amax(3)
    return blocks[0], blocks[1]


def coded(v: Tensor, largest: float) -> Tensor:
    """The bytes of v (fp64), rounded to nearest even; zeros are 0."""
    codes = v.clamp(-largest, largest).float().to(FLAVOURS[largest]).view(torch.uint8)
    return torch.where(codes == 0x80, 0, codes)


def steps(v: Tensor, largest: float) -> Tensor:
    """The distance of neighbouring codes around v."""
    exponent = torch.frexp(v)[1] - 1
    return torch.ldexp(torch.ones_like(v), exponent.clamp_min(SMALLEST_EXPONENT[largest]) - 3)


def code_rows(data: input_t, scale: Tensor, drift: Tensor, where: Any) -> tuple[Tensor, Tensor]:
    """(codes, bound), fp32, of the rows ``where`` of x; scale and drift [rows, 1] are theirs, fp64."""
    x, signs, rotated, _, largest = data
    rows = x[where]
    v = turned(rows, signs, rotated) / scale
    loose = BOUND["tie"] * v.abs()
    if rotated:
        loose = BOUND["sums"] * (rows.double().norm(dim=-1, keepdim=True) / scale + v.abs() * drift)
    step = steps(v, largest)
    middle = ((v.abs() / step).floor() + 0.5) * step
    near = (v.abs() - middle).abs() <= loose
    below, above = (coded(v.sign() * (middle + part * step), largest).float() for part in (-0.25, 0.25))
    code = coded(v, largest).float()
    return code, torch.where(near, BOUND["step"] * (below - above).abs(), 0.0)


# ---- what is expected -----------------------------------------------------------------------------------------------

def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (codes, scale): two Expectations. ``sample`` limits codes to about that many rows (batch, token,
    head), chosen by ``seed``; ``index`` asks for the rows of a codes-Expectation's index instead. Scales are those of
    all of x.
    """
    x, _, rotated, scales, largest = data
    if index is None and sample is not None and sample < x[..., 0].numel():
        rng = torch.Generator().manual_seed(seed)
        rows = sample_positions(x[..., 0].numel(), sample, x.shape[2], rng)
        index = torch.unravel_index(rows, x.shape[:3])
    largest_y, largest_x = extremes(data)
    size = largest_y.clamp_min(SMALLEST)
    scale, drift = size / largest, largest_x / size
    scale_bound = BOUND["scale"] * scale + (BOUND["sums"] * largest_x / largest if rotated else 0.0)
    each, drifts = (spread_out(part, x.shape[1]).expand(*x.shape[:3], 1) for part in (scale, drift))
    if index is None:
        codes = torch.empty(2, *x.shape, device=x.device)
        for part in batches(x):
            where = (slice(None), part)
            codes[0][where], codes[1][where] = code_rows(data, each[where], drifts[where], where)
        made = (codes[0], codes[1])
    else:
        index = tuple(part.to(x.device) for part in index)
        made = code_rows(data, each[index], drifts[index], index)
    return (
        Expectation("codes", *made, torch.uint8, tuple(x.shape), index),
        Expectation("scale", scale, scale_bound, torch.float32, shared(x, scales)),
    )


def ref_kernel(data: input_t) -> output_t:
    """(codes, scale) in the output dtypes."""
    codes, scale = expected(data)
    return codes.rounded(), scale.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
