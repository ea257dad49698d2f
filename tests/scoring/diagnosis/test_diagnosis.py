# SPDX-License-Identifier: MIT
"""Reasons of a refusal: every known mistake is named, patterns and likenesses are seen, and nothing strange raises."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scoring.diagnosis import explain, known_mistakes, relations
from scoring.ipc import arena
from scoring.ipc.template import describe_data
from scoring.judge import check, layout
from scoring.judge.seeds import Noise
from scoring.problem import Problem
from scoring.record import Case, Status
from tests.problems.folders import NAMES, problem, small_cases
from tests.problems.models import attention, tiled_gradients

LONG = 60.0             # seconds: the tests ask whether something is found, not how fast


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails inside is left out of a diagnosis; here it shall be seen."""
    def direct(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(explain, "_attempt", direct)
    monkeypatch.setattr(known_mistakes, "_attempt", lambda function, *arguments: next(arguments[0], None) if (
        function is next) else function(*arguments))


def cases(name: str) -> list[Case]:
    """Small tests of a problem; amd_fp8_mm has but one."""
    few = [Case({"m": 64, "n": 192, "k": 384}), Case({"m": 32, "n": 64, "k": 512})] if name == "amd_fp8_mm" else []
    return small_cases(name) + few


@cache
def scene(name: str, number: int) -> tuple[Any, Any, Any, tuple[Tensor, ...]]:
    """(case parameters, data, expectations, right outputs) of a small test of a problem."""
    loaded = problem(name)
    case = cases(name)[number]
    data = loaded.generate(case, 3, "cpu")
    expectations = loaded.reference.expected(data)
    return case.params, data, expectations, tuple(expectation.rounded() for expectation in expectations)


def diagnose(name: str, number: int, outputs: Any, **options: Any) -> explain.Diagnosis:
    params, data, expectations, _ = scene(name, number)
    names = [expectation.name for expectation in expectations]
    return explain.explain(problem(name), params, data, expectations, outputs, names, seconds=LONG, **options)


def looks(found: explain.Diagnosis) -> list[str]:
    return [entry["name"] for entry in found.facts["looks_like"]]


# ---- known mistakes -------------------------------------------------------------------------------------------------

MUTANTS = [(name, mutant) for name in NAMES for mutant in problem(name).mutants.MUTANTS]


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_every_mutant_is_named(name: str, mutant: str) -> None:
    """By its own name, or by that of another one that gives the same answer here."""
    entry = problem(name).mutants.MUTANTS[mutant]
    number = next(i for i, case in enumerate(cases(name)) if entry.applies(case.params))
    params, data, _, right = scene(name, number)

    def answer(entry: Any) -> tuple[Tensor, ...]:
        if entry.transform_data is None:
            return tuple(entry.transform_outputs(params, data, right))
        return tuple(e.rounded() for e in problem(name).reference.expected(entry.transform_data(params, data)))

    wrong = answer(entry)
    found = diagnose(name, number, wrong)
    named = looks(found)
    same = [other for other, twin in problem(name).mutants.MUTANTS.items() if twin.applies(params) and all(
        torch.equal(a.nan_to_num(77.0), b.nan_to_num(77.0)) for a, b in zip(answer(twin), wrong, strict=True))]
    assert set(same) & set(named), found.after("")
    assert found.headline.startswith("looks like: ")
    json.dumps(found.facts, allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_right_answer_looks_like_nothing(name: str) -> None:
    for number in range(3):
        found = diagnose(name, number, scene(name, number)[3])
        assert (found.headline, found.lines, looks(found)) == ("", (), [])


def gemm(name: str, number: int, times: Any = None, a_scale: Any = None) -> Tensor:
    """c with K block t counted times[t] times, written down once more."""
    a, b, sa, sb, _ = scene(name, number)[1]
    sa = sa if a_scale is None else a_scale
    c = torch.zeros(len(a), len(b), dtype=torch.float64)
    for t in range(sa.shape[1]):
        block = slice(128 * t, 128 * t + 128)
        part = a[:, block].double() @ b[:, block].double().T
        c += (1 if times is None else times[t]) * part * sa[:, t, None] * sb[torch.arange(len(b)) // 128, t]
    return c.to(torch.bfloat16)


FP8_LONG = next(i for i, case in enumerate(small_cases("fp8_gemm")) if case.params["k"] >= 512)


@pytest.mark.parametrize(("change", "words"), [
    ({2: 0}, "K block 2 of 4 (columns 256..383) is missing"), ({0: 0}, "K block 0 of 4"),
    ({1: 2}, "K block 1 of 4 (columns 128..255) is counted twice"), ({1: 0, 3: 0}, "only the even K blocks"),
    ({0: 0, 1: 0}, "only the last 2 of 4 K blocks"),
])
def test_the_k_block_is_named(change: dict[int, int], words: str) -> None:
    times = [change.get(t, 1) for t in range(4)]
    found = diagnose("fp8_gemm", FP8_LONG, [gemm("fp8_gemm", FP8_LONG, times)])
    assert words in found.after("c is wrong").split("\n")[0]


def test_scales_read_in_the_wrong_order_are_named() -> None:
    sa = scene("fp8_gemm", FP8_LONG)[1][2]
    read = sa.t().contiguous().flatten().view(sa.shape)
    found = diagnose("fp8_gemm", FP8_LONG, [gemm("fp8_gemm", FP8_LONG, a_scale=read)])
    assert "the scales of a are read in the other memory order" in found.headline


def test_attention_mistakes_are_named() -> None:
    number = 1          # 17 queries, 113 keys, 4 heads on 1
    q, k, v, _, scale = scene("flash_attention", number)[1]

    def told(o: Tensor, lse: Tensor) -> str:
        return diagnose("flash_attention", number, [o.to(q.dtype), lse.float()]).headline

    assert "log2(e) once too often" in told(*attention(q, k, v, False, scale * 1.442695))
    assert "keys 0..63 (0 of 2) is missing" in told(*attention(q, k[:, 64:], v[:, 64:], False, scale))
    padded = [torch.cat([x, torch.zeros_like(x[:, :15])], 1) for x in (k, v)]
    assert "fill up the last block of 64 take part" in told(*attention(q, *padded, False, scale))
    o, lse = attention(q, k, v, False, scale)
    scores = torch.einsum("bihd,bjxd->bhij", q.double(), k.double()) * scale
    assert "the row maximum is not added" in told(o, lse - scores.amax(-1))
    assert "not divided" in told(o * (lse - scores.amax(-1)).exp().transpose(1, 2)[..., None], lse)


def test_mistakes_of_a_backward_pass_are_named() -> None:
    number = 1          # 17 queries, 113 keys, 4 heads on 1
    _, data, _, right = scene("flash_attention_bwd", number)
    q, k, v, o, dout, lse, causal, scale = data

    def told(made: Any, *only: int) -> str:
        outputs = [x if at in only else y for at, (x, y) in enumerate(zip(made, right, strict=True))]
        return diagnose("flash_attention_bwd", number, outputs).headline

    def gradients(o: Tensor = o, k: Tensor = k, v: Tensor = v) -> Any:
        return tiled_gradients(q, k, v, o, dout, lse, causal, scale)

    assert "delta is added" in told(gradients(o=-o), 0, 1)
    assert "delta is multiplied by the softmax scale" in told(gradients(o=o.float() * scale), 1)
    assert "keys 0..63 (0 of 2) is missing" in told(gradients(k=k[:, 64:], v=v[:, 64:])[:1] + right[1:], 0)
    unscaled = right[1].float().div(scale).to(q.dtype)
    assert "not multiplied by the softmax scale" in told([right[0], unscaled, right[2]], 1)


def test_a_page_that_is_missing_is_named() -> None:
    _, data, _, _ = scene("mla_decode", 1)
    q, cache_, table, lengths, _, scale = data
    o, lse = (output.clone() for output in scene("mla_decode", 1)[3])
    request = int(lengths.argmax())
    tokens = cache_[table[request].long()].reshape(-1, 576)[: int(lengths[request])]
    keys = torch.cat([tokens[:64], tokens[128:]])[None, :, None]
    made = attention(q[request : request + 1], keys, keys[..., :512], False, scale)
    o[request], lse[request] = made[0][0].to(o.dtype), made[1][0].float()
    assert "keys 64..127 (1 of 3) is missing" in diagnose("mla_decode", 1, [o, lse]).headline


def test_one_wrong_output_is_told_from_a_right_one() -> None:
    o, lse = scene("flash_attention", 1)[3]
    found = diagnose("flash_attention", 1, [o, lse / math.log(2)])
    assert "lse in base 2" in found.headline
    assert "o: right in every element" in found.lines


def test_time_that_is_over_ends_the_search() -> None:
    params, data, expectations, right = scene("fp8_gemm", 1)
    found = explain.explain(problem("fp8_gemm"), params, data, expectations, [right[0] * 3], ["c"], seconds=0.0)
    assert "the time for it was over" in found.lines[-1]


# ---- where and how, without a problem -------------------------------------------------------------------------------

NOBODY: Any = SimpleNamespace(path=Path("/nowhere"), binding=SimpleNamespace(flops=lambda case: 1e30))
utils = problem("fp8_gemm").utils


def plain(output: Tensor, values: Tensor, bound: float = 1e-2, **options: Any) -> explain.Diagnosis:
    size = torch.full(values.shape, bound, dtype=torch.float64)
    expectation = utils.Expectation("c", values.double(), size, output.dtype, tuple(values.shape))
    return explain.explain(NOBODY, {}, None, [expectation], [output], ["c"], seconds=LONG, **options)


def matrix(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def damaged(shape: tuple[int, ...], *cells: Any) -> str:
    """Where elements at ``cells`` are said to be that came out as random numbers."""
    right = matrix(*shape)
    wrong, noise = right.clone(), 100 * matrix(*shape).roll(1, 0) + 1000
    for cell in cells:
        wrong[cell] = noise[cell]
    (line,) = [line for line in plain(wrong, right).lines if line.startswith("where: ")]
    return line.removeprefix("where: ")


ALL = slice(None)


@pytest.mark.parametrize(("shape", "cells", "words"), [
    ((100, 70), [slice(96, None)], "every element of the last, ragged tile: rows 96..99 (100 is no multiple of 32)"),
    ((100, 70), [slice(64, None)], "every element of the last, ragged tile: rows 64..99 (100 is no multiple of 64)"),
    ((128, 256), [(ALL, slice(128, None))], "every element of the last 128 columns (128..255)"),
    ((512, 512), [(ALL, slice(128, 256))], "every element of columns 128..255 (tile 1 of 4 tiles of 128)"),
    ((128, 256), [(slice(64, 128), slice(32, 64))],
     "every element of the last 64 rows (64..127) × columns 32..63 (tile 1 of 8 tiles of 32)"),
    ((64, 64), [7], "every element of row 7"), ((64, 64), [(ALL, 0)], "every element of column 0 (the first)"),
    ((64, 64), [slice(1, None, 2)], "every element of rows i with i % 2 == 1"),
    ((64, 64), [(ALL, [i for i in range(64) if i % 8 in (2, 3)])], "every element of columns i with i % 8 in 2..3"),
    ((64, 64), [(3, 5)], "row 3 × column 5"), ((64, 64), [(slice(None), slice(None))], "every element"),
    ((256, 256), [(slice(0, 64), slice(0, 32)), (slice(128, 192), slice(96, 128)), (slice(64, 128), slice(192, 224))],
     "whole tiles of 64×32 (rows × columns): 3 of 32, the first at [0..63, 0..31]; [64..127, 192..223]"),
    ((256, 256), [(slice(64 * i, 64 * i + 64), slice(64 * j, 64 * j + 64)) for i in range(4) for j in range(4)
                  if (i + j) % 2], "like the squares of one colour on a chessboard"),
    ((256, 256), [(31 * i % 256, 57 * i % 256) for i in range(100)], "scattered"),
    ((1000,), [slice(999, None)], "the last element (999)"), ((1000,), [slice(0, 10)], "the first 10 elements (0..9)"),
    ((2, 3, 4, 8), [(ALL, ALL, 1)], "every element of index of axis 2 1"),
])
def test_where(shape: tuple[int, ...], cells: list[Any], words: str) -> None:
    assert words in damaged(shape, *cells)


def test_one_head_and_blocks_of_queries() -> None:
    o, lse = (output.clone() for output in scene("flash_attention", 2)[3])      # 113 queries, 4 heads, batch 2
    o[:, :, 3] += 100
    assert "o: where: every element of the last head (3)" in diagnose("flash_attention", 2, [o, lse]).lines
    o, lse = (output.clone() for output in scene("flash_attention", 2)[3])
    o[0, :32, 1], o[1, 64:96, 2], o[1, 32:64, 0] = 100, 101, 102
    (line,) = [line for line in diagnose("flash_attention", 2, [o, lse]).lines if line.startswith("o: where")]
    assert "whole blocks of 32 queries, each batch/head by itself: 3 of" in line


def test_the_histogram_counts_in_units_of_the_bound() -> None:
    right = torch.zeros(1000)
    wrong = right.clone()
    wrong[:10], wrong[10:30], wrong[30:33], wrong[33] = 0.015, 0.5, 50.0, math.nan
    found = plain(wrong, right)
    shares = found.facts["outputs"]["c"]["histogram"]
    assert shares == pytest.approx({"≤ 1": 0.966, "1 – 2": 0.01, "2 – 10": 0, "10 – 100": 0.02, "100 – 10000": 0.003,
                                    "> 10000": 0, "inf, NaN": 0.001})
    assert any(line.split()[:3] == ["10", "–", "100"] and "2.0%  #" in line for line in found.lines)
    assert "of the 34 wrong: 1 NaN" in found.lines
    exact = plain(right + 1, right, bound=0.0).facts["outputs"]["c"]["histogram"]
    assert exact["> 10000"] == 1.0, "a bound of zero allows nothing, which is not the same as no number"


# ---- what it looks like, without a problem --------------------------------------------------------------------------

def flipped(x: Tensor) -> Tensor:
    return torch.where(torch.arange(x.shape[0])[:, None] % 3 == 0, -x, x)


@pytest.mark.parametrize(("change", "kind", "words"), [
    (lambda x: 2 * x, "factor", "2 (doubled) times"), (lambda x: -x, "factor", "the sign is flipped"),
    (lambda x: x / 11.3137, "factor", "1/sqrt(128)"), (lambda x: x.abs(), "magnitude", "the sign is lost"),
    (lambda x: x + 0.6931, "offset", "too large by the same 0.6931 (ln 2)"),
    (lambda x: x.T.reshape(x.shape), "transposed", "stored in another order"),
    (lambda x: x.roll(1, 1), "shifted", "the column 1 before"),
    (lambda x: x.roll(-8, 0), "shifted", "the row 8 further"),
    (lambda x: x[:, torch.arange(96) ^ 1], "shifted", "column i ^ 1"),
    (lambda x: x * torch.linspace(2, 9, 64)[:, None], "row_factors", "a scale per row"),
    (lambda x: x * torch.linspace(2, 9, 96), "column_factors", "a scale per column"),
    (flipped, "factor", "the sign is flipped"),
    (lambda x: x[torch.randperm(64, generator=torch.Generator().manual_seed(2))], "rows_permuted", "rows are permuted"),
    (torch.zeros_like, "zero", "not computed, or cleared"),
])
def test_likeness(change: Any, kind: str, words: str) -> None:
    right = matrix(64, 96) * 3
    found = plain(change(right), right)
    assert looks(found) == [kind]
    assert words in found.headline


def test_a_step_of_rounding_is_told() -> None:
    exact = matrix(64, 64).double()
    nearest = exact.bfloat16()
    cut = (exact.float().view(torch.int32) & -65536).view(torch.float32).bfloat16()
    found = plain(cut, nearest.double(), bound=0.0)
    assert "one step of bfloat16 off: rounded towards zero" in found.headline
    assert looks(found) == ["rounding"]


def test_a_previous_answer_is_known_again() -> None:
    right, before = matrix(32, 32), matrix(33, 32)[1:].contiguous()
    assert "those of the previous call" in plain(before, right, previous=[relations.trace(before)]).headline


@pytest.mark.parametrize("nan", [True, False])
def test_what_was_never_written_is_seen(nan: bool) -> None:
    """Through ``verify``, as a judge asks: the poison of the call is known again."""
    params, data, expectations, right = scene("fp8_gemm", 2)
    loaded = problem("fp8_gemm")
    template, tensors = describe_data(data, {4: "c"})
    plan = layout.lay_out(tensors, loaded.binding.outputs(params), template)
    memory = layout.SlotMemory(arena.create_host(plan.nbytes), plan, Noise(bytes(32)))
    memory.fill(tensors)
    memory.poison(nan=nan)
    verdict = check.verify(loaded, memory, data, expectations, case=params)
    assert verdict.status is Status.INCORRECT_NUMERICAL
    first, *rest = verdict.message.split("\n")
    assert "elements are wrong; first [0, 0]" in first
    assert first.endswith("; never written")
    assert any("all of the wrong elements still hold what was there" in line for line in rest)
    view = plan.outputs[0].view(memory.arena.block)
    view[:4] = right[0][:4]
    message = check.verify(loaded, memory, data, expectations).message
    assert "of the elements of the last 3 rows (4..6)" in message.replace("every element of", "100% of the elements of")
    assert "never written" in message
    view.copy_(right[0])
    assert check.verify(loaded, memory, data, expectations).passed
    memory.poison(nan=nan)
    view.copy_(right[0])
    other = [replace(expectations[0], values=expectations[0].values + 1e9)]
    message = check.verify(loaded, memory, data, other).message
    assert message.split("\n")[0].endswith("those of the previous call: computed once and kept")
    view[0] += 1e4
    message = check.verify(loaded, memory, data, expectations).message
    assert "never written" not in message
    assert "every element of row 0 (the first)" in message
    memory.arena.close()


def test_a_wrong_shape_or_dtype_says_whether_the_numbers_would_do() -> None:
    right = matrix(8, 16)
    expectation = utils.Expectation("c", right.double(), torch.full((8, 16), 0.1).double(), torch.bfloat16, (8, 16))
    for output, words in ((right.half(), "converted, would be right"),
                          (right.bfloat16().reshape(16, 8), "read in the right shape, would be right"),
                          (right + 1, "converted, would be wrong in 128 of 128 elements"), (None, "is no tensor")):
        found = explain.explain(NOBODY, {}, None, [expectation], [output], ["c"])
        assert words in found.lines[0]


def test_a_foreign_problem_keeps_its_message_and_gets_the_rest(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(
        "lang: py\ndescription: d\nfiles:\n  - {name: submission.py, source: '@SUBMISSION@'}\n"
        "tests:\n  - {n: 4, seed: 1}\nbenchmarks:\n  - {n: 4, seed: 1}\n")
    (tmp_path / "reference.py").write_text(
        "import torch\n"
        "def generate_input(n, seed):\n    return torch.arange(1.0, 65.0).view(8, 8), {'n': [n]}\n"
        "def ref_kernel(data):\n    x, options = data\n    y = x * 2\n    x.zero_()\n    return y\n"
        "def check_implementation(data, output):\n    return False, 'no good'\n")
    foreign = Problem(tmp_path)
    data = foreign.generate(foreign.tests[0], 1, "cpu")
    found = explain.explain_foreign(foreign, data, [data[0].clone()])
    assert found.after("no good").startswith("no good; looks like: every wrong element is 0.5 (halved) times")
    assert "64 of 64 elements are far from ref_kernel's" in found.lines
    assert float(data[0].sum()) > 0, "ref_kernel got a copy"
    assert explain.explain_foreign(foreign, data, [data[0] * 2]).lines == ()


# ---- anything at all ------------------------------------------------------------------------------------------------

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.int32, torch.int8,
          torch.uint8, torch.bool]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 8, 9, 33, 70]), max_size=3).map(tuple)


@settings(max_examples=250, deadline=None)
@given(SHAPES, st.sampled_from(DTYPES), st.integers(0, 2**31), st.sampled_from([0.0, 1e-3, 0.5]), st.data())
def test_nothing_raises_and_the_right_answer_is_left_alone(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int, bound: float, data: Any,
) -> None:
    rng = torch.Generator().manual_seed(seed)
    size = data.draw(st.sampled_from([0.0, 1.0, 1e-40, 100.0]))
    values = (torch.randn(shape, generator=rng) * size).to(dtype).double()
    if dtype.is_floating_point and dtype.itemsize > 1 and data.draw(st.booleans()):
        values[torch.rand(shape, generator=rng) < 0.2] = -torch.inf
    right = values.to(dtype)
    assert plain(right, values, bound).lines == ()
    raw = torch.randint(0, 256, (math.prod(shape) * dtype.itemsize,), generator=rng, dtype=torch.uint8)
    noise = (raw & 1 if dtype == torch.bool else raw).view(dtype).reshape(shape)
    filler = data.draw(st.sampled_from(["noise", "zero", "one", "nan", "inf"]))
    strange = {"noise": noise, "zero": torch.zeros_like(right), "one": torch.ones_like(right)}.get(filler)
    if strange is None:
        strange = torch.full(shape, math.nan if filler == "nan" else math.inf).to(dtype) if (
            dtype.is_floating_point) else noise
    few = torch.rand(shape, generator=rng) < data.draw(st.sampled_from([0.02, 0.5, 1.0]))
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    mixed = torch.where(few, strange.view(kind), right.view(kind)).view(dtype)
    found = plain(mixed, values, bound, poisoned=[noise], previous=[relations.trace(noise)])
    wrong = found.facts["outputs"].get("c", {}).get("wrong", 0)
    assert bool(found.lines) == bool(wrong)
    json.dumps(found.facts, allow_nan=False)
