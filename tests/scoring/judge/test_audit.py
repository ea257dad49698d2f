# SPDX-License-Identifier: MIT
"""scoring/judge/audit.py: every mutant is refused in the small cases, and an audit notices a check that is no good."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from scoring.judge.audit import HONEST, AuditRow, audit, audit_case
from tests.problems.folders import NAMES, case_id, generate, problem, small_cases, small_parameters


def test_only_selected_cases_are_audited() -> None:
    def told(row: AuditRow) -> None:
        pytest.fail(f"nobody selected {row.case}")

    assert audit([problem("fp8_gemm")], lambda case: False, "cpu", progress=told) == []


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("name", "case"), small_parameters(), ids=case_id)
def test_every_wrong_answer_is_refused_and_the_right_one_passes(name: str, case: Any) -> None:
    rows = list(audit_case(problem(name), case, "cpu", seed=7))
    assert rows[0].mutant == HONEST
    assert [row for row in rows if not row.good] == []
    applicable = [key for key, mutant in problem(name).mutants.MUTANTS.items() if mutant.applies(case.params)]
    assert [row.mutant for row in rows[1:]] == applicable
    assert len(applicable) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_a_sampled_audit_refuses_as_well(name: str) -> None:
    for case in small_cases(name)[-2:]:
        rows = list(audit_case(problem(name), case, "cpu", sample=8, seed=3))
        assert [row for row in rows if not row.good] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_applies_somewhere(name: str) -> None:
    loaded = problem(name)
    for mutant, entry in loaded.mutants.MUTANTS.items():
        assert any(entry.applies(case.params) for case in loaded.tests), mutant
        assert (entry.transform_data is None) != (entry.transform_outputs is None), mutant
        assert entry.summary


@pytest.mark.parametrize("name", NAMES)
def test_mutants_leave_data_and_outputs_alone(name: str) -> None:
    loaded = problem(name)
    case = small_cases(name)[3 if name != "amd_fp8_mm" else 0]
    data = generate(name, case.params)
    right = tuple(expectation.rounded() for expectation in loaded.reference.expected(data))
    kept = tuple(output.clone() for output in right)
    before = loaded.reference.expected(data)
    for mutant in loaded.mutants.MUTANTS.values():
        if mutant.applies(case.params):
            if mutant.transform_data is not None:
                mutant.transform_data(case.params, data)
            else:
                mutant.transform_outputs(case.params, data, right)
    after = loaded.reference.expected(data)
    assert all((x == y).all() for x, y in zip(right, kept, strict=True))
    assert all((x.values == y.values).all() for x, y in zip(before, after, strict=True))


def weakened(name: str, **changes: Any) -> Any:
    """A problem whose reference is patched: what the audit is there to catch."""
    loaded = problem(name)
    reference = SimpleNamespace(**{**vars(loaded.reference), **changes})
    return SimpleNamespace(
        name=name, path=loaded.path, cases=loaded.cases, generate=loaded.generate, binding=loaded.binding,
        mutants=loaded.mutants, utils=loaded.utils, reference=reference, bound=loaded.bound, call=loaded.call)


def test_a_bound_that_is_too_wide_is_reported() -> None:
    expected = problem("flash_attention").reference.expected

    def generous(*args: Any, **kwargs: Any) -> Any:
        return tuple(dataclasses.replace(e, bound=e.bound * 0 + 100.0) for e in expected(*args, **kwargs))

    case = small_cases("flash_attention")[0]
    bad = [row for row in audit_case(weakened("flash_attention", expected=generous), case, "cpu") if not row.good]
    assert "uniform_attention" in {row.mutant for row in bad}
    assert all(not row.refused for row in bad)


def test_a_bound_that_refuses_the_right_answer_is_reported() -> None:
    expected = problem("fp8_gemm").reference.expected

    def strict(*args: Any, **kwargs: Any) -> Any:
        return tuple(dataclasses.replace(e, bound=e.bound * 0) for e in expected(*args, **kwargs))

    rows = list(audit_case(weakened("fp8_gemm", expected=strict), small_cases("fp8_gemm")[0], "cpu"))
    assert [row.mutant for row in rows if not row.good] == [HONEST]
    assert "expected" in rows[0].detail


def test_selection_and_progress() -> None:
    seen: list[AuditRow] = []
    chosen = {small_cases(name)[0].name for name in NAMES}
    rows = audit(
        [problem(name) for name in NAMES], select=lambda case: case.name in chosen, device="cpu", progress=seen.append)
    assert rows == seen
    assert {row.problem for row in rows} == set(NAMES)
    assert {row.case for row in rows} == chosen
    assert all(row.good for row in rows)
