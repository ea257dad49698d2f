# SPDX-License-Identifier: MIT
"""mla_decode_fp8: mla_decode over a cache of 656 bytes per token, e4m3 with a scale per 128 latent columns.

The cache format that FlashMLA publishes (README, "FP8 with scale"): 512 e4m3, four fp32 scales, 64 rotary columns in
bf16. Attention is dense here: every query sees every token of its request.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import UNIT_ROUNDOFF, Drift, drifting_rows
from latent import BLOCK, LATENT, SOFTMAX_SCALE, expected_rows, paged_batch, rows_of_request
from utils import Expectation, check_outputs, default_device, default_fp8, reference_dtype

# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.0, "noise": 5.0, "keys": 5.0, "lse": 2.0**-10}

SCALES = LATENT // BLOCK                         # of a token
TOKEN_BYTES = LATENT + 4 * SCALES + 2 * 64       # 656


def generate_input(
    *, batch: int, sq: int, hq: int, sk: int, lens: str, causal: int, seed: int, steep: int = 0,
    device: Any = None,
    fp8: str | None = None,
) -> input_t:
    """(q, kv_cache, block_table, seqlens, causal, softmax_scale) as ``task.input_t`` says; deterministic in ``seed``.

    What the values are: ``latent.paged_batch``, with ``levels``, so that no scale can stand for another one.
    """
    place = default_device(device)
    q, cache, *rest = paged_batch(
        batch=batch, sq=sq, hq=hq, sk=sk, lens=lens, seed=seed, place=place, levels=True, steep=steep)
    return q, quantise(cache, default_fp8(fp8)), *rest, bool(causal), SOFTMAX_SCALE


def quantise(cache: Tensor, dtype: torch.dtype) -> Tensor:
    """[..., 656] of ``dtype``, fp8, from bf16 [..., 576]: codes, and as raw bytes the scales and the rotary columns.

    A scale is the largest magnitude of its 128 columns over the largest code. NaN stays NaN in all three parts.
    """
    packed = torch.empty(*cache.shape[:-1], TOKEN_BYTES, dtype=torch.uint8, device=cache.device)
    largest = torch.finfo(dtype).max
    for part, out in zip(cache.split(1024), packed.split(1024), strict=True):    # in parts: fp32 would be gigabytes
        blocks = part[..., :LATENT].float().unflatten(-1, (SCALES, BLOCK))
        scale = blocks.abs().amax(-1).clamp_min(1e-4) / largest
        codes = (blocks / scale.unsqueeze(-1)).clamp_(-largest, largest).to(dtype).flatten(-2)
        out[..., :LATENT] = codes.view(torch.uint8)
        out[..., LATENT:-128] = scale.view(torch.uint8)
        out[..., -128:] = part[..., LATENT:].contiguous().view(torch.uint8)
    return packed.view(dtype)


def unpack(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(codes [..., 4, 128], scales [..., 4], rotary columns [..., 64]) of cache rows, in ``reference_dtype``."""
    wide, raw = reference_dtype(rows.device), rows.view(torch.uint8)
    codes = rows[..., :LATENT].to(wide).unflatten(-1, (SCALES, BLOCK))
    scales = raw[..., LATENT:-128].contiguous().view(torch.float32).to(wide)
    return codes, scales, raw[..., -128:].contiguous().view(torch.bfloat16).to(wide)


def dequantise(codes: Tensor, scales: Tensor, rotary: Tensor) -> Tensor:
    """Tokens [..., 576]: exact in fp64."""
    return torch.cat([(codes * scales.unsqueeze(-1)).flatten(-2), rotary], -1)


def tokens_of(data: input_t, request: int) -> Tensor:
    """The dequantised tokens of a request, [length, 576]."""
    return dequantise(*unpack(rows_of_request(data, request)))


def _rows(rows: Tensor, tokens: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(o, lse, bound of o, bound of lse), where bounds allow for what ``expected`` says."""
    o, spread, lse, drift, lse_drift, _ = drifting_rows(
        rows, tokens, tokens[..., :LATENT], visible, scale, Drift(columns=LATENT))
    assert drift is not None
    assert lse_drift is not None
    u = UNIT_ROUNDOFF[torch.bfloat16]
    noise = (2 * spread.square() + drift.square()).sqrt_()
    o_bound = (BOUND["output"] * u * o.abs() + BOUND["noise"] * u * noise) * torch.isfinite(lse).unsqueeze(-1)
    return o, lse, o_bound, BOUND["lse"] + BOUND["keys"] * u * lse_drift


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations, fp64 mathematics on the dequantised cache.

    ``sample`` limits both to about that many rows (request, query, head), chosen by ``seed``; ``index`` asks for
    exactly the rows of an o-Expectation's index instead. Touches no slot beyond a request's length.

    The bounds are those of ``attention.attention_bounds`` for bf16 (u = 2^-8) and what comes of a code times its
    scale, which has more bits than bf16 where the scale is no power of two: a kernel that multiplies in bf16 rounds it.
    Like the rounding of P that of a column is independent of the others and has a standard deviation of 0.42u of it:

    * of a value: as much again as that of P, 5u·sqrt(2·Σp²v²) for both together.
    * of a key: the score is off by r = scale·sqrt(Σ_c q_c²k_c²) times 0.42u, over the latent columns, as the rotary
      ones are bf16 in the cache; the weight p by that share of it, o by p·r·(v - o) and lse by p·r. Twelve standard
      deviations again: bound of o 2u·|o| + 5u·sqrt(Σp²(2v² + r²(v - o)²)), of lse 2^-10 + 5u·sqrt(Σp²r²).

    A kernel that applies the scales in fp32 stays within the bounds of mla_decode; q in fp8 (u = 2^-4) does not pass.

    What the format itself costs is outside of the bounds, since the exact answer is that of the dequantised cache
    (benchmarks/mla_decode_fp8.md).
    """
    return expected_rows(data, sample, seed, index, lambda rows: dequantise(*unpack(rows)), _rows)


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
