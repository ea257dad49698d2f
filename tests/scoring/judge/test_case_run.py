# SPDX-License-Identifier: MIT
"""``judge.case_run`` with the real worker: what a call may do, and what is said of one that does something else.

All contestants that do not kill their worker share one, so that each costs milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scoring.ipc.requests import Load, Request, Sweep
from scoring.ipc.template import UnsupportedData
from scoring.judge import timing
from scoring.judge.case_run import CaseRun, claimed
from scoring.judge.job import Contestant, Job
from scoring.judge.rounds import Rounds
from scoring.judge.seeds import SeedSource
from scoring.judge.timed import pooled, summary
from scoring.judge.worker_process import WorkerFailure, WorkerProcess
from scoring.problem import Problem, ProblemError
from scoring.record import Case, Status
from scoring.sandbox.policy import Policy
from tests.scoring.harness import DATA, descriptors, kernel_job, left_open, submission_job, toy

CASE = Case({"n": 1000})
QUICK = timing.TimingOptions(processes=1, min_rounds=2, max_rounds=3, seconds=0.5)


@pytest.fixture(scope="module")
def worker(tmp_path_factory) -> Iterator[WorkerProcess]:
    """One for all contestants: in no sandbox that shows only what is there when it starts."""
    files = [tmp_path_factory.getbasetemp()]
    with WorkerProcess(files=files, sandbox=Policy(isolation="process")) as process:
        yield process


@pytest.fixture(autouse=True)
def memory_is_given_back(worker):
    before = descriptors()
    yield
    assert not left_open(before)
    assert worker.alive, "these contestants leave their worker alive"


@pytest.fixture
def run(worker, cache, tmp_path):
    """Load a contestant and check (or time) it on one case: kernels by name, submissions as ``NAME.py``."""

    def start(name: str | Path, case: Case = CASE, task: Path | None = None) -> tuple[Job, Contestant]:
        settings = toy(cache)
        if isinstance(name, Path) or name.endswith(".py"):
            path = name if isinstance(name, Path) else DATA / "submissions" / name
            job = submission_job(settings, path, tmp_path / "staging", [case], task=task)
        else:
            job = kernel_job(settings, name, [case])
        contestant = replace(job.contestant, name=str(name))
        worker.request(Load(contestant.name, contestant.spec), 60)
        return job, contestant

    def judge(name: str | Path, case: Case = CASE, task: Path | None = None, slots: int = 0, **options: Any) -> Any:
        job, contestant = start(name, case, task)
        with CaseRun(job.problem, case, worker, contestant, SeedSource(5), "cpu", "e4m3fn", 60) as running:
            if slots:
                return Rounds(running, (), slots, QUICK, dict).time()
            return running.check(**options)[0]

    return judge


# Native kernels ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("kernel", "status", "words"), [
    ("honest", Status.PASSED, ""),
    ("uses_workspace", Status.PASSED, ""),
    ("before", Status.MUTATED_INPUT, "1 guard bytes overwritten, the first 1 bytes before y"),
    ("after", Status.MUTATED_INPUT, "1 guard bytes overwritten, the first 0 bytes after the end of y"),
    ("input", Status.MUTATED_INPUT, "input data.0 was modified"),
    ("overrun", Status.MUTATED_INPUT, "wrote beyond the end of its workspace"),
    ("incomplete", Status.INCORRECT_NUMERICAL, "y: 1 of 1000 elements are wrong; first [999]: got nan"),
    ("nan", Status.INCORRECT_NUMERICAL, "first [500]: got nan"),
    ("cached", Status.INCORRECT_NUMERICAL, "elements are wrong"),
])
def test_what_a_kernel_leaves(run, kernel, status, words):
    verdict = run(kernel)
    assert verdict.status is status, verdict
    assert words in verdict.message


@pytest.mark.parametrize(("kernel", "status", "words"), [
    ("error7", Status.RUNTIME_ERROR, "the kernel returned error 7"),
    ("declines", Status.UNSUPPORTED, "kUnsupportedShape"),
    ("greedy", Status.RUNTIME_ERROR, "kWorkspaceTooSmall"),
    ("silent", Status.RUNTIME_ERROR, "the kernel exports no toy, the function that kernel.h declares"),
])
def test_what_a_kernel_says(run, kernel, status, words):
    with pytest.raises(WorkerFailure, match=words) as caught:
        run(kernel)
    assert (caught.value.status, caught.value.alive) == (status, True)


def test_outputs_do_not_hold_nan_before_every_call(run):
    assert run("sniffs", calls=1).passed
    assert run("sniffs", calls=2).status is Status.INCORRECT_NUMERICAL
    outcome = run("sniffs", slots=2)                  # nor before every round of times
    assert outcome.verdict.status is Status.INCORRECT_NUMERICAL


def test_a_wrong_answer_in_the_second_call_counts(run):
    assert run("cached", calls=1).passed
    assert run("cached", calls=2).status is Status.INCORRECT_NUMERICAL


# Submissions ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "status", "words"), [
    ("honest", Status.PASSED, ""),
    ("in_place", Status.PASSED, ""),
    ("prints", Status.PASSED, ""),
    ("gradient", Status.PASSED, ""),
    ("imports", Status.PASSED, ""),
    ("shrinks", Status.PASSED, ""),
    ("nan", Status.INCORRECT_NUMERICAL, "1000 of 1000 elements are wrong"),
    ("cached", Status.INCORRECT_NUMERICAL, "elements are wrong"),
    ("by_address", Status.INCORRECT_NUMERICAL, "elements are wrong"),
    ("mutates", Status.MUTATED_INPUT, "input data.0 was modified"),
])
def test_what_a_submission_returns(run, name, status, words):
    verdict = run(f"{name}.py")
    assert verdict.status is status, verdict
    assert words in verdict.message


@pytest.mark.parametrize(("name", "status", "words"), [
    ("wrong_shape", Status.INCORRECT_SHAPE, r"output 0 has shape \(999,\), expected \(1000,\)"),
    ("wrong_dtype", Status.INCORRECT_DTYPE, r"output 0 has dtype torch.float64, expected torch.float32"),
    ("two_outputs", Status.INCORRECT_SHAPE, "returned 2 outputs, expected 1"),
    ("no_tensor", Status.INCORRECT_SHAPE, "output 0 is list, not a tensor"),
    ("nothing", Status.INCORRECT_SHAPE, "output 0 is NoneType, not a tensor"),
    ("raises", Status.RUNTIME_ERROR, "(?s)custom_kernel failed: .*submission.py.*no luck today"),
    ("raises_text", Status.RUNTIME_ERROR, "xxxxxxxx"),
    ("leaves", Status.RUNTIME_ERROR, "(?s)custom_kernel failed: .*SystemExit"),
    ("leaves_at_import", Status.COMPILE_ERROR, "(?s)importing submission.py failed: .*SystemExit: not today"),
    ("no_kernel", Status.COMPILE_ERROR, r"submission.py defines no custom_kernel\(data\)"),
])
def test_how_a_submission_fails(run, name, status, words):
    with pytest.raises(WorkerFailure, match=words) as caught:
        run(f"{name}.py")
    assert (caught.value.status, caught.value.alive) == (status, True)


@pytest.mark.parametrize(("text", "words"), [
    ("def custom_kernel(data:\n", "(?s)importing submission.py failed: .*SyntaxError"),
    ("\0", "(?s)importing submission.py failed: .*null bytes"), ("\ufeffcustom_kernel = 3", "defines no custom_kernel"),
])
def test_what_is_no_submission(run, tmp_path, text, words):
    path = tmp_path / "s.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkerFailure, match=words):
        run(path)


def test_a_submission_that_is_no_text(run, tmp_path):
    path = tmp_path / "s.py"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkerFailure, match=r"importing submission\.py failed"):
        run(path)


# Timing --------------------------------------------------------------------------------------------------------------

def test_a_timed_case_has_times_and_their_circumstances(run):
    outcome = run("honest", slots=4)
    assert outcome.verdict.passed
    stats = pooled([outcome]).stats[next(iter(outcome.samples))]
    assert 0 < stats.best <= stats.median <= stats.worst < 1
    assert outcome.protocol == timing.WALL
    assert outcome.environment["slots"] == 4
    assert 2 <= outcome.environment["rounds"] <= 4, "the first does not count"


@pytest.mark.parametrize("name", ["cached", "cached.py", "by_address.py", "wrong_later.py"])
def test_answers_are_verified_while_they_are_timed(run, name):
    outcome = run(name, slots=6)
    assert outcome.verdict.status is Status.INCORRECT_NUMERICAL
    assert outcome.samples == {}
    assert outcome.seed > 0, "the seed of the slot that was wrong"


class Liar:
    """The real worker, but for the seconds it claims for a timed sweep."""

    def __init__(self, worker: WorkerProcess, claim: Any):
        self.worker = worker
        self.claim = claim

    @property
    def alive(self) -> bool:
        return self.worker.alive

    def request(self, request: Request, *arguments: Any) -> dict[str, Any]:
        reply = self.worker.request(request, *arguments)
        return {**reply, "seconds": self.claim} if isinstance(request, Sweep) else reply


def timed(worker: WorkerProcess, job: Job, claim: Any) -> Any:
    contestant = replace(job.contestant, name="x")
    worker.request(Load(contestant.name, contestant.spec), 60)
    with CaseRun(job.problem, CASE, Liar(worker, claim), contestant, SeedSource(5), "cpu", "e4m3fn", 60) as running:
        return Rounds(running, (), 2, QUICK, dict).time()


@pytest.mark.parametrize("claim", [
    1e9, 1e300, -1, 0, 1e-30, 5e-324, 10**400, "1e-6", None, True, [1e-6], math.nan, math.inf,
], ids=str)
def test_a_clock_that_lies(worker, cache, claim):
    """Whatever the worker says about time, it is a claim: too long, none at all, or no number are refused."""
    outcome = timed(worker, kernel_job(toy(cache), "honest", [CASE]), claim)
    assert outcome.verdict.status is Status.TIMING_MISMATCH
    assert "of the judge's clock" in outcome.verdict.message
    assert len(outcome.verdict.message) < 500
    assert outcome.samples == {}


def test_a_short_lie_is_bounded_by_the_judges_clock(worker, cache, tmp_path):
    """A claim of 1 µs for a sweep of 100 ms is overruled, also where no chain could be built, which the record says."""
    path = submission(tmp_path, "import time; time.sleep(0.05); x, alpha, _ = data; return x * alpha")
    outcome = timed(worker, submission_job(toy(cache), path, tmp_path / "staging", [CASE]), 1e-6)
    stats = pooled([outcome]).stats[next(iter(outcome.samples))]
    assert stats.best >= 0.05
    assert outcome.environment["clock"] == "claim, bounded by requests only"


@pytest.mark.parametrize("reply", [
    {}, {"seconds": None}, {"seconds": "1"}, {"seconds": True}, {"seconds": [1]}, {"seconds": 10**400},
    {"seconds": -(10**4000)},
], ids=["absent", "null", "text", "boolean", "list", "huge", "hugely negative"])
def test_seconds_that_are_none(reply):
    claim = claimed(reply)
    assert claim != claim
    assert not timing.possible(claim, 1.0)


# Foreign problems ----------------------------------------------------------------------------------------------------

FOREIGN = """
import torch

def generate_input({keys}, seed):
    rng = torch.Generator().manual_seed(seed)
    {generate}

def ref_kernel(data):
    {reference}

def check_implementation(data, output):
    {check}
"""
TASK = """
files:
  - {{name: submission.py, source: "@SUBMISSION@"}}
  - {{name: reference.py, source: reference.py}}
lang: py
description: a foreign problem
tests: [{{{case}, seed: 1}}]
benchmarks: [{{{case}, seed: 2}}]
"""
ALLCLOSE = "return '' if torch.equal(output, ref_kernel(data)) else 'they differ'"


def foreign(
    folder: Path, generate: str, reference: str, check: str = ALLCLOSE, case: str = "n: 8", keys: str = "n"
) -> tuple[Path, Case]:
    folder.mkdir()
    values = {"generate": generate, "reference": reference, "check": check, "keys": keys}
    (folder / "reference.py").write_text(FOREIGN.format(**values))
    (folder / "task.yml").write_text(TASK.format(case=case))
    return folder, Problem(folder).tests[0]


def submission(folder: Path, body: str) -> Path:
    path = folder / "answer.py"
    path.write_text(f"import torch\n\ndef custom_kernel(data):\n    {body}\n")
    return path


def test_a_foreign_problem_that_answers_in_strings(run, tmp_path):
    task, case = foreign(tmp_path / "p", "return torch.randn(n, generator=rng)", "return data * 2")
    assert run(submission(tmp_path, "return data * 2"), case, task).passed
    verdict = run(submission(tmp_path, "return data * 3"), case, task)
    assert (verdict.status, verdict.message.split(";")[0]) == (Status.INCORRECT_NUMERICAL, "they differ")


def test_plain_values_that_change_with_the_seed_reach_the_submission(run, tmp_path):
    generate = "return torch.randn(n, generator=rng), float(seed), {'flag': bool(seed % 2), 'inf': float('inf')}"
    reference = "x, s, o = data; return x * s if o['flag'] else torch.full_like(x, o['inf'])"
    task, case = foreign(tmp_path / "p", generate, reference)
    answer = submission(tmp_path, reference)
    assert run(answer, case, task, calls=6).passed
    assert run(answer, case, task, slots=3).verdict.passed


def test_shapes_that_change_with_the_seed_reach_the_submission(run, tmp_path):
    generate = "return torch.randn(1 + seed % 5000, generator=rng), seed"
    task, case = foreign(tmp_path / "p", generate, "return torch.relu(data[0])")
    answer = submission(tmp_path, "return torch.relu(data[0])")
    assert run(answer, case, task, calls=8).passed
    outcome = run(answer, case, task, slots=3)
    assert outcome.verdict.passed, outcome.verdict


def test_guards_stay_in_force_when_shapes_change(run, tmp_path):
    generate = "return torch.randn(1 + seed % 5000, generator=rng)"
    task, case = foreign(tmp_path / "p", generate, "return torch.relu(data)")
    body = "torch.as_strided(data, (len(data) + 1,), (1,))[-1] = 7.0; return torch.relu(data)"
    assert "guard bytes" in run(submission(tmp_path, body), case, task, calls=3).message


def test_the_output_buffer_among_the_data(run, tmp_path):
    generate = "return torch.randn(n, generator=rng), torch.empty(n)"
    task, case = foreign(tmp_path / "p", generate, "data[1].copy_(data[0] + 1); return data[1]")
    assert run(submission(tmp_path, "return torch.add(data[0], 1, out=data[1])"), case, task).passed


def test_several_outputs_of_several_kinds(run, tmp_path):
    generate = "return torch.randint(0, 9, (n, 3), generator=rng)"
    reference = "return data.sum(1), (data > 4), data.float().mean()"
    check = "return all(torch.equal(a, b) for a, b in zip(output, ref_kernel(data))), 'no'"
    task, case = foreign(tmp_path / "p", generate, reference, check)
    assert run(submission(tmp_path, reference), case, task).passed
    assert not run(submission(tmp_path, "return data.sum(1), (data > 3), data.float().mean()"), case, task).passed


def test_a_submission_that_hands_back_its_input(run, tmp_path):
    task, case = foreign(tmp_path / "p", "return torch.randn(n, generator=rng)", "return data.abs()")
    assert not run(submission(tmp_path, "return data"), case, task).passed
    assert run(submission(tmp_path, "return data.abs_()"), case, task).passed


@pytest.mark.parametrize(("generate", "reference", "words"), [
    ("return torch.eye(n).to_sparse()", "return torch.eye(3)", "data is a torch.sparse_coo tensor"),
    ("return object()", "return torch.eye(3)", "data is object; only tensors"),
    ("return torch.randn(n)", "return 3", "ref_kernel returned something that is no tensor"),
])
def test_data_that_cannot_be_judged(run, tmp_path, generate, reference, words):
    task, case = foreign(tmp_path / "p", generate, reference)
    with pytest.raises(UnsupportedData, match=words):
        run(submission(tmp_path, "return data"), case, task)


@pytest.mark.parametrize(("generate", "reference", "check", "words"), [
    ("return torch.randn(n, device='nonsense')", "return data", ALLCLOSE, "generate_input failed"),
    ("return torch.randn(n)", "return 1 / 0", ALLCLOSE, "ref_kernel failed: ZeroDivisionError"),
    ("return torch.randn(n)", "return data", "return output.nope", "check_implementation failed: AttributeError"),
])
def test_a_foreign_problem_that_fails_is_named(run, tmp_path, generate, reference, check, words):
    task, case = foreign(tmp_path / "p", generate, reference, check)
    with pytest.raises(ProblemError, match=rf"reference\.py:\d+: {words}"):
        run(submission(tmp_path, "return data"), case, task)


# Parts ---------------------------------------------------------------------------------------------------------------

def test_readings_become_ranges_unions_and_words():
    readings = [{"mhz": 3, "why": ["power"], "name": "a"}, {"mhz": 1, "why": [], "name": "b"}, {"mhz": 2}]
    assert summary(readings) == {
        "mhz": {"min": 1, "median": 2, "max": 3}, "why": ["power"], "name": "b"}
    assert summary([]) == {}


def test_a_worker_that_is_gone_costs_no_memory(cache):
    """The case's first request fails already; what was allocated for it goes all the same."""
    job = kernel_job(toy(cache), "honest", [CASE])
    before = descriptors()
    process = WorkerProcess(program=("-m", "tests.data.fake_worker", "exit"))
    for _ in range(3):
        with pytest.raises(WorkerFailure), \
                CaseRun(job.problem, CASE, process, job.contestant, SeedSource(1), "cpu", "e4m3fn", 10):
            pass
    assert not left_open(before)
