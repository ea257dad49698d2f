# SPDX-License-Identifier: MIT
"""amd_moe: one mixture-of-experts layer, from the AMD Developer Challenge 2025 (leaderboard amd-mixture-of-experts): a
softmax router, the best experts of each token, and one expert that all tokens share.

Written from the published interface. What differs from the challenge: the experts' matrices are parts of three tensors,
in random order, with their places in a fourth; and the bound is derived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from task import input_t, output_t
from utils import CHUNK, Expectation, check_outputs, default_device, generator, reference_dtype, sample_positions

STEEPNESS = 48.0                          # how much larger the router's weights are, if steep
# The constants of the bounds, see ``expected``; held from both sides by tests/problems/test_pins.py.
BOUND = {"output": 2.0, "carried": 3.0, "choice": 4.0}
UNIT = 2.0**-11                           # of fp16: the largest relative error of a conversion to nearest
MATRICES = ("gate", "up", "down")


# ---- inputs ---------------------------------------------------------------------------------------------------------

def generate_input(
    *, dhidden: int, dexpert: int, nroutedexperts: int, nsharedexperts: int, nexpertspertoken: int, bs: int,
    seqlen: int, seed: int, steep: int = 0, device: Any = None,
) -> input_t:
    """(x, weights, config) as ``task.input_t`` says; deterministic in ``seed``.

    x is standard normal, weights have a deviation of 1/sqrt(fan-in): router scores, gate and up values are then
    standard normal, and among 32 experts the four largest have weights of about 0.15 each. Experts lie in gate, in up
    and in down in three random orders. With ``steep`` the router's scores have a deviation of ``STEEPNESS``.
    """
    if nsharedexperts != 1:
        raise ValueError(f"there is one shared expert, not {nsharedexperts}")
    if not 1 <= nexpertspertoken <= nroutedexperts:
        raise ValueError(f"a token cannot take {nexpertspertoken} of {nroutedexperts} experts")
    place = default_device(device)
    rng = generator(seed, place)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=rng, device=place).mul_(scale).to(torch.float16)

    count, size = nroutedexperts + 1, dhidden * dexpert
    router = normal(nroutedexperts, dhidden, scale=dhidden**-0.5 * (STEEPNESS if steep else 1.0))
    weights = {"router": router}
    sizes = ((dhidden, dexpert), (dhidden, dexpert), (dexpert, dhidden))
    for name, (rows, columns) in zip(MATRICES, sizes, strict=True):
        weights[name] = torch.empty(count, rows, columns, dtype=torch.float16, device=place)
        for matrix in weights[name]:
            matrix.copy_(normal(rows, columns, scale=rows**-0.5))
    weights["offsets"] = torch.stack(
        [torch.randperm(count, generator=rng, device=place) * size for _ in MATRICES])
    config = {
        "d_hidden": dhidden, "d_expert": dexpert, "n_routed_experts": nroutedexperts,
        "n_shared_experts": nsharedexperts, "n_experts_per_token": nexpertspertoken, "batch_size": bs,
        "seq_len": seqlen,
    }
    return normal(bs, seqlen, dhidden), weights, config


# ---- what the layer computes ----------------------------------------------------------------------------------------

def expert_matrix(weights: Mapping[str, Tensor], name: str, expert: int) -> Tensor:
    """One of ``MATRICES`` of an expert, [rows, columns] fp16; the shared expert is the last one."""
    stacked = weights[name]
    place = int(weights["offsets"][MATRICES.index(name), expert]) // stacked[0].numel()
    return stacked[place]


def product(rows: Tensor, matrix: Tensor, squared: bool = False) -> Tensor:
    """rows [r, k] times matrix [k, n], in the dtype of ``rows``, in chunks of k; with the matrix's squares."""
    out = rows.new_zeros(len(rows), matrix.shape[1])
    step = max(1, CHUNK // matrix.shape[1])
    for begin in range(0, len(matrix), step):
        part = matrix[begin : begin + step].to(rows.dtype)
        out.addmm_(rows[:, begin : begin + step], part.square_() if squared else part)
    return out


def inner_values(rows: Tensor, weights: Mapping[str, Tensor], expert: int) -> tuple[Tensor, Tensor]:
    """(x gate, x up) of an expert, [r, dexpert] each."""
    return (product(rows, expert_matrix(weights, "gate", expert)), product(rows, expert_matrix(weights, "up", expert)))


def _expert(rows: Tensor, data: input_t, expert: int) -> tuple[Tensor, Tensor]:
    """(expert(x), the variance of what roundings on the way carry to it, in units of UNIT^2), both [r, dhidden].

    h = silu(g) u, and g, silu(g), u and h may each be rounded: g's error counts with the slope of silu, the others'
    with h. Independent errors of a standard deviation of 1 add up through the squares of the down map.
    """
    _, weights, config = data
    gate, up = inner_values(rows, weights, expert)
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid if not config.get("linear", False) else gate          # of a mutant
    h = silu * up
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    variance = (gate * slope * up).square_() + 3 * h.square()
    down = expert_matrix(weights, "down", expert)
    return product(h, down), product(variance, down, squared=True)


def routing(logits: Tensor, chosen: int) -> tuple[Tensor, Tensor]:
    """(experts that each token takes, experts that it may take instead), both bool [r, E].

    Scores may be off by roundings of fp16, a few UNIT of their size; within that distance of the border between the
    last expert chosen and the first one left out, either side is right. Of the second set a token takes as many as are
    missing.
    """
    top = logits.sort(descending=True).values
    last = top[:, chosen - 1 : chosen]
    if chosen == logits.shape[1]:
        return torch.ones_like(logits, dtype=torch.bool), torch.zeros_like(logits, dtype=torch.bool)
    following = top[:, chosen : chosen + 1]
    margin = BOUND["choice"] * UNIT * (1 + torch.maximum(last.abs(), following.abs()))
    sure = logits > following + margin
    return sure, (logits >= last - margin) & ~sure


def router_weights(logits: Tensor, config: Mapping[str, Any]) -> Tensor:
    """softmax over all experts, [r, E]."""
    if config.get("maximum", True):
        return torch.softmax(logits, -1)
    powers = logits.float().exp().to(logits.dtype)          # of a mutant: in fp32, no maximum subtracted
    return powers / powers.sum(-1, keepdim=True)


def _parts(
    rows: Tensor, data: input_t, logits: Tensor, counts: Tensor,
) -> Iterator[tuple[int, Tensor, Tensor, Tensor, Tensor]]:
    """(expert, tokens [n], c = p · expert(x), |c| times what p is sensitive to, c's variance) of the experts that
    ``counts`` marks; the last one is the shared expert, whose p is 1.

    Scores that are each off by u |l| move p_e by p_e u ((1 - p_e) |l_e| + sum over the others of p_j |l_j|) at most.
    """
    config = data[2]
    p = router_weights(logits, config)
    sensitive = 1 + (1 - 2 * p) * logits.abs() + (p * logits.abs()).sum(-1, keepdim=True)
    if config.get("normalised", False):          # of a mutant
        p = p / p.topk(config["n_experts_per_token"]).values.sum(-1, keepdim=True)
    one = torch.ones_like(p[:, :1])
    p, sensitive = torch.cat([p, one], 1), torch.cat([sensitive, one], 1)
    for expert in range(counts.shape[1]):
        tokens = counts[:, expert].nonzero().flatten()
        if not len(tokens):
            continue
        value, variance = _expert(rows[tokens], data, expert)
        weight = p[tokens, expert, None]
        value = value * weight
        yield expert, tokens, value, value.abs() * sensitive[tokens, expert, None], variance * weight.square()


def expected(
    data: input_t, sample: int | None = None, *, seed: int = 0, index: tuple[Tensor, ...] | None = None,
) -> tuple[Expectation, ...]:
    """The expected y: (Expectation,). ``sample`` limits it to about that many tokens, chosen by ``seed``; ``index``
    asks for exactly these tokens instead (an Expectation's index: sequences, tokens).

    Bound of an element, with u = 2^-11 and c_e the expert's share of it, p_e expert_e(x):

    * 2u (|y| + sum t_e |c_e|): the output's own rounding and those of partial sums, of c_e, of expert_e(x) and of p_e;
      t_e is 1 and what a rounding of all scores to fp16 moves p_e by (``_parts``).
    * 3u s: roundings inside the experts, carried forward as variances (``_expert``). A conversion to nearest has a
      standard deviation of 0.42u, so that three times u is seven of them.
    * where the choice of experts is in doubt (``routing``), y may be anything between the least and the largest value
      that the experts in question give.
    """
    x, weights, config = data
    bs, seqlen, hidden = x.shape
    flat = _tokens(bs, seqlen, sample, seed, index)
    if index is None and flat is not None:
        index = (flat.to(x.device) // seqlen, flat.to(x.device) % seqlen)
    rows = x.view(-1, hidden)
    rows = (rows if flat is None else rows[flat.to(x.device)]).to(reference_dtype(x.device))

    logits = product(rows, weights["router"].T)
    sure, doubtful = routing(logits, config["n_experts_per_token"])
    missing = config["n_experts_per_token"] - sure.sum(1)
    unsure = (missing > 0).nonzero().flatten().tolist()
    shared = torch.ones_like(sure[:, :1])
    value, size, variance = (torch.zeros_like(rows) for _ in range(3))
    open_parts: dict[int, list[tuple[Tensor, ...]]] = {token: [] for token in unsure}
    for expert, tokens, *found in _parts(rows, data, logits, torch.cat([sure | doubtful, shared], 1)):
        certain = sure[tokens, expert] if expert < sure.shape[1] else torch.ones_like(tokens, dtype=torch.bool)
        for total, part in zip((value, size, variance), found, strict=True):
            total[tokens[certain]] += part[certain]
        for at in (~certain).nonzero().flatten().tolist():
            open_parts[int(tokens[at])].append(tuple(part[at] for part in found))
    width = torch.zeros_like(value)
    for token, parts in open_parts.items():
        take = int(missing[token])
        values, sizes, variances = (torch.stack(part).sort(0).values for part in zip(*parts, strict=True))
        low, high = values[:take].sum(0), values[-take:].sum(0)
        value[token] += (low + high) / 2
        width[token] = (high - low) / 2
        size[token] += sizes[-take:].sum(0)
        variance[token] += variances[-take:].sum(0)

    bound = UNIT * (BOUND["output"] * (value.abs() + width + size) + BOUND["carried"] * variance.sqrt_()) + width
    if index is None:
        value, bound, width = value.view(x.shape), bound.view(x.shape), width.view(x.shape)
    return (Expectation("y", value, bound, torch.float16, tuple(x.shape), index, width),)


def _tokens(
    bs: int, seqlen: int, sample: int | None, seed: int, index: tuple[Tensor, ...] | None,
) -> Tensor | None:
    """Which tokens are asked for, counted over all sequences; None: all."""
    if index is not None:
        return index[0] * seqlen + index[1]
    if sample is None or sample >= bs * seqlen:
        return None
    return sample_positions(bs * seqlen, sample, 128, torch.Generator().manual_seed(seed))


def ref_kernel(data: input_t) -> output_t:
    """y, fp16 [bs, seqlen, dhidden]."""
    return expected(data)[0].rounded()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """(passed, message): compare ``output`` with ``expected(data)`` in every element."""
    return check_outputs(expected(data), output)
