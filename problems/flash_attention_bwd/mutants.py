# SPDX-License-Identifier: MIT
"""Wrong answers that the check of flash_attention_bwd must refuse in every case they apply to.

Most spoil one of the three outputs and leave the others right, so that each has to be refused by itself. They are made
from the right outputs: rows that are zero there are not sampled, or see nothing, and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attention_queries import visible_keys
from reference import Index, Visible, expected, gather, weights
from utils import Mutant, reference_dtype

TILE = 64
NAMES = ("dq", "dk", "dv")

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]
Change = Callable[[Any], Any]


def _rows(output: Tensor) -> Index:
    """(batch, row, head) of the rows that hold anything; the first row if none does."""
    found = (output != 0).any(-1).nonzero()
    return (found if len(found) else torch.zeros(1, 3, dtype=torch.long, device=output.device)).unbind(1)


def _made_again(
    only: str, data: Any, outputs: Outputs, visible: Visible | None = None,
) -> Outputs:
    """``outputs`` with those named in ``only`` as they follow from other data, or another mask."""
    index = (*_rows(outputs[0]), *_rows(outputs[2]))
    made = expected(data, index=index, visible=visible)
    return tuple(
        expectation.rounded(output.clone()) if name in only.split() else output
        for name, expectation, output in zip(NAMES, made, outputs, strict=True))


def _with(only: str, change: Change) -> Callable[[Case, Any, Outputs], Outputs]:
    """The outputs ``only`` from ``change(data)``."""
    return lambda case, data, outputs: _made_again(only, change(data), outputs)


def _seeing(only: str, visible: Callable[[Case, Tensor, Tensor], Tensor]) -> Callable[[Case, Any, Outputs], Outputs]:
    """The outputs ``only`` where row (i, h) sees ``visible(sizes, i, h)`` keys."""
    def transform(case: Case, data: Any, outputs: Outputs) -> Outputs:
        q, k, *_, causal, _ = data
        sizes = {"sq": q.shape[1], "sk": k.shape[1], "group": q.shape[2] // k.shape[2], "causal": causal}
        return _made_again(only, data, outputs, lambda i, h: visible(sizes, i, h))

    return transform


def _mask(case: Case, i: Tensor) -> Tensor:
    return visible_keys(i, case["sq"], case["sk"], case["causal"])


def _off_by(by: int) -> Callable[[Case, Tensor, Tensor], Tensor]:
    return lambda case, i, h: (_mask(case, i) + by).clamp(0, case["sk"])


def _no_mask(case: Case, i: Tensor, h: Tensor) -> Tensor:
    return torch.full_like(i, case["sk"])


def _top_left(case: Case, i: Tensor, h: Tensor) -> Tensor:
    return (i + 1).clamp_max(case["sk"])


def _first_keys(count: Callable[[int], int]) -> Callable[[Case, Tensor, Tensor], Tensor]:
    return lambda case, i, h: _mask(case, i).clamp_max(count(case["sk"]))


def _first_queries(count: Callable[[int], int]) -> Callable[[Case, Tensor, Tensor], Tensor]:
    return lambda case, i, h: torch.where(i < count(case["sq"]), _mask(case, i), 0)


def _first_head(case: Case, i: Tensor, h: Tensor) -> Tensor:
    return torch.where(h % case["group"] == 0, _mask(case, i), 0)


def _half(length: int) -> int:
    return length // 2


def _whole_tiles(length: int) -> int:
    return (length - 1) // TILE * TILE


def _replaced(at: int, function: Callable[[Any], Tensor]) -> Change:
    """A change of one member of the data."""
    return lambda data: (*data[:at], function(data), *data[at + 1 :])


def _half_of_columns(data: Any) -> Tensor:
    q = data[0].clone()
    q[..., q.shape[3] // 2 :] = 0
    return q


def _interleaved(case: Case, data: Any, outputs: Outputs) -> Outputs:
    q, k, v, *rest = data
    heads = torch.arange(q.shape[2], device=q.device) % k.shape[2]
    made = expected((q, k[:, :, heads], v[:, :, heads], *rest), index=_rows(outputs[0]))
    return made[0].rounded(outputs[0].clone()), *outputs[1:]


def _transposed(only: str) -> Callable[[Case, Any, Outputs], Outputs]:
    """dk = ds q, or dv = p dout: the weights not transposed."""
    def transform(case: Case, data: Any, outputs: Outputs) -> Outputs:
        q, k, v, _, dout, *_, scale = data
        dtype, group = reference_dtype(q.device), q.shape[2] // k.shape[2]
        at = NAMES.index(only)
        wrong = outputs[at].clone()
        b_of, j_of, g_of = _rows(wrong)
        keys = torch.arange(k.shape[1], device=q.device)
        for b, g in torch.unique(torch.stack([b_of, g_of]), dim=1).T.tolist():
            rows = j_of[(b_of == b) & (g_of == g)]
            total = torch.zeros(len(rows), q.shape[3], dtype=dtype, device=q.device)
            for h in range(g * group, (g + 1) * group):
                some = gather(data, b, rows, torch.full_like(rows, h))
                p, ds, _ = weights(some, k[b, :, g].to(dtype), v[b, :, g].to(dtype), keys, scale)
                total += p @ dout[b, :, h].to(dtype) if only == "dv" else scale * (ds @ q[b, :, h].to(dtype))
            wrong[b, rows, g] = total.to(wrong.dtype)
        return (*outputs[:at], wrong, *outputs[at + 1 :])

    return transform


def _scaled(only: str, factor: Callable[[float], float]) -> Callable[[Case, Any, Outputs], Outputs]:
    return lambda case, data, outputs: tuple(
        (output.double() * factor(data[7])).to(output.dtype) if name == only else output
        for name, output in zip(NAMES, outputs, strict=True))


def _zeros(*only: str) -> Callable[[Case, Any, Outputs], Outputs]:
    return lambda case, data, outputs: tuple(
        torch.zeros_like(output) if name in only else output for name, output in zip(NAMES, outputs, strict=True))


def _copied(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return data[0], data[1], data[2]


def _swapped(case: Case, data: Any, outputs: Outputs) -> Outputs:
    return outputs[0], outputs[2], outputs[1]


def _last_rows(only: str) -> Callable[[Case, Any, Outputs], Outputs]:
    def cut(output: Tensor) -> Tensor:
        output = output.clone()
        output[:, _whole_tiles(output.shape[1]) :] = 0
        return output

    return lambda case, data, outputs: tuple(
        cut(output) if name == only else output for name, output in zip(NAMES, outputs, strict=True))


def _apart(case: Case, data: Any, outputs: Outputs) -> Outputs:
    """p as the product of exp(score) and exp(-lse) in fp32: infinity times 0 where these are beyond its range."""
    q, k, *_, lse, causal, _ = data
    group, sq, sk = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    lost = (lse.exp() * (-lse).exp()).isnan() & torch.isfinite(lse)             # [b, hq, sq]
    seen = visible_keys(torch.arange(sq, device=q.device), sq, sk, causal)
    most = torch.where(lost, seen, 0).amax(-1).unflatten(1, (-1, group)).amax(-1)     # [b, hk]: keys of a lost row
    keys = (torch.arange(sk, device=q.device)[:, None] < most[:, None, :])[..., None]
    dq, dk, dv = outputs
    return (dq.masked_fill(lost.transpose(1, 2)[..., None], torch.nan), dk.masked_fill(keys, torch.nan),
            dv.masked_fill(keys, torch.nan))


def _several(case: Case) -> bool:
    """Whether some query sees several keys; where it sees one, ds is zero, and so are dq and dk."""
    return bool(case["sk"] > 1)


def _masked(case: Case) -> bool:
    return bool(case["causal"]) and case["sq"] > 1


def _grouped(case: Case) -> bool:
    return bool(case["hq"] > case["hk"])


def _also(*conditions: Callable[[Case], bool]) -> Callable[[Case], bool]:
    return lambda case: all(condition(case) for condition in conditions)


def _each(
    names: str, key: str, summary: str, made: Callable[[str], Callable[[Case, Any, Outputs], Outputs]],
    *conditions: Callable[[Case], bool],
) -> dict[str, Mutant]:
    """The same mistake in each of the outputs ``names`` alone."""
    return {
        f"{name}_{key}": Mutant(f"{name}: {summary}", transform_outputs=made(name), applies=_also(
            *conditions, *((_several,) if name != "dv" else ())))
        for name in names.split()}


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("dq, dk and dv are zero", transform_outputs=_zeros(*NAMES)),
    "input_copied": Mutant("dq is q, dk is k, dv is v", transform_outputs=_copied),
    "exponentials_apart": Mutant("p is exp(score) times exp(-lse), each in fp32", transform_outputs=_apart,
                                 applies=lambda case: bool(case.get("steep"))),
    "dk_dv_swapped": Mutant("dk is dv and dv is dk", transform_outputs=_swapped),
    **_each("dq dk dv", "zero", "zero", _zeros),
    **_each("dq dk", "scale_ignored", "not multiplied by the softmax scale",
            lambda name: _scaled(name, lambda scale: 1 / scale)),
    **_each("dq dk", "scale_twice", "multiplied by the softmax scale twice",
            lambda name: _scaled(name, lambda scale: scale)),
    **_each("dq dk", "delta_missing", "delta = rowsum(dout · o) not subtracted",
            lambda name: _with(name, _replaced(3, lambda data: torch.zeros_like(data[3])))),
    **_each("dq dk", "dp_missing", "dout vᵀ left out: ds is -p · delta",
            lambda name: _with(name, _replaced(2, lambda data: torch.zeros_like(data[2])))),
    **_each("dq dk dv", "lse_base_2", "p from an lse taken as of base 2",
            lambda name: _with(name, _replaced(5, lambda data: data[5] * math.log(2.0)))),
    **_each("dq dk dv", "scores_zero", "p from scores of zero: q kᵀ ignored",
            lambda name: _with(name, (
                _replaced(1, lambda data: torch.zeros_like(data[1])) if name != "dq" else
                _replaced(0, lambda data: torch.zeros_like(data[0]))))),
    **_each("dq", "half_of_columns", "scores from the first half of the columns",
            lambda name: _with(name, _replaced(0, _half_of_columns))),
    **_each("dq dk dv", "mask_ignored", "every query sees every key", lambda name: _seeing(name, _no_mask), _masked),
    **_each("dq dk dv", "mask_one_less", "every query sees one key too few", lambda name: _seeing(name, _off_by(-1)),
            lambda case: bool(case["causal"])),
    **_each("dq dk dv", "mask_one_more", "every query sees one key too many", lambda name: _seeing(name, _off_by(1)),
            _masked),
    **_each("dq dk dv", "mask_top_left", "the causal mask aligned at the first key",
            lambda name: _seeing(name, _top_left), lambda case: bool(case["causal"]) and case["sq"] != case["sk"]),
    **_each("dq dk dv", "half_of_keys", "only the first half of the keys",
            lambda name: _seeing(name, _first_keys(_half))),
    **_each("dq dk dv", "last_key_block", "the last (up to) 64 keys not read",
            lambda name: _seeing(name, _first_keys(_whole_tiles))),
    **_each("dk dv", "half_of_queries", "only the first half of the queries",
            lambda name: _seeing(name, _first_queries(_half))),
    **_each("dk dv", "last_query_block", "the last (up to) 64 queries not read",
            lambda name: _seeing(name, _first_queries(_whole_tiles))),
    **_each("dk dv", "heads_not_summed", "the first head of a group alone", lambda name: _seeing(name, _first_head),
            _grouped),
    **_each("dk dv", "not_transposed", "from weights that are not transposed", _transposed,
            lambda case: case["sq"] == case["sk"] > 1),
    "dq_heads_interleaved": Mutant("dq: query head h reads key head h % hk", transform_outputs=_interleaved,
                                   applies=_also(_several, lambda case: 1 < case["hk"] < case["hq"])),
    **_each("dq dk dv", "last_rows_zero", "the last (up to) 64 rows left at zero", _last_rows),
}
