# SPDX-License-Identifier: MIT
"""``import scoring`` and the schema of records: what others build on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest

import scoring
from scoring.record import Outcome, Race, Rival, dumps
from scoring.run.select import SelectionError
from scoring.store.store import StoreError
from scoring.verbs.schema import record_schema
from tests.scoring.harness import DATA, SETTINGS
from tests.scoring.records import sample


@pytest.fixture(scope="module")
def schema():
    found = record_schema()
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@pytest.mark.toolchain("cpu")
def test_a_problem_is_loaded_and_judged_and_its_records_are_read(tmp_path, monkeypatch, schema):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    assert scoring.problem_names(SETTINGS) == ["toy"]
    problem = scoring.load_problem("toy", SETTINGS)
    assert [case.name for case in problem.tests] == ["n=64", "n=1000"]
    assert scoring.load_problem(DATA / "problems" / "toy").name == "toy"
    records = scoring.score("toy", kernel="honest", mode="benchmark", seconds=0.1, config=SETTINGS, keep=True)
    records += scoring.score("toy", kernel="error7", mode="test", cases=["n=64"], config=SETTINGS)
    assert [(record.kernel, record.status) for record in records] == [
        ("cpu/honest", scoring.Status.PASSED), ("cpu/error7", scoring.Status.RUNTIME_ERROR)]
    for record in records:
        schema.validate(json.loads(dumps(record)))
    assert list(map(dumps, scoring.read_records(problem="toy"))) == [dumps(records[0])], "only what was to be kept is"
    (tmp_path / "some.jsonl").write_text("".join(dumps(record) + "\n" for record in records))
    assert list(map(dumps, scoring.read_records(tmp_path / "some.jsonl"))) == list(map(dumps, records))


def test_what_is_not_there_is_told():
    with pytest.raises(SelectionError, match="unknown problem 'gone'"):
        scoring.load_problem("gone", SETTINGS)
    with pytest.raises(SelectionError, match="nothing matches"):
        scoring.score("toy", kernel="gone", config=SETTINGS)
    with pytest.raises(AttributeError, match="no attribute 'gone'"):
        _ = scoring.gone


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text("[]\n")
    with pytest.raises(StoreError, match=r"x\.jsonl:1: is no record"):
        scoring.read_records(tmp_path / "x.jsonl")


def test_importing_it_costs_nothing():
    code = ("import sys, scoring; assert not {'torch', 'pydantic', 'yaml', 'scoring.api'} & set(sys.modules); "
            "assert set(scoring.__all__) <= set(dir(scoring)) | {name for name in scoring.__all__ "
            "if getattr(scoring, name) is not None}")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_schema_takes_every_record(schema):
    records = sample()
    (first, *_others) = records[0].cases
    race = Race((Rival("other", outcome=Outcome.FASTER, stats=first.stats, ratio=0.9),), seed=1, order=((0, 1),))
    records[0] = replace(records[0], cases=(replace(first, race=race),))
    for each in records:
        schema.validate(json.loads(dumps(each)))
    assert set(schema.schema["properties"]) == set(json.loads(dumps(records[0])))
    assert {"CaseResult", "Stats", "Race", "Rival", "Facts"} <= set(schema.schema["$defs"])


@pytest.mark.parametrize("spoil", [
    lambda record: record.pop("status"), lambda record: record.update(status="GOOD"),
    lambda record: record.update(surplus=1), lambda record: record.update(score="fast"),
    lambda record: record.update(schema=1), lambda record: record["facts"].pop("repeat"),
])
def test_the_schema_refuses_what_is_no_record(schema, spoil):
    document = json.loads(dumps(sample()[0]))
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        schema.validate(document)
