# SPDX-License-Identifier: MIT
"""``run`` without a selection: a short answer with a score, from small cases that have boards of their own."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from backends import cpu
from scoring import cli
from scoring.config.load import load_config
from scoring.popcorn.task import TaskError
from scoring.problem import SLOW, Problem, discover
from scoring.record import Case, Record
from scoring.run import first_look
from scoring.run.job import cases_for
from scoring.run.targets import Place
from scoring.store.store import Store
from tests.scoring.harness import DATA, ROOT

CPU = Place(cpu.BACKEND, cpu.BACKEND.target("CPU"), cpu.BACKEND.probe().devices[0])


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """Settings of a checkout with the toy problem, which has small cases for a CPU."""
    shutil.copytree(DATA / "problems" / "toy", tmp_path / "problems" / "toy")
    task = tmp_path / "problems" / "toy" / "task.yml"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", str(ROOT / "problems" / "utils.py")))
    (tmp_path / "problems" / "toy" / "small.yml").write_text("cpu:\n  - {n: 64}\n  - {n: 200}\n")
    settings = tmp_path / "config.yaml"
    settings.write_text(
        "backends: [cpu]\ntiming: {processes: 1, min_rounds: 2, max_rounds: 3, seconds: 0.5}\n"
        f"paths: {{problems: problems, kernels: {DATA}/kernels, peers: peers}}\n")
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "kept.db"))
    monkeypatch.setenv("COLUMNS", "80")
    return settings


@pytest.mark.parametrize("name", sorted(discover(ROOT / "problems")))
def test_every_problem_has_small_cases_for_every_slow_device(name):
    problem = Problem(ROOT / "problems" / name)
    limits = load_config({}).settings.limits.case_gflop
    for device in SLOW:
        assert problem.small[device]
        for case in problem.small[device]:
            assert case.params.keys() == problem.benchmarks[0].params.keys()
            assert 0 < problem.binding.flops(case.params) <= limits[device] * 1e9


def test_a_first_look_is_short_and_has_a_score(checkout, monkeypatch, capsys):
    monkeypatch.setattr(first_look, "is_wanted", lambda settings, options: True)
    assert cli.main(["--config", str(checkout), "run", "--kernel", "honest"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len([*lines, *err.splitlines()]) <= 40
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("toy"))
    assert "CPU, measured" in row
    assert row.rstrip().endswith("s"), "a time"
    assert "1 passed" in lines
    assert "next:" in lines
    (entry,) = Store(checkout.parent / "kept.db").leaderboard()
    assert entry.workload.startswith("small-")


@pytest.mark.slow
def test_everything_has_the_small_cases_on_top_and_the_same_board(checkout, capsys):
    for flags in ([], ["--all"]):
        assert cli.main(["--config", str(checkout), "run", "--kernel", "honest", "--json", *flags]) == 0
    usual, everything = (Record.from_json(json.loads(line)) for line in capsys.readouterr().out.splitlines())
    timed = [[result.case.group for result in record.cases if result.stats] for record in (usual, everything)]
    assert timed == [["small", "small"], ["benchmarks", "benchmarks", "small", "small"]]
    assert usual.score
    assert everything.score
    (entry,) = Store(checkout.parent / "kept.db").leaderboard()
    assert entry.score == min(usual.score, everything.score)
    assert cli.main(["--config", str(checkout), "leaderboard"]) == 0
    assert "cases small-" in capsys.readouterr().out


def test_which_cases_a_place_gets(checkout):
    problem = Problem(checkout.parent / "problems" / "toy")
    small, fast = problem.small["cpu"], replace(CPU, target=replace(CPU.target, backend="cuda"))
    known = [*problem.cases, *small]
    assert cases_for(problem, CPU, known, named=False, everything=False) == [*problem.tests, *small]
    assert cases_for(problem, CPU, known, named=False, everything=True) == known
    assert cases_for(problem, fast, known, named=False, everything=False) == list(problem.cases)
    named = cases_for(problem, fast, [small[1]], named=True, everything=False)
    assert named == [Case(small[1].params, "benchmarks")], "for another device it is any shape"


def test_what_selects_something_is_no_first_look(tmp_path):
    (tmp_path / "config.yaml").write_text("problems: [fp8_gemm]\n")
    plain = argparse.Namespace(verb="run", problem=None, all=False)
    assert first_look.is_wanted(load_config({}, environment={"XDG_CONFIG_HOME": str(tmp_path / "none")}), plain)
    assert not first_look.is_wanted(load_config({}), argparse.Namespace(verb="run", problem=["x"]))
    assert not first_look.is_wanted(load_config({}), argparse.Namespace(verb="run", all=True))
    assert not first_look.is_wanted(load_config({}), argparse.Namespace(verb="tune"))
    assert not first_look.is_wanted(load_config({}, str(tmp_path / "config.yaml")), plain)


def test_a_wrong_small_yml_is_told(checkout):
    folder = checkout.parent / "problems" / "toy"
    (folder / "small.yml").write_text("gpu:\n  - {n: 64}\ncpu:\n  - 3\n")
    with pytest.raises(TaskError, match="gpu: unknown device; there are cpu, emulated") as error:
        _ = Problem(folder).small
    assert len(error.value.errors) == 2
