# SPDX-License-Identifier: MIT
"""fp8_gemm: c = a·bᵀ from fp8 operands with one scale per 1×128 block of a and per 128×128 block of b, bf16 out.

The recipe of DeepSeek-V3's linear layers (activations 1×128, weights 128×128). Inputs are made so that no part of the
work can be left out unseen; ``expected`` says how far an honest kernel may be from the fp64 product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from gemm import K_BLOCK, N_BLOCK, block_scaled_product, sample_matrix
from utils import Expectation, check_outputs, default_device, default_fp8, generator


# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.5 * 2.0**-8, "adder": 2.0**-12}


def generate_input(*, m: int, n: int, k: int, seed: int, device: Any = None, fp8: str | None = None) -> input_t:
    """(a, b, a_scale, b_scale, c) as ``task.input_t`` says; c holds NaN. Deterministic in ``seed`` per device.

    Operands are normal with a standard deviation of a quarter of fp8's largest value, clamped: the codes that amax
    quantisation produces, all binades included, never NaN. Scales are sign · 2^U(-1.5, 1.5) with exceptions
    (``_scales``). If m >= 16, five rows of a are special: an outlier row (scales ×2^10), a tiny row (×2^-10), a row of
    zero scales (its c is exactly 0), a row of subnormal operands, and one whose products with eight of the first 128
    rows of b all agree in sign, as after a ReLU: sums that grow with K show whether they are kept in fp32.
    """
    place, dtype = default_device(device), default_fp8(fp8)
    rng = generator(seed, place)
    a, b = (torch.randn(rows, k, generator=rng, device=place) for rows in (m, n))
    a_scale = _scales(m, k // K_BLOCK, rng)
    b_scale = _scales((n + N_BLOCK - 1) // N_BLOCK, k // K_BLOCK, rng)
    a_scale[0, 0] = -a_scale[0, 0].abs()         # one negative product at least, whatever the sizes
    b_scale[0, 0] = b_scale[0, 0].abs()
    if m >= 16:
        outlier, tiny, zero, subnormal, agreeing = (
            1 + torch.randperm(m - 2, generator=rng, device=place)[:5]).tolist()
        a_scale[outlier] *= 2.0**10
        a_scale[tiny] *= 2.0**-10
        a_scale[zero] = 0.0
        a[subnormal] *= 2.0**-14
        a[agreeing] = a[agreeing].abs()
        a_scale[agreeing] = torch.exp2(3 * torch.rand(k // K_BLOCK, generator=rng, device=place) - 1.5)
        b[5:N_BLOCK:16] = b[5:N_BLOCK:16].abs()
        b_scale[0] = b_scale[0].abs()
    largest = torch.finfo(dtype).max
    a8, b8 = (x.mul_(largest / 4).clamp_(-largest, largest).to(dtype) for x in (a, b))
    c = torch.full((m, n), torch.nan, dtype=torch.bfloat16, device=place)
    return a8, b8, a_scale.t().contiguous().t(), b_scale, c


def _scales(rows: int, blocks: int, rng: torch.Generator) -> Tensor:
    """fp32 [rows, blocks]: sign · 2^U(-1.5, 1.5); in about a quarter of the rows an eighth of the entries each is
    exactly 0, ×2^-10 and ×2^10.

    A large block drowns its neighbours and a zero or tiny one is free to skip. So that skipping any block is seen all
    the same, row 0 and most others are plain (all blocks within a factor of 8), and the last block is plain everywhere:
    the last column tile is never legitimately zero.
    """
    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=rng, device=rng.device)

    scale = torch.exp2(3 * uniform(rows, blocks) - 1.5)
    scale = torch.where(uniform(rows, blocks) < 0.5, -scale, scale)
    wild = uniform(rows) < 0.25
    wild[rows // 2] = True
    wild[0] = False
    kind = torch.where(wild[:, None], uniform(rows, blocks), 1.0)
    kind[:, -1] = 1.0
    for threshold, factor in ((3 / 8, 2.0**10), (2 / 8, 2.0**-20), (1 / 8, 0.0)):      # 2^10 · 2^-20 = 2^-10
        scale = torch.where(kind < threshold, scale * factor, scale)
    return scale


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected c: (Expectation,). ``sample`` limits it to about that many rows (and 8 times as many columns),
    chosen by ``seed``; ``index`` asks for exactly these elements instead (an Expectation's index).

    The bound per element is 2.5·2^-8·|c| + 2^-12·Σ|a·b| (scales included):

    * 2^-8·|c|: c is rounded once to bf16 (a significand of 8 bits, so to nearest at most 2^-8 of the value).
    * 1.5·2^-8·|c| more, and 2^-12·Σ|a·b|: the fp8 tensor cores of Hopper and Ada align the products of an instruction
      and its accumulator to the largest of them and cut each at 13 fraction bits. That is some 2^-13 of the sum of
      magnitudes where the products are large, and up to 32 small products cut at 2^-13 of the accumulator where that is
      large, as it is if c is. A model of this (tests/problems) with a promotion to fp32 every 128 columns comes up to
      0.44 of the bound in 1.6·10^6 elements at k = 128 and 256, where errors average out least.
      fp32 sums and rounded products of scales are far below. Zero where all scales are zero: then c must be exactly 0.

    For a plain row Σ|a·b| is about 0.8·sqrt(k) times the size of c, so at k = 16384 the second term is 2.5 % of c's
    standard deviation, while one block of 128 left out changes c by 9 %.
    """
    a, b, a_scale, b_scale, _ = data
    m, n = a.shape[0], b.shape[0]
    if index is None and sample is not None:
        index = sample_matrix(m, n, sample, seed, a.device)
    values, magnitude = block_scaled_product(a, b, a_scale, b_scale, index)
    bound = magnitude.mul_(BOUND["adder"]).add_(values.abs(), alpha=BOUND["output"])
    return (Expectation("c", values, bound, torch.bfloat16, (m, n), index),)


def ref_kernel(data: input_t) -> output_t:
    """c, bf16 [m, n], in fresh memory (data's own c is left alone)."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
