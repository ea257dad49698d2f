# SPDX-License-Identifier: MIT
"""The record model: invariants hold, scores combine as named, and JSON round trips lose nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.judge import check, intervals
from scoring.record import SCHEMA, SEVERITY, Case, CaseResult, Facts, Race, Record, Rival, Status, dumps, score, worst
from tests.scoring.records import case_result, record, sample, stats

ROOT = Path(__file__).parents[2]
times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=20)


@pytest.mark.parametrize("kept", sample(), ids=lambda r: f"{r.kernel}-{r.gpu}-{r.status}")
def test_json_round_trip(kept: Record) -> None:
    line = dumps(kept)
    assert "\n" not in line
    assert Record.from_json(json.loads(line)) == kept


@given(message=st.text(), seed=st.integers(0, 2**63), value=st.floats(1e-9, 1e3))
def test_json_round_trip_of_any_text_and_number(message: str, seed: int, value: float) -> None:
    kept = replace(record(cases=1), message=message, seed=seed, score=value)
    assert Record.from_json(json.loads(dumps(kept))) == kept


def test_json_has_the_field_names_and_the_schema() -> None:
    data = json.loads(dumps(record()))
    assert data["schema"] == SCHEMA == 3
    assert data["status"] == "PASSED"
    assert data["cases"][0]["case"] == {"params": {"m": 64, "n": 7168, "k": 2048}, "group": "benchmarks"}


@pytest.mark.parametrize("schema", [None, 0, SCHEMA + 1, "1"])
def test_another_schema_is_refused(schema: object) -> None:
    with pytest.raises(ValueError, match="schema"):
        Record.from_json({**record().to_json(), "schema": schema})


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="SPLENDID"):
        Record.from_json({**record().to_json(), "status": "SPLENDID"})


def test_a_missing_field_is_refused() -> None:
    data = record().to_json()
    del data["kernel"]
    with pytest.raises(TypeError, match="kernel"):
        Record.from_json(data)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_only_a_pass_carries_a_time_or_a_score(status: Status) -> None:
    with pytest.raises(ValueError, match="a time belongs to a passing case"):
        replace(case_result("fp8_gemm", {"m": 1, "n": 1, "k": 1}), status=status)
    with pytest.raises(ValueError, match="a score belongs to a passing record"):
        replace(record(), status=status)


@pytest.mark.parametrize("field", ["median", "mean", "best", "worst", "ci_low", "ci_high"])
@pytest.mark.parametrize("value", [0.0, -1e-6, math.nan, math.inf])
def test_a_time_is_finite_and_positive(field: str, value: float) -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        replace(stats(1e-5), **{field: value})


def test_statistics_need_a_run() -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        replace(stats(1e-5), runs=0)


def test_rates_follow_from_the_median() -> None:
    result = CaseResult(Case({"m": 1}), Status.PASSED, stats=stats(2e-6), flops=4e6, bytes_moved=8e3,
                        roofline_seconds=1e-6)
    assert result.tflops == pytest.approx(2.0)
    assert result.gbps == pytest.approx(4.0)
    assert result.roofline_fraction == pytest.approx(0.5)


def test_rates_are_unknown_without_a_time_or_a_count() -> None:
    untimed = CaseResult(Case({"m": 1}), Status.PASSED, flops=4e6, bytes_moved=8e3, roofline_seconds=1e-6)
    uncounted = CaseResult(Case({"m": 1}), Status.PASSED, stats=stats(2e-6))
    for result in (untimed, uncounted):
        assert (result.tflops, result.gbps, result.roofline_fraction) == (None, None, None)


def test_case_name_keeps_the_order_of_its_keys() -> None:
    assert Case({"sq": 4, "batch": 1, "lens": "ragged"}).name == "sq=4,batch=1,lens=ragged"


def test_severity_ranks_every_status_once() -> None:
    assert sorted(SEVERITY) == sorted(Status)


def test_worst_status() -> None:
    assert worst([]) is Status.PASSED
    assert worst([Status.PASSED, Status.INCORRECT_NUMERICAL, Status.UNAVAILABLE]) is Status.INCORRECT_NUMERICAL
    assert worst([Status.TAMPERED, Status.TIMEOUT, Status.PASSED]) is Status.TAMPERED


def test_scores_by_rule() -> None:
    assert score([1.0, 4.0], "geom") == pytest.approx(2.0)
    assert score([1.0, 4.0], "mean") == pytest.approx(2.5)
    assert score([1.0, 4.0], "last") == 4.0


@given(values=times)
def test_a_score_lies_between_best_and_worst(values: list[float]) -> None:
    for rule in ("geom", "mean", "last"):
        assert min(values) * (1 - 1e-9) <= score(values, rule) <= max(values) * (1 + 1e-9)


@given(values=times, factor=st.floats(0.1, 10))
def test_a_score_scales_with_the_times(values: list[float], factor: float) -> None:
    for rule in ("geom", "mean", "last"):
        assert score([v * factor for v in values], rule) == pytest.approx(score(values, rule) * factor)


def test_the_geometric_mean_does_not_underflow() -> None:
    assert score([1e-9] * 1000, "geom") == pytest.approx(1e-9)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0], [math.nan], [math.inf]])
@pytest.mark.parametrize("rule", ["geom", "mean", "last"])
def test_what_cannot_be_ranked_is_refused(values: list[float], rule: str) -> None:
    with pytest.raises(ValueError, match="cannot rank"):
        score(values, rule)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="median"):
        score([1.0], "median")


def test_a_record_with_nan_is_not_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps(record(seconds=math.nan))


@pytest.mark.parametrize("module", ["scoring.record", "scoring.output.terminal", "scoring.store.store",
                                    "scoring.output.junit", "scoring.run.progress", "scoring.output.table",
                                    "scoring.output.units"])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    heavy = ["torch", "numpy", "jinja2", "rich", "pydantic", "yaml", "tabulate"]
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_records_of_the_first_schema_are_read():
    """It kept in ``system`` what are typed facts now."""
    new = replace(record(), facts=Facts(cases_skipped=("m=1",), cases_skipped_why="too large", repeat=("run",),
                                        peaks={"bytes": 1e12}, emulated=True))
    old = new.to_json()
    facts = old.pop("facts")
    old |= {"schema": 1, "system": {**old["system"], **facts}}
    assert Record.from_json(json.loads(json.dumps(old))) == new
    with pytest.raises(ValueError, match="reads 1 to 3"):
        Record.from_json({**old, "schema": 4})


def test_records_of_the_second_schema_are_read():
    """Its times are those of one process."""
    made = record(cases=1)
    (result,) = made.cases
    race = Race((Rival("b", stats=stats(1e-6)),), stats(1e-6), order=((0, 1),))
    new = replace(made, cases=(replace(result, race=race, peers={"p": stats(2e-6)}),))
    old = json.loads(dumps(new)) | {"schema": 2}
    told = old["cases"][0]
    for entry in (told["stats"], told["peers"]["p"], told["race"]["stats"], told["race"]["rivals"][0]["stats"]):
        del entry["processes"]
    del told["race"]["rounds"]
    assert Record.from_json(old) == new


def test_times_of_several_processes_and_whether_their_interval_is_wide():
    several = replace(stats(1e-6, 0.04), processes=(0.9e-6, 1e-6, 1.1e-6))
    made = record(cases=1)
    kept = replace(made, cases=(replace(made.cases[0], stats=several),))
    assert Record.from_json(json.loads(dumps(kept))) == kept
    assert not several.wide
    assert stats(1e-6, 0.051).wide


def test_samples_percentiles_single_calls_and_wrong_elements_survive_json() -> None:
    made = intervals.within_process([5e-6, 1e-6, 2e-6, 3e-6, 4e-6])
    assert made.samples == (5e-6, 1e-6, 2e-6, 3e-6, 4e-6)
    assert (made.best, made.p10, made.median, made.p90, made.worst) == pytest.approx([1e-6, 1.4e-6, 3e-6, 4.6e-6, 5e-6])
    wrong = check._element("c", (1, 2), float("nan"), 1.0, 0.5)
    assert wrong == {"output": "c", "index": [1, 2], "got": "nan", "expected": 1.0, "bound": 0.5}
    old = record()
    case = replace(old.cases[0], stats=made, calls=made, wrong=(wrong,))
    new = replace(old, cases=(case,))
    assert Record.from_json(json.loads(dumps(new))) == new
