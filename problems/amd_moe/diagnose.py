# SPDX-License-Identifier: MIT
"""Likely mistakes of a mixture of experts, as the values that they give: which expert's part is missing, which weights
are wrong, what is wrong inside the experts.

They add to the mutants, which a check must refuse. Used by the judge only; never staged on a runner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from reference import expert_matrix, inner_values, product, router_weights
from utils import reference_dtype

AXES = {"y": ("sequence", "token", "column")}
TOKENS = 12                   # of a sample
BLOCK = 64                    # columns of x, or inner values, that are taken to be a kernel's block

Hypothesis = tuple[str, str, tuple[Tensor, ...]]
Inner = Callable[[Tensor, Tensor], Tensor]


def index(name: str, wrong: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """(sequence, token) vectors of a few tokens of ``wrong`` and fewer of ``others``, positions in y."""
    def some(positions: Tensor, count: int) -> Tensor:
        tokens = torch.unique(positions[:, :2], dim=0)
        if not len(tokens):
            return tokens
        return tokens[torch.linspace(0, len(tokens) - 1, min(count, len(tokens))).long()]
    return tuple(torch.unique(torch.cat([some(wrong, TOKENS), some(others, TOKENS // 3)]), dim=0).T)


def hypotheses(case: Mapping[str, Any], data: Any, index: tuple[Tensor, ...]) -> Iterator[Hypothesis]:
    """(name, sentence, (y of the tokens of ``index``,)) of each mistake."""
    x, weights, config = data
    rows = x[index].to(reference_dtype(x.device))
    logits = product(rows, weights["router"].T)
    count, chosen = logits.shape[1], config["n_experts_per_token"]
    more = min(chosen + 1, count)
    p, order = router_weights(logits, {}).sort(descending=True, stable=True)
    p, order = p[:, :more], order[:, :more]

    def results(inner: Inner = silu_gate, rows: Tensor = rows) -> Tensor:
        """expert(x) of every token's choices and, last, of the shared expert: [n, more + 1, dhidden]."""
        found = rows.new_zeros(len(rows), more + 1, rows.shape[1])
        for expert in [*torch.unique(order).tolist(), count]:
            at = order == expert if expert < count else torch.zeros_like(order, dtype=torch.bool)
            shared = torch.full_like(at[:, :1], expert == count)
            tokens, slots = torch.cat([at, shared], 1).nonzero(as_tuple=True)
            h = inner(*inner_values(rows[tokens], weights, expert))
            found[tokens, slots] = product(h, expert_matrix(weights, "down", expert))
        return found

    def layer(parts: Tensor, p: Tensor = p[:, :chosen], shared: float = 1.0) -> tuple[Tensor, ...]:
        return ((parts[:, : p.shape[1]] * p[..., None]).sum(1) + shared * parts[:, -1],)

    parts, used = results(), p[:, :chosen]
    yield "shared_missing", "the shared expert is left out", layer(parts, shared=0.0)
    yield "shared_twice", "the shared expert is counted twice", layer(parts, shared=2.0)
    yield "routed_missing", "the routed experts are left out", layer(parts, used * 0)
    yield from _of_weights(layer, parts, p, used, logits)
    for slot in range(chosen if chosen > 1 else 0):
        kept = used.clone()
        kept[:, slot] = 0
        yield f"choice_{slot}_missing", f"choice {slot} of {chosen} of every token is left out", layer(parts, kept)
    for expert in torch.unique(order[:, :chosen]).tolist():
        yield (f"expert_{expert}_missing", f"expert {expert} gives nothing",
               layer(parts, used.masked_fill(order[:, :chosen] == expert, 0.0)))
    for name, sentence, inner in INNER:
        yield name, sentence, layer(results(inner))
    cut = rows.clone()
    cut[:, -BLOCK:] = 0
    yield "hidden_tail_missing", f"the last {BLOCK} columns of x do not reach the experts", layer(results(rows=cut))


def _of_weights(
    layer: Callable[..., tuple[Tensor, ...]], parts: Tensor, p: Tensor, used: Tensor, logits: Tensor,
) -> Iterator[Hypothesis]:
    chosen = used.shape[1]
    yield ("weights_normalised", "the router's weights are divided by the sum of the chosen ones",
           layer(parts, used / used.sum(1, keepdim=True)))
    yield "weights_one", "the router's weights are not applied", layer(parts, torch.ones_like(used))
    yield "weights_squared", "the router's weights are applied twice", layer(parts, used.square())
    yield "weights_reversed", "a token's weights are in the reverse order of its experts", layer(parts, used.flip(1))
    yield "weights_are_scores", "scores are not put through the softmax", layer(
        parts, logits.sort(descending=True, stable=True).values[:, :chosen])
    if p.shape[1] > chosen:
        yield "one_choice_more", f"{chosen + 1} experts count in place of {chosen}", layer(parts, p)


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """What an expert does between its products."""
    return gate * torch.sigmoid(gate) * up


def _tail_missing(gate: Tensor, up: Tensor) -> Tensor:
    h = silu_gate(gate, up)
    h[:, -BLOCK:] = 0
    return h


INNER: tuple[tuple[str, str, Inner], ...] = (
    ("gate_and_up_swapped", "silu is taken of x up, not of x gate", lambda gate, up: silu_gate(up, gate)),
    ("silu_missing", "silu is left out", lambda gate, up: gate * up),
    ("sigmoid", "the gate is a sigmoid, not silu", lambda gate, up: torch.sigmoid(gate) * up),
    ("up_missing", "x up is left out", lambda gate, up: silu_gate(gate, torch.ones_like(up))),
    ("relu", "relu in place of silu", lambda gate, up: torch.relu(gate) * up),
    ("gelu", "gelu in place of silu", lambda gate, up: torch.nn.functional.gelu(gate) * up),
    ("inner_tail_missing", f"the last {BLOCK} inner values are left out", _tail_missing),
)
