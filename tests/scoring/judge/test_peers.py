# SPDX-License-Identifier: MIT
"""Several contestants on the same inputs: what is expected is worked out once, and still finds who is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from scoring.ipc.requests import Load
from scoring.judge import timing
from scoring.judge.case_run import CaseRun
from scoring.judge.rounds import Rounds
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerProcess
from scoring.record import Case
from scoring.sandbox.policy import Policy
from tests.scoring.harness import DATA, kernel_job, submission_job, toy

CASE = Case({"n": 1000})
QUICK = timing.TimingOptions(processes=1, min_rounds=2, max_rounds=3, seconds=0.5)


@pytest.fixture(scope="module")
def worker(tmp_path_factory) -> Iterator[WorkerProcess]:
    """In no sandbox that shows only what is there when it starts."""
    files = [tmp_path_factory.getbasetemp()]
    with WorkerProcess(files=files, sandbox=Policy(isolation="process")) as process:
        yield process


@pytest.fixture
def raced(worker, cache, tmp_path, monkeypatch):
    """``honest`` beside peers on two slots: the outcome, and how often a turn what is expected was worked out."""

    def race(*peers: str) -> tuple[Any, float]:
        job = kernel_job(toy(cache), "honest", [CASE])
        own = replace(job.contestant, name="honest")
        worker.request(Load(own.name, own.spec), 60)
        others = []
        for name in peers:
            other = submission_job(toy(cache), DATA / "submissions" / f"{name}.py", tmp_path / name, [CASE])
            others.append(replace(other.contestant, name=name))
        worked, compute = [], job.problem.expectations
        monkeypatch.setattr(job.problem, "expectations", lambda data: (worked.append(1), compute(data))[1])
        with CaseRun(job.problem, CASE, worker, own, SeedSource(5), "cpu", "e4m3fn", 60) as running:
            rounds = Rounds(running, others, 2, QUICK, dict)
            outcome = rounds.time()
        return outcome, len(worked) / rounds.turns

    return race


def test_what_is_expected_is_worked_out_once_for_all_contestants_of_a_turn(raced, monkeypatch):
    outcome, worked = raced("in_place")
    assert outcome.verdict.passed
    assert set(outcome.samples) == {"honest", "in_place"}
    assert worked == 2, "two slots, with new inputs every turn"
    monkeypatch.setattr(CaseRun, "_expected_bytes", lambda self: 0)
    assert raced("in_place")[1] == 4, "no room: once for each contestant"


def test_a_wrong_peer_is_found_by_what_was_kept(raced):
    outcome, worked = raced("nan")
    assert outcome.verdict.passed
    assert "elements are wrong" in outcome.environment["peer_notes"]["nan"]
    assert set(outcome.samples) == {"honest"}
    assert worked == 2
