# SPDX-License-Identifier: MIT
"""Wrong answers that the check of flash_attention_varlen must refuse in every case they apply to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attention import without_maximum
from attention_sequences import bounds, offsets, sequence_lengths
from utils import Mutant

TILE = 64

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]


def _with_keys(data: Any, keys_of: Callable[[int], int]) -> Any:
    """Sequences with n keys see the first ``keys_of(n)`` of them; their mask stays where it is.

    One more column, 1 in q, in k 0 or -inf.
    """
    q, k, v, starts_q, starts_k, *rest = data
    column = torch.zeros_like(k[..., :1])
    for first, last in bounds(starts_k):
        column[first + keys_of(last - first) : last] = -torch.inf
    return torch.cat([q, torch.ones_like(q[..., :1])], -1), torch.cat([k, column], -1), v, starts_q, starts_k, *rest


def _uniform(case: Case, data: Any) -> Any:
    return torch.zeros_like(data[0]), *data[1:]


def _half_of_keys(case: Case, data: Any) -> Any:
    return _with_keys(data, lambda keys: keys // 2)


def _last_block(case: Case, data: Any) -> Any:
    return _with_keys(data, lambda keys: max(0, keys - 1) // TILE * TILE)


def _half_of_columns(case: Case, data: Any) -> Any:
    q, k, *rest = data
    half = q.shape[2] // 2
    return (q[..., :half], k[..., :half], *rest)


def _no_mask(case: Case, data: Any) -> Any:
    return *data[:7], False, data[8]


def _no_scale(case: Case, data: Any) -> Any:
    return *data[:8], 1.0


def _wrong_heads(case: Case, data: Any) -> Any:
    q, k, v, *rest = data
    heads = torch.arange(q.shape[1], device=q.device) % k.shape[1]
    return (q, k[:, heads], v[:, heads], *rest)


def _starts(data: Any, starts_q: Tensor, starts_k: Tensor) -> Any:
    return *data[:3], starts_q, starts_k, *data[5:]


def _one_sequence(case: Case, data: Any) -> Any:
    return _starts(data, data[3][[0, -1]], data[4][[0, -1]])


def _equal_lengths(case: Case, data: Any) -> Any:
    starts = [offsets([pair[i] for pair in sequence_lengths(case["batch"], case["tq"], case["tk"], "uniform")],
                      data[0].device) for i in (0, 1)]
    return _starts(data, *starts)


def _keys_of_the_next(case: Case, data: Any) -> Any:
    """Every sequence reads a key of the next one as well; the last one a key behind the end."""
    q, k, v, starts_q, starts_k, *rest = data
    pieces, lengths = [], []
    for first, last in bounds(starts_k):
        pieces.append(torch.arange(first, last + 1, device=k.device))
        lengths.append(last + 1 - first)
    rows = torch.cat(pieces)
    return (q, k[rows], v[rows], starts_q, offsets(lengths, k.device), *rest)


def _keys_of_another(case: Case, data: Any) -> Any:
    """Sequence b reads keys of the lengths of sequence b + 1."""
    lengths = [last - first for first, last in bounds(data[4])]
    return _starts(data, data[3], offsets([*lengths[1:], lengths[0]], data[0].device))


def _zeros(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return tuple(torch.zeros_like(output) for output in outputs)


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return data[0], torch.zeros_like(outputs[1])


def _last_queries(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """Of the longest sequence the last (up to) 64."""
    o, lse = (output.clone() for output in outputs)
    first, last = max(bounds(data[3]), key=lambda pair: pair[1] - pair[0])
    part = slice(first + (last - first - 1) // TILE * TILE, last)
    o[part], lse[:, part] = 0, 0
    return o, lse


def _last_sequence(case: Case, data: Any, outputs: Outputs) -> Outputs:
    o, lse = (output.clone() for output in outputs)
    first, last = [pair for pair in bounds(data[3]) if pair[0] < pair[1]][-1]
    o[first:last], lse[:, first:last] = 0, 0
    return o, lse


def _overwritten(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """The last tile of every sequence is stored whole: the next sequence begins with zeros."""
    o, lse = (output.clone() for output in outputs)
    for first, last in bounds(data[3])[1:]:
        part = slice(first, min(last, first + 1))
        o[part], lse[:, part] = 0, 0
    return o, lse


def _binary_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1] / math.log(2.0)


def _finite_lse(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[1].clamp_min(-1e30)


def _lengths(case: Case) -> list[tuple[int, int]]:
    return sequence_lengths(case["batch"], case["tq"], case["tk"], case["lens"])


def _hides(case: Case) -> bool:
    """The mask hides something from a query that some key is there for."""
    return bool(case["causal"]) and any(queries > 1 and keys > 0 for queries, keys in _lengths(case))


def _without_maximum(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return without_maximum(*outputs)


def _steep(case: Case) -> bool:
    return bool(case.get("steep"))


def _empty_rows(case: Case) -> bool:
    return any(queries > keys if case["causal"] else queries > 0 == keys for queries, keys in _lengths(case))


def _several(case: Case) -> bool:
    return sum(queries > 0 for queries, _ in _lengths(case)) > 1


def _uneven(case: Case) -> bool:
    return sorted(_lengths(case)) != sorted(sequence_lengths(case["batch"], case["tq"], case["tk"], "uniform"))


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("o and lse are zero", transform_outputs=_zeros),
    "input_copied": Mutant("o is q, lse zero", transform_outputs=_copied),
    "uniform_attention": Mutant("o is the mean of v", transform_data=_uniform),
    "half_of_keys_skipped": Mutant("only the first half of each sequence's keys", transform_data=_half_of_keys),
    "last_kv_block_skipped": Mutant("each sequence's last (up to) 64 keys not read", transform_data=_last_block),
    "half_of_columns_skipped": Mutant("scores from the first half of the columns", transform_data=_half_of_columns),
    "mask_ignored": Mutant("every query sees every key of its sequence", transform_data=_no_mask, applies=_hides),
    "heads_interleaved": Mutant("query head h reads key head h % hk", transform_data=_wrong_heads,
                                applies=lambda case: 1 < case["hk"] < case["hq"]),
    "scale_ignored": Mutant("softmax scale 1", transform_data=_no_scale),
    "boundaries_ignored": Mutant("one sequence of all tokens", transform_data=_one_sequence, applies=_several),
    "equal_lengths_assumed": Mutant("all sequences as long as the mean", transform_data=_equal_lengths,
                                    applies=_uneven),
    "a_key_too_many": Mutant("a sequence's queries see the next one's first key", transform_data=_keys_of_the_next),
    "keys_of_another_sequence": Mutant("lengths of keys off by one sequence", transform_data=_keys_of_another,
                                       applies=_uneven),
    "last_queries_not_computed": Mutant("the longest sequence's last (up to) 64 queries left at zero",
                                        transform_outputs=_last_queries),
    "last_sequence_not_computed": Mutant("the last sequence left at zero", transform_outputs=_last_sequence),
    "next_sequence_overwritten": Mutant("each sequence but the first begins with a row of zeros",
                                        transform_outputs=_overwritten, applies=_several),
    "max_not_subtracted": Mutant("exponentials in fp32 of scores, no maximum subtracted",
                                 transform_outputs=_without_maximum, applies=_steep),
    "lse_base_2": Mutant("lse in base 2", transform_outputs=_binary_lse),
    "lse_finite": Mutant("rows without keys get a finite lse", transform_outputs=_finite_lse, applies=_empty_rows),
}
