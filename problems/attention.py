# SPDX-License-Identifier: MIT
"""Attention in high precision with its error bounds: shared by flash_attention and mla_decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from utils import CHUNK, reference_dtype

# Largest relative error of one conversion to nearest: 2^-p for a significand of p bits, the leading one included.
UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# Weights below that share of the row's largest are subnormal in the dtype, as wrong as the share would be.
WEIGHT_FLOOR = {torch.float16: 2.0**-14}
# The constants of ``attention_bounds``. tests/problems/test_pins.py holds these and those of other references from both
# sides: honest arithmetic needs less than half, and a wrong answer gets by with four times as much.
BOUND = {"output": 2.0, "weights": 5.0, "lse": 2.0**-10}


class Rows(NamedTuple):
    """Query rows and how far roundings move them; what ``attention_rows`` does not give is None unless asked for."""

    o: Tensor                 # [..., r, dv]
    spread: Tensor            # [..., r, dv]
    lse: Tensor               # [..., r]
    drift: Tensor | None      # [..., r, dv]
    lse_drift: Tensor | None  # [..., r]
    lse_bias: Tensor | None   # [..., r]


def attention_rows(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """(o [r, dv], spread [r, dv], lse [r]) for query rows that see a prefix of the keys, in ``reference_dtype``: fp64.

    q [r, d], k [s, d], v [s, dv] of any float dtype; ``visible`` [r] counts the keys each row sees. ``spread`` is
    sqrt(sum_j p_j^2 v_j^2): the standard deviation of o, in units of the roundoff, if every p_j is rounded
    independently, where a p_j below ``WEIGHT_FLOOR`` of the row's largest counts as that. A row that sees no key has
    o = 0, spread = 0 and lse = -inf.

    q, k and v may have more dimensions in front, the same in all: heads, say. ``visible`` then has them too, or is the
    same for all. Many heads at once are much faster where rows are few, as a GPU waits for the next command otherwise.
    """
    return _rows(q, k, v, visible, scale, None)[:3]


class Drift(NamedTuple):
    """What rounds scores: see ``drifting_rows``."""

    floor: float | Tensor = 0.0
    cut: float = 0.0
    columns: int | None = None


NO_DRIFT = Drift()


def drifting_rows(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float, drift: Drift = NO_DRIFT) -> Rows:
    """As ``attention_rows``, and what it does to o and lse if the scores themselves are rounded.

    A score whose products q_c k_c are wrong by a relative error of their own, with standard deviation 1 (in units of
    the roundoff), is wrong by r_j = scale * sqrt(sum_c q_c^2 k_c^2), and p_j with it. So ``lse_drift`` is
    sqrt(sum_j p_j^2 r_j^2), and ``drift``, as the weights still add up to 1, sqrt(sum_j p_j^2 r_j^2 (v_j - o)^2).
    ``floor``: a p_j below that share of the row's largest is as wrong as this share would be (a format's subnormals);
    a share of all keys, or [..., s, 1].
    ``cut``: a score s_j is also wrong by that share of itself: r_j^2 + cut^2 s_j^2 stands in the place of r_j^2. Where
    a score is so large that its products must agree in sign, |s_j| > 5 r_j, these errors have one direction and do not
    average out: ``lse_bias`` is cut · sum_j p_j max(0, |s_j| - 5 r_j). (If all scores of a row shift, o stays.)
    ``columns``: only the products of that many first columns are wrong.
    """
    return _rows(q, k, v, visible, scale, drift)


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float,
    rows_of: Callable[..., tuple[Tensor, ...]] = attention_rows, *beside: Tensor,
) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """What ``rows_of`` says of a batch, some heads at a time: (which, its answers, [n, sq, …] each).

    q [b, sq, hq, d], k [b, sk, hk, d], v [b, sk, hk, dv], ``visible`` [sq]; ``which`` are heads of all b · hq, those of
    a batch element one after the other. ``rows_of`` is called with q, k, v, visible, scale and ``beside``, which has
    the dimensions of k.
    """
    (batch, sq, hq, _), (_, sk, hk, _) = q.shape, k.shape
    group = hq // hk
    q, k, v, *beside = (x.transpose(1, 2).reshape(batch * hk, -1, x.shape[-1]) for x in (q, k, v, *beside))
    for some in at_once(batch * hk, group * sq, sk, v.shape[-1], q.device):
        answer = rows_of(q[some], k[some], v[some], visible.repeat(group), scale, *(x[some] for x in beside))
        which = slice(some.start * group, some.stop * group)
        yield which, tuple(part.reshape(-1, sq, *part.shape[2:]) for part in answer)


def at_once(count: int, rows: int, keys: int, width: int, device: torch.device) -> Iterator[slice]:
    """Pieces of ``count`` heads to give to ``attention_rows`` at once, with ``rows`` and ``keys`` of ``width`` columns.
    """
    step = max(1, min(4 * _scores(device) // max(1, rows * keys), 2 * _scores(device) // max(1, keys * width)))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def _sums_to(sums: Tensor, visible: Tensor) -> Tensor:
    """[..., r, dv]: of running ``sums`` [..., s, dv] over the keys those of the first ``visible`` [..., r] ones."""
    last = (visible - 1).clamp(0, sums.shape[-2] - 1).unsqueeze(-1)
    last = last.expand(*sums.shape[:-2], *last.shape[-2:-1], sums.shape[-1])
    return sums.gather(-2, last.long()).masked_fill_(visible.unsqueeze(-1) <= 0, 0.0)


def row_parts(visible: Tensor, rows: int, keys: int) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Pieces of ``rows`` small enough for a few matrices of them by ``keys``, those of all heads; and how many keys all
    rows, and some row, of a piece see. ``visible`` [..., rows]; the GPU is asked once.
    """
    limits = visible.cpu()
    step = max(1, _scores(visible.device) // max(1, keys))
    if int(limits.min()) < int(limits.max()):    # a mask: of keys that no row of a piece sees nothing is computed
        step = min(step, max(256, -(-rows // 8)))
    for first in range(0, rows, step):
        least, most = limits[..., first : first + step].aminmax()
        yield slice(first, first + step), (int(least), int(most))


def _scores(device: torch.device) -> int:
    """How many scores to compute at a time. A GPU wants many: its matrix products are of few columns."""
    return CHUNK * (4 if device.type == "cuda" else 1)


def _rows(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float, drifts: Drift | None,
) -> Rows:
    dtype = reference_dtype(q.device)
    k, v = k.to(dtype), v.to(dtype)
    squares = v.square()
    drifting, (floor, cut, columns) = drifts is not None, drifts or Drift(WEIGHT_FLOOR.get(q.dtype, 0.0))
    key_squares, both = (k[..., :columns].square(), torch.cat([squares, v], -1)) if drifting else (k, v)
    floored = isinstance(floor, Tensor) or floor > 0
    sums_of_squares = (v * floor).square_().cumsum(-2) if floored else squares
    infinite = drifting and not bool(torch.isfinite(k).all())
    o = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=dtype, device=q.device)
    spread, drift = torch.zeros_like(o), torch.zeros_like(o) if drifting else None
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=dtype, device=q.device)
    lse_drift = torch.zeros_like(lse) if drifting else None
    lse_bias = torch.zeros_like(lse) if cut else None
    keys = torch.arange(k.shape[-2], device=q.device)
    for some, (least, seen) in row_parts(visible, q.shape[-2], k.shape[:-1].numel()):
        if seen <= 0:
            continue
        part, rows = (..., some), (..., some, slice(None))
        queries = q[rows].to(dtype) * scale
        p = queries @ k[..., :seen, :].mT
        moved = queries[..., :columns].square() @ key_squares[..., :seen, :].mT if drifting else p
        agreeing = p
        if cut:
            agreeing = p.abs().add_(moved.sqrt(), alpha=-5.0).clamp_min_(0.0)
            moved.addcmul_(p, p, value=cut**2)
        edge = (..., slice(max(0, least), seen))
        hidden = keys[edge] >= visible[part].unsqueeze(-1)
        if least < seen:
            p[edge].masked_fill_(hidden, -torch.inf)
        top = p.amax(-1, keepdim=True)
        top = torch.where(torch.isinf(top), 0.0, top)
        p.sub_(top).exp_()                       # the weights times their sum
        total = p.sum(-1, keepdim=True)
        lse[part] = (top + total.log()).squeeze(-1)
        total = torch.where(total == 0, 1.0, total)
        answer = (p @ v[..., :seen, :]).div_(total)
        o[rows] = answer
        if lse_bias is not None:
            if infinite:
                agreeing.masked_fill_(p == 0, 0.0)
            lse_bias[part] = agreeing.mul_(p).sum(-1, keepdim=True).div_(total).squeeze(-1) * cut
        p.square_()
        if drift is not None and lse_drift is not None:
            moved.mul_(p)
            if infinite:
                moved.masked_fill_(p == 0, 0.0)  # a key of -inf has no weight to move
            sums = moved.sum(-1, keepdim=True).div_(total.square())
            lse_drift[part] = sums.squeeze(-1).sqrt()
            of_squares, of_values = (moved @ both[..., :seen, :]).div_(total.square()).split(v.shape[-1], -1)
            variance = of_squares + answer * (answer * sums - 2 * of_values)
            drift[rows] = variance.clamp_min_(0.0).sqrt_()
        rounded = p @ squares[..., :seen, :]
        if floored:                              # Σ (p² + f²) v² over the keys that a row sees
            rounded.add_(_sums_to(sums_of_squares, visible[part]))
        spread[rows] = rounded.sqrt_().div_(total)
    return Rows(o, spread, lse, drift, lse_drift, lse_bias)


def attention_bounds(o: Tensor, spread: Tensor, lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(bound of o, bound of lse) for an attention kernel that multiplies in ``dtype`` and accumulates in fp32.

    With u the unit roundoff of ``dtype`` (bf16 2^-8, fp16 2^-11) and t its smallest normal number (fp16 2^-14), as
    rounding a number errs by u·max(|number|, t) at most:

    * 2u·max(|o|, t): the output is rounded once to nearest (half of this); the other half is for sums and reciprocals
      in fp32 and for a systematic error of P against its row sum, as when P is rounded towards zero but its sum is not.
    * 5u·spread: P is rounded to ``dtype`` before it meets V. The errors are independent, at most u·p_j each, with a
      standard deviation of 0.42u·p_j (uniform within half a unit, significands log-uniform), so their sum has one of
      0.42u·spread. 5u is twelve of those; the largest of 3·10^7 elements reaches about six. A weight below t of the
      row's largest counts as t.
    * Nothing for fp32 itself: its error, 2^-24 of Σ p|v| a few times, is at most 2^-17·spread in a row of 16384 keys.
      A row that sees no key must be exactly 0.
    * lse ± 2^-10: sums and products are fp32, so an honest kernel is within about 1e-5 (a score of 40 carries
      40·2^-24·(a few), exp2 and log2 approximations about 2^-21), with steep scores within 2e-4; a row sum of P rounded
      to bf16 stays inside as well. A kernel that leaves out 64 of 16384 equal keys is off by 2^-8, four times as much.
    """
    u, t = UNIT_ROUNDOFF[dtype], torch.finfo(dtype).smallest_normal
    seen = torch.isfinite(lse)
    o_bound = (BOUND["output"] * u * o.abs().clamp_min(t) + BOUND["weights"] * u * spread) * seen.unsqueeze(-1)
    return o_bound, torch.full_like(lse, BOUND["lse"])


# Steep scores: what keys add to them, in natural units, times -1, 0 or 1. exp of the smallest level overflows fp32, exp
# of minus that underflows to 0. Neighbouring levels differ by more than 2^24, the upper two by 2^101.
STEEP_LEVELS = (110.0, 135.0, 160.0, 230.0)
STEEP_ORDER = (1, 2, 3, 3, 2, 1, 0, 0)           # levels of successive pieces of the keys, again and again
STEEP_WINDOW = 1024                              # query elements with one sign: no window of the judge's chain has two


def steep_levels(keys: int, device: torch.device, levels: tuple[float, ...] = STEEP_LEVELS) -> Tensor:
    """[2, keys]: what keys add to steep scores, for even and for odd heads. A piece is 64 to 256 keys long.

    A row of sign 1 meets rising maxima whichever end it begins at, and so does one of sign -1, which sees the levels
    upside down, in every other head. The level a row's weight lies on has a quarter of the keys.
    """
    piece = 64 if keys < 1024 else 128 if keys < 2048 else 256
    at = torch.arange(keys, device=device) // piece
    order = torch.tensor([levels[i] for i in STEEP_ORDER], device=device)
    return torch.stack([order[at % len(order)], order[(at + len(order) // 2) % len(order)]])


def steep_signs(like: Tensor, rng: torch.Generator) -> Tensor:
    """-1, 0 or 1 for every element of ``like``, the same within ``STEEP_WINDOW`` of them, at random."""
    windows = -(-like.numel() // STEEP_WINDOW)
    signs = torch.randint(-1, 2, (windows,), generator=rng, device=like.device)
    return signs.repeat_interleave(STEEP_WINDOW)[: like.numel()].view_as(like)


def without_maximum(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """What right answers o [..., r, h, dv] and lse [..., h, r] become if no maximum is subtracted: in fp32 a sum of
    exponentials beyond 2^128 is infinite, one below 2^-149 is 0, and o their quotient by it.
    """
    total = lse.float().exp()
    factor = torch.where(total == 0, 0.0, total / total).transpose(-1, -2).unsqueeze(-1)
    return torch.where(torch.isneginf(lse).transpose(-1, -2).unsqueeze(-1), o, o * factor).to(o.dtype), total.log()


def decode_lengths(batch: int, sk: int, lens: str) -> list[int]:
    """Cached tokens of the requests of a batch, before a seed permutes them; the longest is ``sk``.

    ``uniform``: all sk. ``ragged``: spread evenly from sk/batch to sk, page edges avoided. ``mixed``: ragged with 0, 1
    and the sizes around a page (63, 64, 65) among them, as many as the batch has room for. A function of the case
    alone, so that the work of a case can be counted without its data.
    """
    if lens == "uniform":
        return [sk] * batch
    if lens not in ("ragged", "mixed"):
        raise ValueError(f"unknown lens {lens!r}; there are uniform, ragged, mixed")
    ragged = [max(1, sk * (r + 1) // batch - r * 37 % 61) for r in range(batch - 1)] + [sk]
    if lens == "ragged":
        return ragged
    edges = [length for length in (0, 1, 64, 63, 65) if length <= sk][: batch - 1]
    return edges + ragged[len(edges):]
