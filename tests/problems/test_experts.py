# SPDX-License-Identifier: MIT
"""amd_moe: the reference against the layer written down plainly, honest roundings, doubtful choices, forms of data."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from scoring.judge.audit import HONEST, audit_case
from scoring.problem import ProblemError
from scoring.record import Case
from tests.problems.folders import generate, problem, signature

CASE = {"dhidden": 128, "dexpert": 64, "nroutedexperts": 6, "nsharedexperts": 1, "nexpertspertoken": 3, "bs": 2,
        "seqlen": 9}
binding, reference = problem("amd_moe").binding, problem("amd_moe").reference


@cache
def scene() -> tuple[Any, Any]:
    """(data, expectation) of CASE."""
    data = generate("amd_moe", CASE, seed=4)       # no choice is in doubt
    return data, reference.expected(data)[0]


def challenge_form(data: Any) -> Any:
    """The same weights with a tensor per matrix, as the challenge has them."""
    x, weights, config = data
    experts = weights["router"].shape[0]
    own = {"router.weight": weights["router"]}
    for expert in range(experts + 1):
        name = f"experts.{expert}" if expert < experts else "shared_experts"
        for part, matrix in enumerate(reference.MATRICES):
            own[f"{name}.{part}.weight"] = reference.expert_matrix(weights, matrix, expert).clone()
    return x, own, config


def layer(data: Any, rounded: Any = lambda x: x, scores: Any = lambda x: x) -> Tensor:
    """The layer as the challenge tells it, token by token and expert by expert; ``rounded`` after every step."""
    x, weights, config = challenge_form(data)
    rows = x.view(-1, x.shape[2]).double()
    logits = scores(rows @ weights["router.weight"].double().T)
    p, experts = rounded(torch.softmax(logits, -1)).topk(config["n_experts_per_token"])

    def expert(row: Tensor, name: str) -> Tensor:
        gate, up, down = (weights[f"{name}.{part}.weight"].double() for part in range(3))
        h = rounded(rounded(torch.nn.functional.silu(rounded(row @ gate))) * rounded(row @ up))
        return rounded(h @ down)

    out = []
    for row, of_row, weight in zip(rows, experts.tolist(), p, strict=True):
        y = expert(row, "shared_experts")
        for slot, number in enumerate(of_row):
            y = rounded(y + rounded(weight[slot] * expert(row, f"experts.{number}")))
        out.append(y)
    return torch.stack(out).view(x.shape)


def to_fp16(x: Tensor) -> Tensor:
    return x.to(torch.float16).to(x.dtype)


def test_the_reference_is_the_layer_written_down_plainly() -> None:
    data, found = scene()
    torch.testing.assert_close(found.values, layer(data), rtol=1e-9, atol=1e-9)
    assert (found.shape, found.dtype) == ((2, 9, 128), torch.float16)


@pytest.mark.parametrize("steep", [0, 1])
def test_honest_roundings_use_less_than_half_of_the_bound(steep: int) -> None:
    """Every step in fp16, scores as well, as torch has it; the same with exact scores; and exact steps."""
    data = generate("amd_moe", {**CASE, "steep": steep}, seed=4)
    found = reference.expected(data)[0]
    for answer, least in ((layer(data, to_fp16, to_fp16), 0.1), (layer(data, to_fp16), 0.1), (layer(data), 0.0)):
        share, mismatch = problem("amd_moe").utils.examine(found, answer.to(torch.float16))
        assert mismatch is None
        assert least < share < 0.5


def close_scores(data: Any, gap: float) -> Any:
    """``data`` with one token, whose third and fourth experts have scores ``gap`` units of fp16 apart."""
    x, weights, config = data
    x = x[:1, :1]
    logits = (x[0].double() @ weights["router"].double().T)[0]
    third, fourth = logits.sort(descending=True).indices[2:4].tolist()
    router = weights["router"].clone()
    router[fourth] = router[third]
    at = int(x[0, 0].abs().argmax())
    change = gap * reference.UNIT * (1 + abs(float(logits[third]))) / float(x[0, 0, at])
    router[fourth, at] = (router[third, at].double() - change).to(torch.float16)
    return x, {**weights, "router": router}, config


def layer_without(data: Any, rank: int) -> Tensor:
    """The layer of one token that does not take the expert whose score is number ``rank`` from above."""
    x, _, config = data
    own = challenge_form(data)[1]
    rows = x.view(-1, x.shape[2]).double()
    logits = rows @ own["router.weight"].double().T
    p, order = torch.softmax(logits, -1), logits.sort(descending=True).indices[0].tolist()
    del order[rank]

    def expert(name: str) -> Tensor:
        gate, up, down = (own[f"{name}.{part}.weight"].double() for part in range(3))
        return (torch.nn.functional.silu(rows @ gate) * (rows @ up)) @ down

    taken = [p[:, e, None] * expert(f"experts.{e}") for e in order[: config["n_experts_per_token"]]]
    return (expert("shared_experts") + torch.stack(taken).sum(0)).view(x.shape).to(torch.float16)


@pytest.mark.parametrize(("gap", "either"), [(1.0, True), (8.0, False)])
def test_either_choice_is_right_where_scores_are_close(gap: float, either: bool) -> None:
    data = close_scores(scene()[0], gap)
    found = reference.expected(data)[0]
    examine = problem("amd_moe").utils.examine
    for without, right in ((3, True), (2, either)):
        share, mismatch = examine(found, layer_without(data, without))
        assert (mismatch is None) == right
        assert share < 0.2 if right else share > 1, "the distance between both choices is no error of arithmetic"


def test_a_sample_is_a_part_of_the_whole_and_data_stays_as_it_was() -> None:
    data, whole = scene()
    before = data[0].clone()
    part, = reference.expected(data, 7, seed=1)
    assert part.index is not None
    assert 3 < len(part.index[0]) < 18
    torch.testing.assert_close(part.values, whole.values[part.index], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.bound, whole.bound[part.index], rtol=1e-12, atol=1e-12)
    assert torch.equal(data[0], before)


def test_inputs_are_what_the_challenge_says() -> None:
    (x, weights, config), _ = scene()
    shapes = {"router": (6, 128), "gate": (7, 128, 64), "up": (7, 128, 64), "down": (7, 64, 128), "offsets": (3, 7)}
    assert {name: tuple(value.shape) for name, value in weights.items()} == shapes
    assert (x.shape, x.dtype) == ((2, 9, 128), torch.float16)
    assert config["n_experts_per_token"] == 3
    for row in weights["offsets"]:
        assert sorted((row // (128 * 64)).tolist()) == list(range(7))
    again, other = (generate("amd_moe", CASE, seed=seed) for seed in (4, 5))
    assert torch.equal(again[1]["gate"], weights["gate"])
    assert not torch.equal(other[0], x)
    for change in ({"nsharedexperts": 2}, {"nexpertspertoken": 7}):
        with pytest.raises(ProblemError, match=r"shared expert|of 6 experts"):
            generate("amd_moe", {**CASE, **change})


def test_wrong_answers_are_refused_and_the_right_one_is_not() -> None:
    rows = [row for steep in (0, 1)
            for row in audit_case(problem("amd_moe"), Case({**CASE, "steep": steep}), "cpu", seed=7)]
    assert {row.mutant for row in rows} >= {HONEST, *problem("amd_moe").mutants.MUTANTS}
    assert [row for row in rows if not row.good] == []


def test_the_binding_takes_the_challenges_own_data() -> None:
    """Matrices anywhere in memory: offsets lead from the first one to each of them."""
    ours, _ = scene()
    theirs = challenge_form(ours)
    case = binding.case_of(ours)
    assert binding.case_of(theirs) == case
    assert case.items() <= CASE.items()
    values = binding.arguments(case, theirs)
    assert set(values) == set(binding.arguments(case, ours))
    for row, matrix in enumerate(reference.MATRICES):
        for expert, name in ((0, "experts.0"), (4, "experts.4"), (6, "shared_experts")):
            place = values[matrix].data_ptr() + 2 * int(values["offsets"][row, expert])
            assert place == theirs[1][f"{name}.{row}.weight"].data_ptr()
    theirs[1]["experts.1.0.weight"] = theirs[1]["experts.1.0.weight"].T
    with pytest.raises(ValueError, match="contiguous"):
        binding.arguments(case, theirs)
    assert {parameter.name for parameter in signature("amd_moe").params} == {
        *values, "y", "workspace", "workspace_bytes", "queue"}


def test_counts() -> None:
    case = {"dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32, "nexpertspertoken": 4, "bs": 1, "seqlen": 8192}
    assert binding.flops(case) == 2 * 8192 * 7168 * (32 + 15 * 2048)          # 3.6 TFLOP
    assert binding.bytes_moved(case) == 2 * 7168 * (2 * 8192 + 32 + 3 * 33 * 2048)
    assert binding.bytes_moved({**case, "seqlen": 1}) == 2 * 7168 * (2 + 32 + 3 * 5 * 2048)
    assert binding.workspace_bytes(case) < 1 << 30
    assert binding.PEAK(case) == "fp16"


@pytest.mark.parametrize("mistake", ["shared_missing", "expert_2_missing", "weights_normalised", "gate_and_up_swapped"])
def test_likely_mistakes_are_told_by_name(mistake: str) -> None:
    data, found = scene()
    diagnose = problem("amd_moe").diagnose
    everything = tuple(torch.cartesian_prod(torch.arange(2), torch.arange(9)).T)
    values = {name: value for name, _, (value,) in diagnose.hypotheses(CASE, data, everything)}
    wrong = values[mistake].view(2, 9, 128)
    assert bool(((wrong - found.values).abs() > found.bound).any())
    assert min(values, key=lambda name: float((values[name].view(2, 9, 128) - wrong).abs().max())) == mistake


