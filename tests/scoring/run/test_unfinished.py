# SPDX-License-Identifier: MIT
"""A run that is ended early: what it has judged is kept and shown, never as if it were all, and can be gone on with."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scoring import cli
from scoring.cli import Terminated
from scoring.judge import score
from scoring.judge.cases import JobRunner
from scoring.judge.job import Job, Listener
from scoring.output import html
from scoring.record import Case, Mode, Record, Status
from scoring.run.checkpoint import Keeper, can_go_on, resumable
from scoring.store.store import Store, StoreError
from tests.scoring.harness import SETTINGS, kernel_job, start, touched, toy, wait_until
from tests.scoring.records import record

ARGUMENTS = ["--config", str(SETTINGS), "run", "--mode", "benchmark", "--kernel", "honest"]
NAMES = ["n=64", "n=1000", "n=4096", "n=50000"]      # two tests, two benchmarks


@pytest.fixture(autouse=True)
def store(tmp_path, cache, monkeypatch) -> Store:
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(cache))
    return Store(tmp_path / "records.db")


@pytest.fixture
def ended(monkeypatch) -> Callable[..., list[str]]:
    """``ended(at, error)``: raise ``error`` in the place of the case called ``at``; the list of cases judged."""
    real = JobRunner._case

    def prepare(at: str = "", error: BaseException | None = None) -> list[str]:
        judged: list[str] = []

        def case(self: JobRunner, case: Case, *arguments: object) -> object:
            if case.name == at and error is not None:
                raise error
            judged.append(case.name)
            return real(self, case, *arguments)

        monkeypatch.setattr(JobRunner, "_case", case)
        return judged

    return prepare


def test_what_was_judged_is_written_and_says_what_was_not(ended, store, capsys, tmp_path) -> None:
    ended("n=1000", KeyboardInterrupt())
    assert cli.main([*ARGUMENTS, "--json", "--junit", str(tmp_path / "junit.xml")]) == 130
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    found = Record.from_json(json.loads(line))
    assert (found.status, found.score) == (Status.INCOMPLETE, None)
    assert [result.case.name for result in found.cases] == NAMES[:1]
    assert list(found.unjudged) == NAMES[1:]
    assert store.records() == [found]
    assert f"judged 0 of 1 kernel; toy cpu/honest INCOMPLETE, 1 of 4 cases; kept in {store.path}; " in err
    suite = ET.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("2", "1")


def test_the_table_and_the_page_say_so(ended, store, capsys) -> None:
    ended("n=50000", Terminated(signal.SIGTERM))
    assert cli.main(ARGUMENTS) == 143
    assert store.leaderboard() == []
    out = capsys.readouterr().out
    assert "INCOMPLETE: the run was ended after 3 of 4 cases" in out
    assert "3/4" in out
    assert out.rstrip().endswith("1 incomplete")
    assert "the run was ended after 3 of 4 cases" in html.page(store.records())


def test_a_run_that_is_killed_loses_one_case(store, tmp_path) -> None:
    submission = tmp_path / "slow.py"
    submission.write_text(
        "import tempfile, time\nfrom pathlib import Path\n\ndef custom_kernel(data):\n"
        "    x, alpha, y = data\n    if x.numel() != 64:\n        Path(tempfile.gettempdir(), 'called').touch()\n"
        "        time.sleep(600)\n    return y.copy_(alpha * x)\n")
    process = start(["--config", str(SETTINGS), "run", "--problem", "toy", "--submission", str(submission)], {})
    try:
        assert wait_until(lambda: touched(process.pid, "called"), 60)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    (kept,) = store.records()
    assert (kept.status, [result.case.name for result in kept.cases]) == (Status.INCOMPLETE, NAMES[:1])
    assert list(kept.unjudged) == NAMES[1:2], "test mode"


def test_a_resumed_run_judges_the_rest_alone(ended, store, capsys) -> None:
    ended("n=4096", KeyboardInterrupt())
    cli.main(ARGUMENTS)
    (first,) = store.records()
    judged = ended()
    assert cli.main([*ARGUMENTS, "--resume"]) == 0
    assert judged == NAMES[2:]
    assert "resumed with 2 cases of" in capsys.readouterr().err
    (whole,) = store.records()
    assert (whole.id, whole.seed, whole.status, whole.unjudged) == (first.id, first.seed, Status.PASSED, ())
    assert list(whole.cases[:2]) == list(first.cases)
    assert whole.score is not None
    assert whole.seconds > first.seconds
    assert whole.isolation == first.isolation
    assert [row.id for row in store.leaderboard()] == [whole.id]


@pytest.fixture(scope="module")
def unfinished(cache: Path) -> tuple[Job, Record]:
    """A job, and the record of it after two of its four cases."""
    seen: list[Record] = []
    job = kernel_job(toy(cache), "honest", mode=Mode.BENCHMARK)
    listener = Listener()
    listener.judged = seen.append
    score.score(job, listener)
    assert [len(one.cases) for one in seen] == [1, 2, 3]
    return job, seen[1]


def test_what_is_not_the_same_is_judged_anew(unfinished: tuple[Job, Record]) -> None:
    job, partial = unfinished
    whole = replace(partial, status=Status.PASSED, facts=replace(partial.facts, cases_unjudged=()))
    assert resumable(job, [whole, partial]) is partial
    assert resumable(replace(job, seed=partial.seed), [partial]) is partial
    for other in (
        replace(job, digest="0" * 64), replace(job, kernel="cpu/other"), replace(job, mode=Mode.TEST),
        replace(job, seed=partial.seed + 1), replace(job, cases=job.cases[:3]),
        replace(job, cases=(*job.cases, Case({"n": 7}))), replace(job, device=replace(job.device, driver="other")),
        replace(job, device=None),
    ):
        assert resumable(other, [partial]) is None


def test_without_being_asked_nothing_is_resumed(unfinished: tuple[Job, Record], store: Store, capsys) -> None:
    job, partial = unfinished
    store.add(partial)
    assert Keeper(store, resume=True).earlier(job).id == partial.id
    assert Keeper(store).earlier(job) is None
    assert cli.main([*ARGUMENTS, "--resume", "--no-save"]) == 2


def test_only_what_is_not_complete_gives_way_to_another(unfinished: tuple[Job, Record], store: Store) -> None:
    _, partial = unfinished
    whole = replace(partial, status=Status.PASSED, facts=replace(partial.facts, cases_unjudged=()))
    for one in (partial, whole, whole):
        store.add(one)
    with pytest.raises(StoreError, match="already belongs to another record"):
        store.add(partial)
    assert [(one.id, one.status) for one in store.records()] == [(whole.id, Status.PASSED)]


def test_a_failure_and_leaderboard_mode_are_not_gone_on_with() -> None:
    passed = record("fp8_gemm", "cuda/wgmma")
    left = replace(passed.facts, cases_unjudged=("m=1,n=1,k=1",))
    partial = replace(passed, status=Status.INCOMPLETE, score=None, facts=left)
    assert can_go_on(partial)
    assert not can_go_on(passed)
    assert not can_go_on(replace(partial, mode=Mode.LEADERBOARD))
    assert not can_go_on(replace(partial, status=Status.TIMEOUT))
    with pytest.raises(ValueError, match="1 cases left"):
        replace(partial, status=Status.PASSED)


def test_a_page_prefers_the_run_that_was_not_ended() -> None:
    whole = record("fp8_gemm", "cuda/wgmma", created="2026-11-01T09:30:00.000+00:00")
    later = replace(
        whole, id="f" * 32, created="2026-11-02T09:30:00.000+00:00", status=Status.INCOMPLETE, score=None,
        cases=whole.cases[:2], facts=replace(whole.facts, cases_unjudged=("m=1,n=1,k=1",)))
    assert html.current([whole, later]) == html.current([later, whole]) == [whole]
    assert html.current([later]) == [later]
