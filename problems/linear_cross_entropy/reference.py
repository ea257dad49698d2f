# SPDX-License-Identifier: MIT
"""linear_cross_entropy: the mean cross entropy of softmax(x wᵀ) against targets, and its gradients, bf16 in.

With z = x wᵀ, p = softmax(z), y the (smoothed) one-hot targets, n the tokens that count and a = p - y, 0 where ignored:

    loss = Σ_i (log Σ_j exp z_ij - Σ_j y_ij z_ij) / n      dx = a w / n      dw = aᵀ x / n

**The bounds.** u = 2^-8 is the unit roundoff of bf16.

    dx: 2u·(|dx| + e·|Σ_j w_j| / n) + 5u·sqrt(Σ_j a_ij² w_j²) / n + 2^-20·m
    dw: 2u·e·|Σ_i x_i| / n + 5u·sqrt(Σ_i a_ij² x_i²) / n + 2^-20·m
    loss: 2^-14·(|loss| + max |z|)

* 2u·|dx|: dx is rounded once to bf16, which is half of this; the other half is for a systematic error of a, as when it
  is rounded towards zero. dw is not rounded.
* 2u·e·|Σ …|, e = smoothing / vocab: where p is next to nothing all of a is -e, and rounded in one direction.
* 5u·sqrt(…): a is rounded to bf16 before it meets w or x. The errors are independent, with a standard deviation of
  0.42u·|a|, so that their sum has one of 0.42u·sqrt(…); 5u is twelve of those. The worst case, u·Σ |a w|, would be no
  bound: with a large vocabulary it lets all but the target's column be left out. p and y rounded apart do not pass
  where p is about y, nor do logits in bf16: z of 8 and more is wrong by up to 2^-5 there, p by 8u.
* 2^-20·m: logits and all sums are fp32. A logit's error is at most some 2^-21 of ‖x‖·max‖w‖ and makes p wrong by that
  times p, twice, as it also enters the sum that p is divided by: m = 2·‖x_i‖·max_j‖w_j‖·Σ_j p_ij |w_j| / n, and so for
  dw. It counts where p and y cancel, as they do for a token that the model is sure of.
* 2^-100, where anything is summed: weights below 2^-126 may count as 0. They are far below all that can be seen.
* loss: of a sum of n numbers that are right to 2^-22 of the largest logit each, and of what exp and log do to them. A
  column in 400 that is not counted is seen.
* Where all tokens are ignored nothing is allowed: all outputs are exactly 0, as dx of an ignored token always is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from task import input_t, output_t
from utils import (
    CHUNK, Expectation, check_outputs, default_device, generator, reference_dtype, sample_positions,
)

# The constants of the bounds, see above; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.0, "weights": 5.0, "sums": 2.0**-20, "loss": 2.0**-14}
U = 2.0**-8                   # unit roundoff of bf16
IGNORED = -100
TILE = 64                     # granularity of "the last tile" in inputs and samples
SPREAD = 2.0                  # standard deviation of logits
STEEP = 300.0                 # the largest logits of steep cases
TINY = 2.0**-100              # of what comes from weights below bf16's smallest normal number, which may count as 0


def generate_input(
    *, tokens: int, hidden: int, vocab: int, ignored: str, smoothing: int, seed: int, steep: int = 0,
    device: Any = None,
) -> input_t:
    """(x, w, target, smoothing) as ``task.input_t`` says; ``smoothing`` comes as thousandths. Deterministic in ``seed``
    per device.

    Logits are normal with a standard deviation of 2. On top of that x is made so that three columns stand out for each
    token: one in any place and one of the last 64 have about as much weight as all others together, so that p is not
    near zero everywhere and the end of the vocabulary cannot be left out; a third one has a logit as low as they are
    high. ``steep``: those logits are 200 to 300 in size, where exp overflows without the maximum subtracted. Half of
    the targets are one of the two likely columns. ``ignored``: none, some (a quarter, the first one always, the last
    one never unless there is no other) or all.
    """
    if ignored not in ("none", "some", "all"):
        raise ValueError(f"ignored is none, some or all, not {ignored!r}")
    place = default_device(device)
    rng = generator(seed, place)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, device=place)

    def among(first: int, last: int) -> Tensor:
        return torch.randint(first, last, (tokens,), generator=rng, device=place)

    w = (normal(vocab, hidden) * (SPREAD * hidden**-0.5)).to(torch.bfloat16)
    x = normal(tokens, hidden)
    edge = (vocab - 1) // TILE * TILE
    likely, last, unlikely = among(0, vocab), among(edge, vocab), among(0, vocab)
    height = float(torch.tensor(float(vocab)).log()) + SPREAD**2 / 2 + normal(tokens)
    if steep:
        height = STEEP * (1 - torch.rand(tokens, generator=rng, device=place) / 3)
    for column, wanted in ((unlikely, -height), (likely, height), (last, height + normal(tokens))):
        row = w[column].float()
        x += row * ((wanted - (x * row).sum(1)) / row.square().sum(1))[:, None]
    target = torch.where(among(0, 2) == 0, among(0, vocab), torch.where(among(0, 2) == 0, likely, last)).int()
    if ignored == "all":
        target.fill_(IGNORED)
    elif ignored == "some":
        chosen = among(0, 4) == 0
        chosen[0], chosen[-1] = True, tokens == 1
        target[chosen] = IGNORED
    return x.to(torch.bfloat16), w, target, smoothing / 1000


# ---- mathematics ----------------------------------------------------------------------------------------------------

class Logits(NamedTuple):
    """What all logits of a call say: lse [tokens] and the loss with its bound, and the tokens that count."""

    lse: Tensor
    loss: Tensor
    loss_bound: Tensor
    count: int
    largest: Tensor           # max_j ‖w_j‖


def parts(length: int, width: int) -> Iterator[slice]:
    """Slices of ``length`` rows, small enough for a few matrices of them by ``width``."""
    step = max(1, CHUNK // max(1, width))
    return (slice(start, start + step) for start in range(0, length, step))


def survey(data: input_t) -> Logits:
    """One pass over all logits."""
    x, w, target, smoothing = data
    dtype = reference_dtype(x.device)
    wide = w.to(dtype)
    lse = torch.zeros(len(x), dtype=dtype, device=x.device)
    losses, size = torch.zeros_like(lse), torch.zeros_like(lse)
    for part in parts(len(x), len(w)):
        z = x[part].to(dtype) @ wide.T
        lse[part] = torch.logsumexp(z, 1)
        hit = z.gather(1, target[part].clamp_min(0).long()[:, None])[:, 0]
        losses[part] = lse[part] - (1 - smoothing) * hit - smoothing * z.mean(1)
        size[part] = z.abs().amax(1)
    counted = target != IGNORED
    count = int(counted.sum())
    loss = (losses * counted).sum() / max(1, count)
    bound = BOUND["loss"] * (loss.abs() + (size * counted).max()) * (count > 0)
    return Logits(lse, loss[None].double(), bound[None].double(), count, wide.norm(dim=1).max())


def weights(data: input_t, tokens: Tensor | slice, columns: Tensor | slice, lse: Tensor) -> tuple[Tensor, Tensor]:
    """(p, a = p - y), each [tokens, columns], both 0 where a token is ignored."""
    x, w, target, smoothing = data
    dtype = reference_dtype(x.device)
    p = (x[tokens].to(dtype) @ w[columns].to(dtype).T).sub_(lse[tokens][:, None]).exp_()
    numbers = torch.arange(len(w), dtype=torch.int32, device=x.device)[columns]
    a = p - smoothing / len(w)
    a -= (1 - smoothing) * (target[tokens][:, None] == numbers)
    ignored = (target[tokens] == IGNORED)[:, None]
    return p.masked_fill_(ignored, 0.0), a.masked_fill_(ignored, 0.0)


def token_gradient(data: input_t, tokens: Tensor, logits: Logits) -> tuple[Tensor, Tensor]:
    """(dx, its bound) [tokens, hidden], fp32."""
    x, w, target, smoothing = data
    wide = w.to(logits.lse.dtype)
    even, counted = wide.sum(0).abs() * (smoothing / len(w) / max(1, logits.count)), target != IGNORED
    squares, sizes = wide.square(), wide.abs()
    dx = torch.empty(len(tokens), x.shape[1], device=x.device)
    bound = torch.empty_like(dx)
    for part in parts(len(tokens), max(w.shape)):
        p, a = weights(data, tokens[part], slice(None), logits.lse)
        value = (a @ wide).div_(max(1, logits.count))
        spread = (a.square_() @ squares).sqrt_().div_(max(1, logits.count))
        reach = 2 * x[tokens[part]].to(wide.dtype).norm(dim=1, keepdim=True) * logits.largest
        magnitude = (p @ sizes).mul_(reach / max(1, logits.count))
        dx[part] = value
        systematic = value.abs() + even * counted[tokens[part]][:, None]
        bound[part] = BOUND["output"] * U * systematic + BOUND["weights"] * U * spread + BOUND["sums"] * magnitude
        bound[part] += TINY * counted[tokens[part]][:, None]
    return dx, bound


def column_gradient(data: input_t, columns: Tensor, logits: Logits) -> tuple[Tensor, Tensor]:
    """(dw, its bound) [columns, hidden], fp32."""
    x, w, target, smoothing = data
    wide = x.to(logits.lse.dtype)
    even = wide[target != IGNORED].sum(0).abs() * (smoothing / len(w))
    squares = wide.square()
    sizes = wide.abs() * (2 * wide.norm(dim=1, keepdim=True) * logits.largest)
    dw = torch.empty(len(columns), w.shape[1], device=x.device)
    bound = torch.empty_like(dw)
    for part in parts(len(columns), max(x.shape)):
        p, a = weights(data, slice(None), columns[part], logits.lse)
        dw[part] = (a.T @ wide).div_(max(1, logits.count))
        spread = (a.square_().T @ squares).sqrt_()
        magnitude = p.T @ sizes
        rounded = BOUND["output"] * U * even + BOUND["weights"] * U * spread
        bound[part] = (rounded + BOUND["sums"] * magnitude).div_(max(1, logits.count)) + TINY * (logits.count > 0)
    return dw, bound


# ---- what is expected -----------------------------------------------------------------------------------------------

def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected (dx, dw, loss): three Expectations, fp64 mathematics, bounds as derived above.

    ``sample`` limits dx to about that many tokens, chosen by ``seed``, and dw to about as many columns
    (``columns_beside``). ``index`` asks for the tokens of a dx-Expectation's index instead or, with two vectors, for
    tokens and columns. The loss is always that of all tokens.
    """
    x, w, target, _ = data
    if index is None and sample is not None and sample < len(x):
        rng = torch.Generator().manual_seed(seed)
        index = (sample_positions(len(x), sample, TILE, rng).to(x.device),)
    whole = index is None
    tokens = torch.arange(len(x), device=x.device) if index is None else index[0].to(x.device)
    if index is None:
        columns = torch.arange(len(w), device=x.device)
    else:
        columns = index[1].to(x.device) if len(index) == 2 else columns_beside(tokens, target, len(w))
    logits = survey(data)
    dx, dw = token_gradient(data, tokens, logits), column_gradient(data, columns, logits)
    return (
        Expectation("dx", *dx, torch.bfloat16, tuple(x.shape), None if whole else (tokens,)),
        Expectation("dw", *dw, torch.float32, tuple(w.shape), None if whole else (columns,)),
        Expectation("loss", logits.loss, logits.loss_bound, torch.float32, (1,)),
    )


def columns_beside(tokens: Tensor, target: Tensor, vocab: int) -> Tensor:
    """Columns for a sample of tokens: their targets, both ends of the vocabulary, and others."""
    rng = torch.Generator().manual_seed(int(tokens.sum()))
    others = sample_positions(vocab, max(16, len(tokens)), TILE, rng).to(tokens.device)
    targets = target[tokens].long()
    return torch.unique(torch.cat([others, targets[targets >= 0]]))


def ref_kernel(data: input_t) -> output_t:
    """(dx, dw, loss) in the output dtypes."""
    dx, dw, loss = expected(data)
    return dx.rounded(), dw.rounded(), loss.rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
