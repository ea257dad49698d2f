# SPDX-License-Identifier: MIT
"""problems/utils.py: what counts as equal, and what a refusal says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.problems.folders import problem

utils = problem("fp8_gemm").utils
NAN, INF = float("nan"), float("inf")


def expectation(
    values: Any, bound: Any = 0.25, dtype: torch.dtype = torch.float32, shape: Any = None, index: Any = None,
) -> Any:
    values = torch.as_tensor(values, dtype=torch.float64)
    bound = torch.as_tensor(bound, dtype=torch.float64).expand_as(values)
    return utils.Expectation("c", values, bound, dtype, tuple(shape or values.shape), index)


def test_an_element_on_its_bound_passes_and_one_beyond_it_fails() -> None:
    want = expectation([[1.0, 2.0], [3.0, 4.0]])
    assert utils.compare(want, torch.tensor([[1.25, 2.0], [2.75, 4.0]])) is None
    mismatch = utils.compare(want, torch.tensor([[1.0, 2.0], [3.0, 4.2500005]]))
    assert mismatch.kind == "numerical"
    assert mismatch.wrong == 1
    assert "[1, 1]" in str(mismatch)


def test_the_share_of_the_bound_is_that_of_the_worst_element() -> None:
    share, mismatch = utils.examine(expectation([1.0, 2.0], [0.25, 1.0]), torch.tensor([1.125, 2.75]))
    assert mismatch is None
    assert share == 0.75


def test_between_answers_that_are_both_right_there_is_no_error() -> None:
    """4 and 6 are right, with an error of 0.5: as much is refused as without a width, shares are of the 0.5."""
    want = dataclasses.replace(expectation([5.0, 1.0], [1.5, 0.5]), width=torch.tensor([1.0, 0.0]))
    for answer, share in ((6.0, 0.0), (5.5, 0.0), (4.0, 0.0), (6.25, 0.5), (3.5, 1.0)):
        assert utils.examine(want, torch.tensor([answer, 1.0])) == (share, None)
    share, mismatch = utils.examine(want, torch.tensor([6.25, 1.75]))
    assert (share, mismatch.wrong) == (1.5, 1)
    assert "[1]" in str(mismatch)
    assert utils.examine(want, torch.tensor([6.75, 1.0]))[0] == 1.5
    assert utils.compare(want, torch.tensor([NAN, 1.0])).wrong == 1


def test_a_bound_of_zero_allows_only_the_value_itself() -> None:
    want = expectation([0.0, 1.0], 0.0)
    assert utils.compare(want, torch.tensor([-0.0, 1.0])) is None
    assert utils.compare(want, torch.tensor([1e-30, 1.0])).wrong == 1


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_never_passes_for_a_number(value: float) -> None:
    mismatch = utils.compare(expectation([1.0, 2.0], 1e300), torch.tensor([1.0, value]))
    assert mismatch.wrong == 1
    assert "[1]" in str(mismatch)


@pytest.mark.parametrize(("value", "passes"), [(-INF, True), (INF, False), (NAN, False), (-3e38, False)])
def test_an_infinity_must_be_the_same_infinity(value: float, passes: bool) -> None:
    assert (utils.compare(expectation([-INF, 2.0]), torch.tensor([value, 2.0])) is None) == passes


@pytest.mark.parametrize("wrong", [
    expectation([1.0, NAN]), expectation([1.0, 2.0], INF), expectation([1.0, 2.0], NAN), expectation([1.0, 2.0], -1.0),
])
def test_a_broken_reference_passes_nothing(wrong: Any) -> None:
    with pytest.raises(ValueError, match="unusable"):
        utils.compare(wrong, torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize(("output", "kind"), [
    (torch.zeros(2, 3), "shape"), (torch.zeros(4), "shape"), (torch.zeros(1, 4), "shape"),
    (torch.zeros(2, 2, dtype=torch.bfloat16), "dtype"), (torch.zeros(2, 2, dtype=torch.float64), "dtype"),
    ([[0.0, 0.0], [0.0, 0.0]], "shape"), (None, "shape"),
])
def test_shape_and_dtype_come_before_values(output: Any, kind: str) -> None:
    assert utils.compare(expectation(torch.zeros(2, 2)), output).kind == kind


@given(st.integers(0, 29), st.floats(0.26, 1e6), st.sampled_from([-1, 1]))
def test_one_wrong_element_anywhere_is_found_and_named(at: int, by: float, sign: int) -> None:
    values = torch.arange(30.0).view(5, 6)
    output = values.clone()
    output.view(-1)[at] += sign * by
    mismatch = utils.compare(expectation(values), output)
    assert mismatch.wrong == 1
    assert f"first [{at // 6}, {at % 6}]" in str(mismatch)
    assert f"worst [{at // 6}, {at % 6}]" in str(mismatch)


def test_first_worst_and_extent_of_several_wrong_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "CHUNK", 8)       # two rows at a time: what is said must not depend on chunks
    values = torch.zeros(7, 4)
    output = values.clone()
    output[1, 2], output[4, 1], output[6, 3] = 1.0, NAN, 5.0
    text = str(utils.compare(expectation(values), output))
    assert "3 of 28" in text
    assert "first [1, 2]: got 1" in text
    assert "worst [4, 1]: got nan" in text
    assert "[1..6, 1..3]" in text


def test_rows_crossed_with_columns_are_named_by_their_place_in_the_output() -> None:
    rows, columns = torch.tensor([[0], [5], [9]]), torch.tensor([2, 7])
    output = torch.zeros(10, 8)
    want = expectation(torch.zeros(3, 2), shape=(10, 8), index=(rows, columns))
    output[4, 4] = 99.0                           # not sampled
    assert utils.compare(want, output) is None
    output[9, 7] = 2.0
    text = str(utils.compare(want, output))
    assert "first [9, 7]" in text
    assert "sampled" in text


def test_listed_rows_are_named_by_their_place_in_the_output() -> None:
    index = (torch.tensor([1, 0]), torch.tensor([2, 3]))
    output = torch.zeros(2, 4, 5)
    want = expectation(torch.zeros(2, 5), shape=(2, 4, 5), index=index)
    assert torch.equal(want.rounded(), output)
    output[0, 3, 4] = 2.0
    text = str(utils.compare(want, output))
    assert "first [0, 3, 4]" in text
    assert "all lie within" not in text           # a list of rows has no extent


def test_check_outputs_wants_as_many_outputs_as_there_are_expectations() -> None:
    want = expectation([1.0, 2.0])
    good = torch.tensor([1.0, 2.0])
    assert utils.check_outputs((want,), good) == (True, "c: largest error 0.00 of its bound")
    assert utils.check_outputs((want, want), (good, good))[0]
    for wrong in ((good,), good, None, (good, good, good)):
        passed, message = utils.check_outputs((want, want), wrong)
        assert not passed
        assert "expected (c, c)" in message
    passed, message = utils.check_outputs((want, want), (good, good + 1))
    assert not passed
    assert "2 of 2" in message


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 130), st.integers(0, 99))
def test_sampled_positions_are_distinct_and_hold_the_ends(total: int, count: int, tile: int, seed: int) -> None:
    positions = utils.sample_positions(total, count, tile, torch.Generator().manual_seed(seed)).tolist()
    assert positions == sorted(set(positions))
    assert positions[0] == 0
    assert positions[-1] == total - 1
    assert len(positions) <= max(count, 7) or total <= count
    assert (total - 1) // tile * tile in positions


def test_an_unknown_fp8_flavour_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="e5m2"):
        utils.default_fp8("e5m2")


def test_the_first_ten_wrong_elements_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "CHUNK", 4)          # they come from several chunks
    want = expectation([[float(row), 0.0] for row in range(30)])
    got = want.values.float()
    got[3:, 1] = 5.0
    mismatch = utils.compare(want, got)
    assert mismatch.wrong == 27
    assert [index for index, *_ in mismatch.elements] == [(row, 1) for row in range(3, 13)]
    assert mismatch.elements[0][1:3] == (5.0, 0.0)
    assert mismatch.elements[0][3] == float(want.bound[3, 1])
