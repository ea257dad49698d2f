# SPDX-License-Identifier: MIT
"""Wrong answers that the check of amd_moe must refuse in every case they apply to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from reference import MATRICES, routing
from utils import Mutant

Case = Mapping[str, Any]
Outputs = tuple[Tensor, ...]


def _config(function: Callable[[Case], Mapping[str, Any]]) -> Callable[[Case, Any], Any]:
    """Set keys of the config, some of which only the reference reads."""
    return lambda case, data: (*data[:2], {**data[2], **function(case)})


def _weights(function: Callable[[Case, Any], Mapping[str, Tensor]]) -> Callable[[Case, Any], Any]:
    """Put other tensors into the weights."""
    return lambda case, data: (data[0], {**data[1], **function(case, data)}, data[2])


def _without(*experts: int) -> Callable[[Case, Any], Mapping[str, Tensor]]:
    """down with zeros in place of the matrices of these experts."""
    def changed(case: Case, data: Any) -> Mapping[str, Tensor]:
        down = data[1]["down"].clone()
        for expert in experts:
            down.view(-1).narrow(0, int(data[1]["offsets"][2, expert]), down[0].numel()).zero_()
        return {"down": down}
    return changed


def _routed(case: Case, data: Any) -> Mapping[str, Tensor]:
    return _without(*range(case["nroutedexperts"]))(case, data)


def _busiest(case: Case, data: Any) -> Mapping[str, Tensor]:
    """down without the expert that most tokens take."""
    x, weights, _ = data
    logits = x.view(-1, x.shape[2]).float() @ weights["router"].float().T
    sure, _ = routing(logits, case["nexpertspertoken"])
    return _without(int(sure.sum(0).argmax()))(case, data)


def _swapped(case: Case, data: Any) -> Mapping[str, Tensor]:
    offsets = data[1]["offsets"]
    return {"gate": data[1]["up"], "up": data[1]["gate"], "offsets": offsets[[1, 0, 2]]}


def _in_order(case: Case, data: Any) -> Mapping[str, Tensor]:
    size, count = data[1]["gate"][0].numel(), data[1]["offsets"].shape[1]
    return {"offsets": (torch.arange(count, device=data[1]["offsets"].device) * size).expand(len(MATRICES), -1)}


def _half(name: str) -> Callable[[Case, Any], Mapping[str, Tensor]]:
    """The second half of every matrix, by rows, as zeros."""
    def changed(case: Case, data: Any) -> Mapping[str, Tensor]:
        matrices = data[1][name].clone()
        matrices[:, matrices.shape[1] // 2 :] = 0
        return {name: matrices}
    return changed


def _last_inner(case: Case, data: Any) -> Mapping[str, Tensor]:
    down = data[1]["down"].clone()
    down[:, -32:] = 0
    return {"down": down}


def _output(function: Callable[[Any, Tensor], Tensor]) -> Callable[[Case, Any, Outputs], Outputs]:
    return lambda case, data, outputs: (function(data, outputs[0]),)


def _blanked(tokens: int, columns: int) -> Callable[[Any, Tensor], Tensor]:
    """y with its last ``tokens`` tokens or ``columns`` columns left at zero."""
    def blank(data: Any, y: Tensor) -> Tensor:
        y = y.clone()
        if tokens:
            y[:, -tokens:] = 0
        if columns:
            y[..., -columns:] = 0
        return y
    return blank


def _half_copied(case: Case, data: Any) -> Any:
    """Every token of the second half of a sequence is one of the first half."""
    x = data[0]
    half = x.shape[1] // 2
    source = torch.arange(x.shape[1], device=x.device) % half
    return x[:, source], *data[1:]


def _steep(case: Case) -> bool:
    return bool(case.get("steep"))


def _some_left_out(case: Case) -> bool:
    return case["nexpertspertoken"] < case["nroutedexperts"]


def _several_count(case: Case) -> bool:
    """Whether more than one expert has a weight worth mentioning."""
    return not _steep(case) and case["nexpertspertoken"] > 1


def _long(case: Case) -> bool:
    return case["seqlen"] > 1


MUTANTS: dict[str, Mutant] = {
    "zeros": Mutant("y is zero", transform_outputs=_output(lambda data, y: torch.zeros_like(y))),
    "input_copied": Mutant("y is x", transform_outputs=_output(lambda data, y: data[0].clone())),
    "shared_left_out": Mutant("only the routed experts", transform_data=_weights(
        lambda case, data: _without(case["nroutedexperts"])(case, data))),
    "routed_left_out": Mutant("only the shared expert", transform_data=_weights(_routed)),
    "expert_dropped": Mutant("the expert that most tokens take gives zeros", transform_data=_weights(_busiest)),
    "weights_normalised": Mutant("weights divided by the sum of the chosen ones", transform_data=_config(
        lambda case: {"normalised": True}), applies=lambda case: _some_left_out(case) and not _steep(case)),
    "last_choice_left_out": Mutant("one expert less to a token", transform_data=_config(
        lambda case: {"n_experts_per_token": case["nexpertspertoken"] - 1}), applies=_several_count),
    "one_choice_more": Mutant("one expert more to a token", transform_data=_config(
        lambda case: {"n_experts_per_token": case["nexpertspertoken"] + 1}),
        applies=lambda case: _some_left_out(case) and not _steep(case)),
    "max_not_subtracted": Mutant("exponentials in fp32 of scores, no maximum subtracted", transform_data=_config(
        lambda case: {"maximum": False}), applies=_steep),
    "gate_and_up_swapped": Mutant("silu of the wrong half", transform_data=_weights(_swapped)),
    "silu_left_out": Mutant("gate times up", transform_data=_config(lambda case: {"linear": True})),
    "offsets_ignored": Mutant("experts taken in the order of memory", transform_data=_weights(_in_order)),
    "half_of_hidden_skipped": Mutant("gate of the first half of x", transform_data=_weights(_half("gate"))),
    "half_of_inner_skipped": Mutant("the first half of the inner values", transform_data=_weights(_half("down"))),
    "last_inner_values_skipped": Mutant("all inner values but the last 32", transform_data=_weights(_last_inner)),
    "second_half_copies_first": Mutant("the second half of a sequence repeats the first", transform_data=_half_copied,
                                       applies=_long),
    "last_tokens_not_computed": Mutant("the last token of every sequence left at zero",
                                       transform_outputs=_output(_blanked(1, 0))),
    "last_columns_not_computed": Mutant("the last 32 columns left at zero", transform_outputs=_output(_blanked(0, 32))),
}
