# SPDX-License-Identifier: MIT
"""amd_mla_decode: one decode step of a whole MLA layer, from the AMD Developer Challenge 2025 (leaderboard
amd-mla-decode): low-rank projections, RoPE, cache append, attention of 128 heads, output projection.

Written from the published interface. What differs from the challenge: the config is a dict, the cache
a plain tensor with NaN behind its filled rows, the newest row is an output of its own, and the bound is derived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from utils import CHUNK, Expectation, check_outputs, default_device, generator, reference_dtype

HEADS, LATENT, NOPE, ROPE, VALUE = 128, 512, 128, 64, 128
WIDTH = LATENT + ROPE                     # columns of a cached token
MAX_LEN = 8192                            # rows of the cache
SCALE = (NOPE + ROPE) ** -0.5
# RoPE's base in bf16, in which the challenge takes the powers: 10000 is rounded to 9984.
BASE = 9984.0
NEEDLES = (0, HEADS - 1)                  # heads that look at the newest token
STEEP_HEADS, STEEPNESS = range(5, HEADS, 16), 48.0          # heads with larger queries, how much larger, if steep
# The constants of the bounds, see ``expected``; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.0, "carried": 5.0, "row": 2.0}
UNIT = 2.0**-8                            # of bf16: the largest relative error of a conversion to nearest

Config = Mapping[str, Any]


# ---- inputs ---------------------------------------------------------------------------------------------------------

def generate_input(
    *, batchsize: int, dim: int, dq: int, prefill: int, seed: int, steep: int = 0, device: Any = None,
) -> input_t:
    """(config, x, kv_cache) as ``task.input_t`` says; deterministic in ``seed``.

    Weights are normal with a deviation of 1/sqrt(columns), x and the cached rows standard normal: queries and keys of a
    head then have a deviation of 1, so do the scores. A token among thousands would hardly matter; so that a newest
    token that is not read shows, the heads of ``NEEDLES`` lean towards it. Their query and key maps have g on a
    diagonal, and the rows of q_down behind that diagonal are those of kv_down: the score of the newest token is
    g^2 |c|^2 / sqrt(192) for the part c of its latent, and g makes that ln(tokens) - 1.5, about a tenth of the weight.

    The challenge has no case with ``steep``: the scores of ``STEEP_HEADS`` have a deviation of ``STEEPNESS``. Among
    some hundred tokens the largest is beyond the range of fp32's exponentials, and far larger than all before it.
    """
    place = default_device(device)
    rng = generator(seed, place)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=rng, device=place).mul_(scale).to(torch.bfloat16)

    q_down = normal(dq, dim, scale=dim**-0.5)
    kv_down = normal(WIDTH, dim, scale=dim**-0.5)
    q_up = normal(HEADS * (NOPE + ROPE), dq, scale=dq**-0.5)
    kv_up = normal(HEADS * (NOPE + VALUE), LATENT, scale=LATENT**-0.5)
    wo = normal(dim, HEADS * VALUE, scale=(HEADS * VALUE) ** -0.5)

    lean = min(NOPE, dq)
    diagonal = math.sqrt(max(1.0, math.log(prefill + 1) - 1.5) / (SCALE * lean))
    q_down[:lean] = kv_down[:lean]
    columns = torch.arange(lean, device=place)
    for head in NEEDLES:
        q_up[head * (NOPE + ROPE) + columns, columns] += diagonal
        kv_up[head * (NOPE + VALUE) + columns, columns] += diagonal

    if steep:
        for head in STEEP_HEADS:
            q_up[head * (NOPE + ROPE) : (head + 1) * (NOPE + ROPE)] *= STEEPNESS

    kv_cache = torch.full((batchsize, MAX_LEN, WIDTH), torch.nan, dtype=torch.bfloat16, device=place)
    for filled in kv_cache[:, :prefill]:
        filled.copy_(normal(prefill, WIDTH))
    config = {
        "batch_size": batchsize, "dim": dim, "n_heads": HEADS, "q_lora_rank": dq, "kv_lora_rank": LATENT,
        "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "seq_len": 1, "max_seq_len": MAX_LEN,
        "prefill": prefill, "Q_proj_down_weight": q_down, "Q_proj_up_weight": q_up, "KV_proj_down_weight": kv_down,
        "KV_proj_up_weight": kv_up, "wo_weight": wo,
    }
    return config, normal(batchsize, 1, dim), kv_cache


# ---- what the layer computes ----------------------------------------------------------------------------------------

def rotations(positions: Tensor, dtype: torch.dtype, rounded: bool = True) -> tuple[Tensor, Tensor]:
    """(cos, sin) of the positions' angles, [n, 32], as the challenge has them.

    Frequencies, positions, angles, sines and cosines are each rounded to bf16. From position 256 on several tokens
    share an angle, which is part of the definition: a kernel with exact angles gets other scores. ``rounded`` False
    leaves the roundings out.
    """
    def bf16(x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).to(torch.float64) if rounded else x

    half = torch.arange(ROPE // 2, dtype=torch.float64, device=positions.device)
    angles = bf16(bf16(positions.double())[:, None] * bf16(BASE ** (-half / (ROPE // 2))))
    return bf16(angles.cos()).to(dtype), bf16(angles.sin()).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., 64] rotated: column i and column i + 32 are a pair; cos and sin [..., 32]."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def product(rows: Tensor, weight: Tensor, squared: bool = False) -> Tensor:
    """rows [r, k] times weight [n, k] transposed, in the dtype of ``rows``, in chunks; with the weight's squares."""
    out = rows.new_empty(len(rows), len(weight))
    step = max(1, CHUNK // weight.shape[1])
    for begin in range(0, len(weight), step):
        part = weight[begin : begin + step].to(rows.dtype)
        out[:, begin : begin + step] = rows @ (part.square_() if squared else part).T
    return out


def _attention(queries: Tensor, keys: Tensor, maximum: bool = True) -> tuple[Tensor, Tensor]:
    """(latent output [h, 512], its error variance in units of UNIT^2) of queries [h, 576] over keys [n, 576].

    How far roundings move the output, each of them relative and independent, with standard deviation 1:

    * of p and of v: twice sum p^2 v^2;
    * of the factors of the scores, five in a row at most (latent query, query, absorbed query, rotation, the score
      itself): a score is off by r = scale sqrt(sum q^2 k^2), the output by sqrt(sum p^2 r^2 (v - o)^2);
    * but an error of one query column moves the scores of all tokens together, by its key, and a key's first 512
      columns are the value: the output's column d is off by scale q_d times the variance of column d under p. This does
      not shrink with the number of tokens.

    ``maximum`` False is a wrong answer: exponentials in fp32, of which no maximum is subtracted.
    """
    values = keys[:, :LATENT]
    squares = values.square()
    scores = queries @ keys.T * SCALE
    p = torch.softmax(scores, -1) if maximum else scores.float().exp().to(scores.dtype)
    p = p / p.sum(-1, keepdim=True)
    out = p @ values
    variance = p @ squares - out.square()
    p2 = p.square()
    spread = p2 @ squares
    moved = p2 * (queries.square() @ keys.square().T) * SCALE**2
    drift = moved @ squares + out * (out * moved.sum(1, keepdim=True) - 2 * (moved @ values))
    together = (SCALE * queries[:, :LATENT] * variance).square()
    return out, out.square() + 2 * spread + 5 * (drift.clamp_min(0.0) + together)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """What (y, kv_row) must be. ``sample`` limits both to a few requests, one per 128 of it but at least two, chosen by
    ``seed``; ``index`` asks for exactly these requests instead (an Expectation's index).

    Bounds, with u = 2^-8 and every rounding's error as large as it may be:

    * kv_row is one product rounded once: 2u|row|, and 2u sqrt(sum x^2 w^2) for those who add partial sums in bf16.
    * y: roundings on the way are carried forward as variances, as independent ones are: those of the latent output
      (``_attention``) through the squares of the value map and of the output projection, with those of the heads'
      outputs (three: the rounding itself, partial sums of bf16 before and behind it). A conversion to nearest has a
      standard deviation of 0.42u, so that five times u is twelve of them. And 2u|y| for the last rounding.
    """
    config, x, kv_cache = data
    batch, tokens = len(x), int(config["prefill"])
    if index is None and sample is not None and batch > 2:
        index = (_requests(batch, sample, seed).to(x.device),)
    requests = torch.arange(batch, device=x.device) if index is None else index[0].to(x.device)
    dtype = reference_dtype(x.device)
    rows = x[requests, 0].to(dtype)

    kv_row = product(rows, config["KV_proj_down_weight"])
    row_spread = product(rows.square(), config["KV_proj_down_weight"], squared=True).sqrt_()
    q = product(product(rows, config["Q_proj_down_weight"]), config["Q_proj_up_weight"])
    q = q.view(len(rows), HEADS, NOPE + ROPE)
    maps = config["KV_proj_up_weight"].view(HEADS, NOPE + VALUE, LATENT)
    key_map, value_map = maps[:, :NOPE].to(dtype), maps[:, NOPE:].to(dtype)
    exact = config.get("exact_angles", False)          # of a mutant
    cos, sin = rotations(torch.arange(tokens + 1, device=x.device), dtype, not exact)
    at = int(config.get("query_position", tokens))     # of a mutant
    queries = torch.cat([
        torch.einsum("rhk,hkl->rhl", q[..., :NOPE], key_map), rotate(q[..., NOPE:], cos[at], sin[at])], -1)

    latent, moved = torch.empty_like(queries[..., :LATENT]), torch.empty_like(queries[..., :LATENT])
    for number, request in enumerate(requests.tolist()):
        keys = torch.cat([kv_cache[request, :tokens].to(dtype), kv_row[number : number + 1]])
        keys[:, LATENT:] = rotate(keys[:, LATENT:], cos, sin)
        latent[number], moved[number] = _attention(
            queries[number], keys[: config.get("seen", tokens + 1)], config.get("maximum", True))
    heads = torch.einsum("rhl,hvl->rhv", latent, value_map)
    moved = torch.einsum("rhl,hvl->rhv", moved, value_map.square()) + 3 * heads.square()
    y = product(heads.flatten(1), config["wo_weight"])
    y_spread = product(moved.flatten(1), config["wo_weight"], squared=True).sqrt_()

    y_bound = BOUND["output"] * UNIT * y.abs() + BOUND["carried"] * UNIT * y_spread
    row_bound = BOUND["row"] * UNIT * (kv_row.abs() + row_spread)
    dim = x.shape[2]
    return (
        Expectation("y", y[:, None], y_bound[:, None], torch.bfloat16, (batch, 1, dim), index),
        Expectation("kv_row", kv_row[:, None], row_bound[:, None], torch.bfloat16, (batch, 1, WIDTH), index),
    )


def _requests(batch: int, sample: int, seed: int) -> Tensor:
    """One request per 128 rows of ``sample``, at least two: both halves of the batch have some."""
    rng = torch.Generator().manual_seed(seed)
    half, count = batch // 2, max(1, sample // (2 * HEADS))
    first = torch.randperm(half, generator=rng)[:count]
    second = half + torch.randperm(batch - half, generator=rng)[:count]
    return torch.cat([first, second]).sort().values


def ref_kernel(data: input_t) -> output_t:
    """(y, kv_row) in the output dtypes; the cache is left as it is."""
    y, kv_row = expected(data)
    return y.rounded(), kv_row.rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
