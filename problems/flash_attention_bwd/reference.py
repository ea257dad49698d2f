# SPDX-License-Identifier: MIT
"""flash_attention_bwd: dq, dk and dv of softmax(scale · q kᵀ + mask) v, from dout, o and lse, in bf16 or fp16.

Grouped heads, bottom-right causal mask, any sequence lengths; rows that see no key give dq = 0 and add nothing else.

o and lse are operands like the others: what is expected follows from them as they are, rounded by the forward pass, so
no bound has to allow for their rounding, and a kernel has to read them. Per query row i and key j of a head,

    p = exp(scale · q·k - lse), 0 where hidden      delta = dout·o      ds = p · (dout·v - delta)
    dq = scale · sum_j ds k                         dk = scale · sum_i ds q      dv = sum_i p dout

**The bound** of an element x = sum_n a_n b_n (a one of p and ds, b one of dout, k and q; scale included) is

    2.5u·max(|x|, t) + 5u·sqrt(sum_n (a_n² + t²) b_n²) + 2^-20·m

with u the unit roundoff of the data's dtype (bf16 2^-8, fp16 2^-11) and t its smallest normal number (fp16 2^-14), as
rounding a number errs by u·max(|number|, t) at most:

* 2.5u·max(|x|, t): the output is rounded once to nearest, which is 1u and all that some subnormal outputs need; the
  other 1.5u are for a systematic error of the weights, as when p or ds is rounded towards zero, and for what the
  rounding of lse·log2(e) does to a whole row.
* 5u·sqrt(…): p and ds are rounded to the dtype before they meet b. The errors are independent, with a standard
  deviation of 0.42u·|a_n| (uniform within half a unit, significands log-uniform): their sum has one of 0.42u·sqrt(…),
  5u is twelve of those. That leaves room for a ds made of a rounded p (0.6u) and for heads of a group that are
  rounded before they are summed, as libraries do.
* 2^-20·m: scores, dout·v, delta and all sums are fp32. m bounds the sum of magnitudes: sum_n p_n |dout_n| for dv, for
  dq and dk scale · sum_n p_n · 2‖dout_n‖·max_j‖v_j‖ · |b_n|, as |dout·v| and |dout·o| are at most ‖dout‖·max‖v‖ each.
  It counts where dout·v and delta cancel, as they do for a row with one visible key, whose ds is 0: a tensor core
  that cuts its sum 16 times errs by 2^-19 of it at worst, and by a tenth of that in fact.
* Where nothing is summed nothing is allowed: dq of a row that sees no key is exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from task import input_t, output_t
from attention import STEEP_LEVELS, UNIT_ROUNDOFF, at_once, dense_attention, row_parts
from attention_queries import TILE, random_operands, sample_rows, visible_keys
from utils import CHUNK, Expectation, check_outputs, default_device, generator, reference_dtype

# The constants of the bound, see above; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.5, "weights": 5.0, "sums": 2.0**-20}

Index = tuple[Tensor, ...]
Visible = Callable[[Tensor, Tensor], Tensor]


def generate_input(
    *, batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, half: int, seed: int, steep: int = 0,
    device: Any = None,
) -> input_t:
    """(q, k, v, o, dout, lse, causal, softmax_scale) as ``task.input_t`` says. Deterministic in ``seed`` per device.

    q, k and v are drawn as ``attention_queries.random_operands`` says, with ``steep`` so that exp of a score or of -lse
    is beyond fp32's range, dout is standard normal, o and lse are what
    flash_attention must return for them, rounded; softmax_scale = dim^-0.5.
    """
    place = default_device(device)
    rng = generator(seed, place)
    dtype = torch.float16 if half else torch.bfloat16
    q, k, v = random_operands(batch, sq, sk, hq, hk, dim, dtype, rng, STEEP_LEVELS if steep else ())
    dout = torch.randn(batch, sq, hq, dim, generator=rng, device=place).to(dtype)
    scale = dim**-0.5
    o, lse = torch.empty(batch * hq, sq, dim, dtype=dtype, device=place), torch.empty(batch * hq, sq, device=place)
    visible = visible_keys(torch.arange(sq, device=place), sq, sk, bool(causal))
    for some, answer in dense_attention(q, k, v, visible, scale):
        o[some], lse[some] = answer[0], answer[2]
    o, lse = o.view(batch, hq, sq, dim).transpose(1, 2).contiguous(), lse.view(batch, hq, sq)
    return q, k, v, o, dout, lse, bool(causal), scale


# ---- mathematics ----------------------------------------------------------------------------------------------------

class Rows(NamedTuple):
    """Query rows that share their keys, in high precision: q and dout [r, d], delta, lse and visible [r]."""

    q: Tensor
    dout: Tensor
    delta: Tensor
    lse: Tensor
    visible: Tensor

    def parts(self, keys: int) -> Iterator[tuple[slice, Rows]]:
        """Pieces small enough for a few matrices of their rows by ``keys``."""
        step = max(1, CHUNK // max(1, keys))
        for start in range(0, len(self.q), step):
            part = slice(start, start + step)
            yield part, Rows(self.q[part], self.dout[part], self.delta[part], self.lse[part], self.visible[part])


def gather(data: input_t, b: int, i: Tensor, h: Tensor, visible: Visible | None = None) -> Rows:
    """The rows (b, i, h) of ``data``; ``visible(i, h)`` in the place of what the mask says."""
    q, k, _, o, dout, lse, causal, _ = data
    dtype = reference_dtype(q.device)
    rows = dout[b, i, h].to(dtype)
    seen = visible_keys(i, q.shape[1], k.shape[1], causal) if visible is None else visible(i, h)
    return Rows(q[b, i, h].to(dtype), rows, (rows * o[b, i, h].to(dtype)).sum(1), lse[b, h, i].to(dtype), seen)


def weights(rows: Rows, k: Tensor, v: Tensor, keys: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """(p, ds, hidden), each [r, s], for keys k, v [s, d] at the positions ``keys``."""
    hidden = keys >= rows.visible[:, None]
    p = (rows.q @ k.T).mul_(scale).sub_(rows.lse[:, None]).exp_().masked_fill_(hidden, 0.0)
    return p, (rows.dout @ v.T).sub_(rows.delta[:, None]).mul_(p), hidden


def query_gradient(rows: Rows, k: Tensor, v: Tensor, scale: float, half: torch.dtype) -> tuple[Tensor, Tensor]:
    """(dq, its bound) [r, d] from all keys of a head, k and v [s, d] in high precision."""
    keys = torch.arange(len(k), device=k.device)
    squares, sizes, largest = k.square(), k.abs(), 2 * v.norm(dim=1).max()
    dq, bound = torch.empty_like(rows.q), torch.empty_like(rows.q)
    for part, some in rows.parts(len(k)):
        p, ds, hidden = weights(some, k, v, keys, scale)
        dq[part] = (ds @ k).mul_(scale)
        magnitude = (p @ sizes).mul_(scale * largest * some.dout.norm(dim=1, keepdim=True))
        spread = (_variances(ds, hidden, half) @ squares).sqrt_().mul_(scale)
        bound[part] = _bound(dq[part], spread, magnitude, half)
    return dq, bound


def key_gradients(
    rows: Rows, k: Tensor, v: Tensor, keys: Tensor, scale: float, half: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(dk, its bound, dv, its bound), each [s, d], of the keys at ``keys`` from all query rows of a head's group; k and
    v are those of the whole head.
    """
    largest = 2 * v.norm(dim=1).max()
    k, v = k[keys], v[keys]
    sums = [torch.zeros_like(k) for _ in range(6)]
    for _, some in rows.parts(len(k)):
        p, ds, hidden = weights(some, k, v, keys, scale)
        sized = some.dout.norm(dim=1, keepdim=True) * some.q.abs()
        for total, left, right in (
            (sums[0], ds, some.q), (sums[1], _variances(ds, hidden, half), some.q.square()), (sums[2], p, sized),
            (sums[3], p, some.dout), (sums[4], _variances(p, hidden, half), some.dout.square()),
            (sums[5], p, some.dout.abs()),
        ):
            total.addmm_(left.T, right)
    dk, k_squares, k_sizes, dv, v_squares, v_sizes = sums
    dk.mul_(scale)
    dk_bound = _bound(dk, k_squares.sqrt_().mul_(scale), k_sizes.mul_(scale * largest), half)
    return dk, dk_bound, dv, _bound(dv, v_squares.sqrt_(), v_sizes, half)


def _variances(weight: Tensor, hidden: Tensor, half: torch.dtype) -> Tensor:
    """a² + t² of the pairs that are not hidden."""
    return weight.square().add_(torch.finfo(half).smallest_normal ** 2).masked_fill_(hidden, 0.0)


def _bound(value: Tensor, spread: Tensor, magnitude: Tensor, half: torch.dtype) -> Tensor:
    u = UNIT_ROUNDOFF[half]
    size = torch.where(magnitude > 0, value.abs().clamp_min(torch.finfo(half).smallest_normal), 0.0)
    return BOUND["output"] * u * size + BOUND["weights"] * u * spread + BOUND["sums"] * magnitude


# ---- what is expected -----------------------------------------------------------------------------------------------

def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: Index | None = None,
    visible: Visible | None = None,
) -> tuple[Expectation, ...]:
    """The expected (dq, dk, dv): three Expectations, fp64 mathematics, bounds as derived above.

    ``sample`` limits them to about that many rows of dq (batch, query, head), chosen by ``seed``, and as many of dk and
    dv (``keys_beside``). ``index`` asks for the rows of a dq-Expectation's index instead, or, with six vectors, for
    those of dq and of dk and dv. ``visible(i, h)``, keys that row (i, h) sees, replaces the mask: for wrong answers.
    """
    q, k, *_ = data
    batch, sq, hq, _ = q.shape
    sk, hk = k.shape[1:3]
    whole = index is None and (sample is None or sample >= batch * sq * hq)
    if whole and visible is None:
        return _whole(data)
    if whole:
        index = (*_all(batch, sq, hq, q.device), *_all(batch, sk, hk, q.device))
    elif index is None:
        index = sample_rows(batch, sq, hq, sample, seed)
    if len(index) == 3:
        index = (*index, *keys_beside(index, sq, sk, hq // hk))
    index = tuple(part.to(q.device) for part in index)
    dq = _query_part(data, index[:3], visible)
    dk, dv = _key_part(data, index[3:], visible)

    def expectation(name: str, like: Tensor, part: tuple[Tensor, Tensor], rows: Index) -> Expectation:
        shape = tuple(like.shape)
        if whole:
            return Expectation(name, part[0].view(shape), part[1].view(shape), q.dtype, shape)
        return Expectation(name, *part, q.dtype, shape, rows)

    return expectation("dq", q, dq, index[:3]), expectation("dk", k, dk, index[3:]), expectation("dv", k, dv, index[3:])


def keys_beside(index: Index, sq: int, sk: int, group: int) -> Index:
    """(batch, key, key head) for (batch, query, head): the key heads that they read, and keys as far from the first or
    last one as the query is, within a tile of either end, else in proportion.
    """
    b, i, h = index
    near, far = i, sk - sq + i
    j = torch.where(i < min(TILE, sq // 2), near, torch.where(sq - i <= TILE, far, i * sk // sq))
    return b, j.clamp(0, sk - 1), h // group


def _all(batch: int, length: int, heads: int, device: torch.device) -> Index:
    parts = torch.meshgrid(*(torch.arange(n, device=device) for n in (batch, length, heads)), indexing="ij")
    return tuple(part.flatten() for part in parts)


def _heads(b: Tensor, g: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """(batch, key head, which positions of the vectors are of it) for each that occurs."""
    codes, inverse = torch.unique(torch.stack([b, g]), dim=1, return_inverse=True)
    for number, (batch, head) in enumerate(codes.T.tolist()):
        yield batch, head, (inverse == number).nonzero().squeeze(1)


def _query_part(data: input_t, index: Index, visible: Visible | None) -> tuple[Tensor, Tensor]:
    q, k, v, *_, scale = data
    dtype, group = reference_dtype(q.device), q.shape[2] // k.shape[2]
    b_of, i_of, h_of = index
    dq = torch.empty(len(b_of), q.shape[3], device=q.device)
    bound = torch.empty_like(dq)
    for b, g, here in _heads(b_of, h_of // group):
        rows = gather(data, b, i_of[here], h_of[here], visible)
        dq[here], bound[here] = (
            part.float() for part in query_gradient(rows, k[b, :, g].to(dtype), v[b, :, g].to(dtype), scale, q.dtype))
    return dq, bound


def _key_part(
    data: input_t, index: Index, visible: Visible | None,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    q, k, v, *_, scale = data
    dtype, group = reference_dtype(q.device), q.shape[2] // k.shape[2]
    b_of, j_of, g_of = index
    made = torch.empty(4, len(b_of), q.shape[3], device=q.device)
    i = torch.arange(q.shape[1], device=q.device).repeat_interleave(group)
    for b, g, here in _heads(b_of, g_of):
        h = torch.arange(g * group, (g + 1) * group, device=q.device).repeat(q.shape[1])
        rows = gather(data, b, i, h, visible)
        heads = (x[b, :, g].to(dtype) for x in (k, v))
        for full, part in zip(made, key_gradients(rows, *heads, j_of[here], scale, q.dtype), strict=True):
            full[here] = part.float()
    return (made[0], made[1]), (made[2], made[3])


def ref_kernel(data: input_t) -> output_t:
    """(dq, dk, dv) in the output dtypes."""
    dq, dk, dv = expected(data)
    return dq.rounded(), dk.rounded(), dv.rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)


def _whole(data: input_t) -> tuple[Expectation, ...]:
    """``expected`` of all rows: the same sums as of the parts, with the weights of every pair computed once and many
    heads at a time.
    """
    q, k, v, o, dout, lse, causal, scale = data
    batch, sq, hq, dim = q.shape
    sk, hk = k.shape[1:3]
    dtype, group, place = reference_dtype(q.device), hq // hk, q.device

    def by_head(x: Tensor) -> Tensor:            # [b, s, h, d] -> [b · hk, group · s or s, d]
        return x.transpose(1, 2).reshape(batch * hk, -1, x.shape[-1])

    operands = [by_head(x) for x in (q, k, v, o, dout)]
    lse = lse.reshape(batch * hk, -1)
    dq = torch.empty(2, batch * hk, group * sq, dim, device=place)           # values and bounds
    dk, dv = (torch.empty(2, batch * hk, sk, dim, device=place) for _ in range(2))
    visible = visible_keys(torch.arange(sq, device=place), sq, sk, causal).repeat(group)
    for heads in at_once(batch * hk, group * sq, sk, dim, place):
        of_q, keys, values, of_o, of_dout = (x[heads].to(dtype) for x in operands)
        rows = Rows(of_q, of_dout, (of_dout * of_o).sum(-1), lse[heads].to(dtype), visible)
        for full, part in zip((*dq, *dk, *dv), _of_heads(rows, keys, values, scale, q.dtype), strict=True):
            full[heads] = part.float()

    def expectation(name: str, like: Tensor, made: Tensor) -> Expectation:
        values, bound = (x.view(batch, like.shape[2], -1, dim).transpose(1, 2).contiguous() for x in made)
        return Expectation(name, values, bound, q.dtype, tuple(like.shape))

    return expectation("dq", q, dq), expectation("dk", k, dk), expectation("dv", v, dv)


def _of_heads(rows: Rows, k: Tensor, v: Tensor, scale: float, half: torch.dtype) -> tuple[Tensor, ...]:
    """(dq, its bound, dk, its bound, dv, its bound) of some heads: rows [n, r, …] that share keys k and v [n, s, d]."""
    squares, sizes = k.square(), k.abs()
    largest = 2 * v.norm(dim=-1).amax(-1)[:, None, None]
    tiny = torch.tensor(torch.finfo(half).smallest_normal ** 2, dtype=k.dtype, device=k.device)
    dq, bound = torch.empty_like(rows.q), torch.empty_like(rows.q)
    of_ds, of_ds_squares, of_p_squares = (torch.zeros_like(k) for _ in range(3))
    of_p = torch.zeros(*k.shape[:2], 3 * k.shape[2], dtype=k.dtype, device=k.device)
    keys = torch.arange(k.shape[1], device=k.device)
    for part, (least, seen) in row_parts(rows.visible, rows.q.shape[1], k.shape[0] * k.shape[1]):
        if seen <= 0:
            dq[:, part], bound[:, part] = 0.0, 0.0
            continue
        some, near = (slice(None), part), (slice(None), slice(0, seen))
        edge = (..., slice(max(0, least), seen))
        hidden = keys[edge] >= rows.visible[part, None]
        x, dout = rows.q[some], rows.dout[some]
        norm = dout.norm(dim=-1, keepdim=True)
        p = ((x * scale) @ k[near].mT).sub_(rows.lse[some].unsqueeze(-1)).exp_()
        p[edge].masked_fill_(hidden, 0.0)
        ds = (dout @ v[near].mT).sub_(rows.delta[some].unsqueeze(-1)).mul_(p)
        ds_squares, p_squares = (torch.addcmul(tiny, weight, weight) for weight in (ds, p))
        for each in (ds_squares, p_squares):
            each[edge].masked_fill_(hidden, 0.0)
        dq[some] = (ds @ k[near]).mul_(scale)
        magnitude = (p @ sizes[near]).mul_(scale * largest * norm)
        bound[some] = _bound(dq[some], (ds_squares @ squares[near]).sqrt_().mul_(scale), magnitude, half)
        of_ds[near].baddbmm_(ds.mT, x)
        of_ds_squares[near].baddbmm_(ds_squares.mT, x.square())
        of_p_squares[near].baddbmm_(p_squares.mT, dout.square())
        of_p[near].baddbmm_(p.mT, torch.cat([norm * x.abs(), dout, dout.abs()], -1))
    k_sizes, dv, v_sizes = of_p.split(k.shape[2], -1)
    dk = of_ds.mul_(scale)
    dk_bound = _bound(dk, of_ds_squares.sqrt_().mul_(scale), k_sizes * (scale * largest), half)
    return dq, bound, dk, dk_bound, dv, _bound(dv, of_p_squares.sqrt_(), v_sizes, half)
