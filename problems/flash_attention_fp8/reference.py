# SPDX-License-Identifier: MIT
"""flash_attention_fp8 (forward): softmax(scale · q kᵀ + mask) v and the log-sum-exp per row, from e4m3 operands.

One descale per tensor, per head or per 128 tokens and head. Grouped heads, bottom-right causal mask, any sequence
lengths; rows that see no key give o = 0 and lse = -inf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from attention import UNIT_ROUNDOFF, Drift, dense_attention, drifting_rows
from block_scales import hadamard, levelled, quantise, spread_out, with_outliers
from attention_queries import random_operands, sample_rows, visible_keys
from utils import Expectation, check_outputs, default_device, default_fp8, generator, reference_dtype

# Of steep scores, before what shares a scale is made larger or smaller, which multiplies them by 1/2 to 2. Lower than
# those of bf16: an accumulator of 13 fraction bits leaves the less of scores the larger they are.
LEVELS = (90.0, 110.0, 130.0, 160.0)
# The constants of the bound, see ``expected``; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.0, "weights": 3.0, "floor": 8.0, "scores": 5.0, "adder": 2.0**-15, "lse": 2.0**-10}
E4M3_ROUNDOFF = 2.0**-4       # of a significand of 4 bits
E4M3_FLOOR = 2.0**-13         # smallest normal weight if the largest is at least 2^7


def generate_input(
    *, batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, scales: str, rotated: int, outliers: int,
    seed: int, steep: int = 0, device: Any = None, fp8: str | None = None,
) -> input_t:
    """(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, scales) as ``task.input_t`` says. Deterministic in
    ``seed`` per device.

    Operands begin as those of flash_attention (``random_operands``), in fp32, v 1.75 times larger, so that its scale is
    not that of k. Then, in this order:

    * with scales of more than one element, what shares one is larger or smaller by 2^U(1/4, 1/2), in turns along blocks
      and heads: the scales of neighbours differ by a factor of 1.4 to 2, so none can stand for another one;
    * ``outliers``: 0.1 % of all entries are 10 to 100 times larger, and the softmax scale is dim^-0.5 / 8 in place of
      dim^-0.5: else the few keys with an outlier would take all the weight, and leaving out others could not be seen;
    * ``rotated``: q and k are multiplied by the same orthogonal matrix, random signs times a Hadamard matrix, which
      leaves q·k as it is and spreads an outlier over all columns ("incoherent processing" of FlashAttention-3);
    * quantised: a scale is the largest magnitude of what shares it over the largest code.
    """
    place, dtype = default_device(device), default_fp8(fp8)
    rng = generator(seed, place)
    q, k, v = random_operands(batch, sq, sk, hq, hk, dim, torch.float32, rng, LEVELS if steep else ())
    v = 1.75 * v
    q, k, v = (levelled(x, scales, rng) for x in (q, k, v))
    if outliers:
        q, k, v = (with_outliers(x, rng) for x in (q, k, v))
    if rotated:
        rotation = hadamard(dim, place) * torch.randint(0, 2, (dim, 1), generator=rng, device=place).mul_(2).sub_(1)
        q, k = q @ rotation, k @ rotation
    codes, descales = zip(*(quantise(x, scales, dtype) for x in (q, k, v)), strict=True)
    return *codes, *descales, bool(causal), dim**-0.5 / (8 if outliers else 1), scales


def dequantised(x: Tensor, scale: Tensor, b: int, tokens: Tensor | slice, heads: Tensor | slice | int) -> Tensor:
    """Rows of x [batch, tokens, heads, dim] of batch ``b`` times their scales, exact in fp64: x[b, tokens, heads]."""
    wide = reference_dtype(x.device)
    raw = x.view(torch.uint8) if x.dtype.itemsize == 1 else x        # torch gathers bytes on every device, fp8 not
    rows = raw[b, tokens, heads].view(x.dtype).to(wide)
    each = spread_out(scale, x.shape[1]).expand(*x.shape[:3], 1)
    return rows * each[b, tokens, heads].to(wide)


def floors_of(v_scale: Tensor, v: Tensor) -> Tensor:
    """The share of a row's largest weight below which a key's weight counts as that, times the ratio of the bound's
    constants: fp64 [batch, keys, heads, 1].
    """
    scales = v_scale.to(reference_dtype(v.device))
    shares = scales.amax(1, keepdim=True) / scales * (E4M3_FLOOR * BOUND["floor"] / BOUND["weights"])
    return spread_out(shares, v.shape[1]).expand(*v.shape[:3], 1)


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (o, lse): two Expectations, fp64 mathematics on the dequantised operands.

    ``sample`` limits both to about that many rows (batch, query, head), chosen by ``seed``; ``index`` asks for exactly
    the rows of an o-Expectation's index instead.

    The bounds allow for two products in fp8 and everything else in fp32:

    * 2·2^-8·|o|: o is rounded once to bf16 (2^-8); the other half is for fp32 and for a systematic error of P against
      its row sum, as in ``attention.attention_bounds``.
    * u·sqrt(3²·Σ p²v² + 8²·Σ f²v²), u = 2^-4: P is rounded to e4m3 before it meets V, each p by at most u·p, standard
      deviation 0.42u·p; 3u is seven of those (none is off by more than u, so the tail is no longer than a normal one).
      e5m2 (u = 2^-3) does not pass. Weights must be scaled so that the largest of a row is at least 2^7: then one below
      2^-13 of the largest is subnormal, and as wrong as 2^-13 would be. Where one key has most of a row's weight, the
      others' are a few steps of that format, about equal and rounded the same way, by u·2^-13 of the largest at worst.
      Only the values' signs make a normal number of that sum; so 8 stands where independent errors need 3. Within a
      product, scales of blocks of values can be part of the weights only. Small values then have smaller weights: f is
      2^-13 times the head's largest scale over the block's. An accumulator of 13 fraction bits (Hopper's and Ada's fp8
      tensor cores) adds some 2^-13·3·sqrt(keys / 32) of o: 1 % at 16384 keys, where 3u is 19 %.
    * 5·2^-8·drift, 2^-10 + 5·2^-8·lse_drift (``attention.drifting_rows``): the same accumulator makes a score wrong.
      32 products at a time are cut at 2^-13 of the largest or of the sum so far, which over dim / 32 instructions is
      about 2^-11 to 2^-10 of r = scale·sqrt(Σ_c q_c²k_c²); 0.42·2^-8 of it is the standard deviation that is allowed.
      Where products agree in sign and size, as those of two rotated outliers of one column do, the sum so far is no
      longer about r: it grows to the score s, up to dim^0.5·r. Then each of dim products is cut at 2^-13 of s/2 on
      average, by half of that, and all in one direction: dim·2^-15·|s| is allowed in addition. (Seen: a fifth of it,
      1.6e-3·s at dim 256, as products of e4m3 have but six fraction bits.) They shift lse as a whole, so
      where products must agree, as those of steep scores do, it may err by dim·2^-15·Σ p·max(0, |s| - 5r) more.
    * lse ± 2^-10 for fp32, as in ``attention_bounds``: the row sum is that of the weights before they are rounded.

    o and lse refuse a scale together: lse one of q or k that is wrong by a few per cent, o one of v by 30 %.
    """
    q, k, v, q_scale, k_scale, v_scale, causal, scale, _ = data
    batch, sq, hq, _ = q.shape
    sk, hk, dim = v.shape[1:]
    group, place = hq // hk, q.device
    if index is None and sample is not None and sample < batch * sq * hq:
        index = sample_rows(batch, sq, hq, sample, seed)
    if index is None:
        return _whole(data)
    b_of, i_of, h_of = (part.to(place) for part in index)
    floors = floors_of(v_scale, v)
    visible = visible_keys(i_of, sq, sk, causal)
    o = torch.empty(len(b_of), dim, device=place)
    lse = torch.empty(len(b_of), device=place)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    for b, h in torch.unique(torch.stack([b_of, h_of // group]), dim=1).T.tolist():
        here = ((b_of == b) & (h_of // group == h)).nonzero().squeeze(1)
        seen = slice(0, int(visible[here].max()))        # spares converting keys that nobody sees
        rows = dequantised(q, q_scale, b, i_of[here], h_of[here])
        keys, values = dequantised(k, k_scale, b, seen, h), dequantised(v, v_scale, b, seen, h)
        answer = _rows(rows, keys, values, visible[here], scale, floors[b, seen, h])
        for full, part in zip((o, lse, o_bound, lse_bound), answer, strict=True):
            full[here] = part.float()
    return (
        Expectation("o", o, o_bound, torch.bfloat16, (batch, sq, hq, dim), (b_of, i_of, h_of)),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq), (b_of, h_of, i_of)),
    )


def _whole(data: input_t) -> tuple[Expectation, ...]:
    """``expected`` of all rows."""
    q, k, v, q_scale, k_scale, v_scale, causal, scale, _ = data
    (batch, sq, hq, _), dim = q.shape, v.shape[-1]
    o = torch.empty(batch, hq, sq, dim, device=q.device)
    lse = torch.empty(batch, hq, sq, device=q.device)
    o_bound, lse_bound = torch.empty_like(o), torch.empty_like(lse)
    visible = visible_keys(torch.arange(sq, device=q.device), sq, k.shape[1], causal)
    every, floors = slice(None), floors_of(v_scale, v)
    for b in range(batch):
        operands = (dequantised(x, of, b, every, every)[None] for x, of in ((q, q_scale), (k, k_scale), (v, v_scale)))
        for heads, answer in dense_attention(*operands, visible, scale, _rows, floors[b][None]):
            for full, part in zip((o, lse, o_bound, lse_bound), answer, strict=True):
                full[b, heads] = part.float()
    o, o_bound = (x.transpose(1, 2).contiguous() for x in (o, o_bound))
    return (
        Expectation("o", o, o_bound, torch.bfloat16, (batch, sq, hq, dim)),
        Expectation("lse", lse, lse_bound, torch.float32, (batch, hq, sq)),
    )


def _rows(
    rows: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float, floors: Tensor,
) -> tuple[Tensor, ...]:
    """(o, lse, bound of o, bound of lse): see ``expected``."""
    u = UNIT_ROUNDOFF[torch.bfloat16]
    cut = rows.shape[-1] * BOUND["adder"] / (BOUND["scores"] * u)
    o, spread, lse, drift, lse_drift, lse_bias = drifting_rows(rows, keys, values, visible, scale, Drift(floors, cut))
    assert drift is not None
    assert lse_drift is not None
    assert lse_bias is not None
    noise = ((BOUND["weights"] * E4M3_ROUNDOFF * spread).square() + (BOUND["scores"] * u * drift).square()).sqrt_()
    o_bound = (BOUND["output"] * u * o.abs() + noise) * torch.isfinite(lse).unsqueeze(-1)
    return o, lse, o_bound, BOUND["lse"] + BOUND["scores"] * u * (lse_drift + lse_bias)


def ref_kernel(data: input_t) -> output_t:
    """(o, lse) in the output dtypes."""
    o, lse = expected(data)
    return o.rounded(), lse.rounded().contiguous()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
