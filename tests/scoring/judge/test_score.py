# SPDX-License-Identifier: MIT
"""``scoring.judge.score``: one job in, one record out, whatever the code under test does to its worker."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import CompileError
from scoring.ipc.requests import LoadEmulator
from scoring.judge import timing
from scoring.judge.job import Job, Limits
from scoring.judge.score import _score, rejected, score, skeleton
from scoring.judge.timing import TimingOptions
from scoring.judge.worker_process import WorkerProcess
from scoring.problem import Problem
from scoring.record import Case, CaseResult, Evidence, Mode, Record, Stats, Status, dumps
from scoring.store.store import Store
from tests.scoring.harness import (
    DATA,
    alive,
    descriptors,
    kernel_job,
    left_open,
    problem,
    submission_job,
    toy,
    wait_until,
    workers,
)

CASE = Case({"n": 64})
QUICK = TimingOptions(processes=1, min_rounds=2, max_rounds=2, seconds=0.2)


@pytest.fixture
def settings(cache):
    return toy(cache)


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = descriptors()
    yield
    gc.collect()
    assert not left_open(before)


def judged(job: Job, tmp_path: Path) -> Record:
    """Score, keep, read again: the store holds what was returned."""
    record = score(job)
    store = Store(tmp_path / "records.db")
    store.add(record)
    assert store.get(record.id) == Record.from_json(json.loads(dumps(record)))
    return record


def sent(tmp_path: Path, settings, name: str, cases=(CASE,), mode: Mode = Mode.TEST) -> Job:
    return submission_job(settings, DATA / "submissions" / f"{name}.py", tmp_path / "staging", list(cases), mode)


# Code that takes its worker down -------------------------------------------------------------------------------------

@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kernel", "words"), [
    ("segfault", "crashed during 'call' with SIGSEGV"),
    ("aborts", "crashed during 'call' with SIGABRT; it printed last:\nabout to abort"),
    ("signals", "crashed during 'call' with signal 40"),
    ("exits", "left during 'call' with exit code 3"),
])
def test_a_kernel_that_dies(tmp_path, settings, kernel, words):
    record = judged(kernel_job(settings, kernel, [CASE]), tmp_path)
    assert record.status is Status.RUNTIME_ERROR
    assert words in record.message
    assert record.cases[0].status is Status.RUNTIME_ERROR
    assert record.score is None


def test_every_case_gets_its_turn_after_a_crash(tmp_path, settings):
    record = judged(kernel_job(settings, "exits", problem(settings).tests), tmp_path)
    assert [result.status for result in record.cases] == [Status.RUNTIME_ERROR] * 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["os_exit", "garbage", "forges"])
def test_a_submission_that_attacks_its_judge(tmp_path, settings, name):
    record = judged(sent(tmp_path, settings, name), tmp_path)
    assert record.status in (Status.TAMPERED, Status.RUNTIME_ERROR, Status.INCORRECT_NUMERICAL)
    assert all(result.status is not Status.PASSED for result in record.cases)
    assert record.message


def test_a_kernel_that_hangs_is_stopped_at_its_deadline(tmp_path, settings):
    job = replace(kernel_job(settings, "hangs", [CASE]), limits=Limits(first_call_seconds=1.0, call_seconds=1.0))
    started = time.monotonic()
    record = judged(job, tmp_path)
    assert time.monotonic() - started < 30
    assert record.status is Status.TIMEOUT
    assert "no answer to 'call' within 1 s" in record.message


def test_the_jobs_time_ends_a_call_too(tmp_path, settings):
    job = replace(kernel_job(settings, "hangs", [CASE]), limits=Limits(job_seconds=20.0))
    started = time.monotonic()
    record = judged(job, tmp_path)
    assert time.monotonic() - started < 52
    assert record.status is Status.TIMEOUT
    assert "no answer to 'call' before the job's time was over" in record.message


def test_an_import_that_hangs_is_waited_for_once(tmp_path, settings):
    cases = [Case({"n": n}) for n in range(1, 6)]
    job = replace(sent(tmp_path, settings, "hangs_at_import", cases), limits=Limits(load_seconds=1.5))
    started = time.monotonic()
    record = judged(job, tmp_path)
    assert time.monotonic() - started < 30
    assert record.status is Status.TIMEOUT
    assert not record.cases
    assert "no answer to 'load' within 1.5 s" in record.message


def test_a_job_ends_when_its_time_is_over(tmp_path, settings):
    job = replace(kernel_job(settings, "honest"), limits=Limits(job_seconds=-1.0))
    record = judged(job, tmp_path)
    assert record.status is Status.TIMEOUT
    assert "the job's -1 s are over" in record.message


def test_processes_that_a_submission_started_end_with_it(tmp_path, settings, monkeypatch):
    seen, close = [], WorkerProcess.close

    def closing(process: WorkerProcess) -> None:
        for pid in workers(os.getpid()):
            with contextlib.suppress(OSError):          # it has just ended
                if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                    seen.append(pid)
        close(process)

    monkeypatch.setattr(WorkerProcess, "close", closing)
    record = judged(sent(tmp_path, settings, "forks"), tmp_path)
    assert record.status is Status.PASSED
    assert len(seen) == 2
    assert wait_until(lambda: not any(map(alive, seen)), 5)


# What a record says --------------------------------------------------------------------------------------------------

def test_a_kernel_that_passes_and_is_timed(tmp_path, settings):
    job = replace(kernel_job(settings, "honest", mode=Mode.BENCHMARK), timing=QUICK)
    record = judged(job, tmp_path)
    assert record.status is Status.PASSED, record.message
    assert [result.stats is not None for result in record.cases] == [False, False, True, True]
    times = [result.stats.median for result in record.cases if result.stats]
    assert record.score == pytest.approx((times[0] * times[1]) ** 0.5)
    assert record.protocol == timing.named("wall_cold/2", record.cases[2].environment["cache"].startswith("cold"))
    assert record.cases[2].flops == 4096
    assert record.cases[2].environment["cache"].split(":")[0] in ("cold", "warm")
    assert record.system["torch"]
    assert record.digest == job.binary.digest
    assert record.compile["command"][-1].endswith("kernel.so")


def test_what_fails_a_test_is_not_timed(tmp_path, settings):
    job = replace(sent(tmp_path, settings, "fails_later", problem(settings).cases, Mode.BENCHMARK), timing=QUICK)
    record = judged(job, tmp_path)
    assert [(result.case.name, result.status) for result in record.cases] == [
        ("n=64", Status.PASSED), ("n=1000", Status.INCORRECT_NUMERICAL)]
    assert record.status is Status.INCORRECT_NUMERICAL
    assert record.score is None
    assert record.protocol == ""


def test_a_run_that_failed_has_no_score_though_all_benchmarks_were_timed(settings):
    job = kernel_job(settings, "honest", mode=Mode.BENCHMARK)
    stats = Stats(9, 1e-3, 1e-3, 1e-3, 1e-3, 0.0, 0.0, 1e-3, 1e-3)
    timed = [CaseResult(case, Status.PASSED, stats=stats) for case in job.problem.benchmarks]
    assert _score(job, timed, Status.PASSED) == pytest.approx(1e-3)
    assert _score(job, timed, Status.INCORRECT_NUMERICAL) is None, "another case was wrong"


def test_a_test_of_the_same_shape_is_no_benchmark(settings):
    job = kernel_job(settings, "honest", mode=Mode.BENCHMARK)
    quick, slow = (Stats(9, time, time, time, time, 0.0, 0.0, time, time) for time in (1e-3, 2e-3))
    timed = [CaseResult(case, Status.PASSED, stats=slow) for case in job.problem.benchmarks]
    tests = [CaseResult(Case(case.params, "tests"), Status.PASSED, stats=quick) for case in job.problem.benchmarks]
    assert _score(job, [*timed, *tests], Status.PASSED) == pytest.approx(2e-3)
    assert _score(job, [*timed[1:], *tests], Status.PASSED) is None, "a benchmark was not timed"


def test_a_part_of_the_benchmarks_makes_no_score(tmp_path, settings):
    cases = [*problem(settings).tests, problem(settings).benchmarks[0]]
    record = judged(replace(kernel_job(settings, "honest", cases, Mode.BENCHMARK), timing=QUICK), tmp_path)
    assert record.status is Status.PASSED
    assert record.cases[-1].stats is not None
    assert record.score is None


def test_a_slow_device_times_the_tests_where_no_benchmark_is_small_enough(tmp_path, settings):
    job = kernel_job(settings, "honest", mode=Mode.BENCHMARK)
    record = judged(replace(job, timing=QUICK, limits=Limits(case_flops=2000.0)), tmp_path)
    assert [result.case.group for result in record.cases] == ["tests", "tests"]
    assert all(result.stats for result in record.cases)
    assert record.score is None
    assert record.facts.cases_skipped == ("n=4096", "n=50000")


@pytest.mark.parametrize("mode", list(Mode))
def test_no_case_at_all_is_no_pass(tmp_path, settings, mode):
    reason = "of more than 1e-09 GFLOP"
    job = replace(kernel_job(settings, "honest", mode=mode), limits=Limits(case_flops=1.0, too_large=reason))
    record = judged(job, tmp_path)
    assert record.status is Status.UNAVAILABLE
    assert record.message == f"no case was run: all are {reason}"
    left_out = ("n=64", "n=1000", *(("n=4096", "n=50000") if mode is not Mode.TEST else ()))
    assert record.facts.cases_skipped == left_out, "test mode has no benchmark cases to leave out"
    assert judged(kernel_job(settings, "honest", [], mode), tmp_path).status is Status.UNAVAILABLE


def test_the_seed_makes_a_run_repeatable(tmp_path, settings):
    job = replace(kernel_job(settings, "nan", [CASE]), seed=1234)
    one, two = judged(job, tmp_path), judged(job, tmp_path)
    assert one.seed == two.seed == 1234
    assert one.cases[0].seed == two.cases[0].seed
    assert one.cases[0].message == two.cases[0].message
    assert one.id != two.id
    drawn = [score(replace(job, seed=None).compiled_only()).seed for _ in range(4)]
    assert len(set(drawn)) == 4, "without one, every run draws its own"


def test_the_worst_case_names_the_record(tmp_path, settings):
    job = kernel_job(settings, "declines", problem(settings).tests)
    record = judged(job, tmp_path)
    assert record.status is Status.UNSUPPORTED
    assert "kUnsupportedShape" in record.message
    assert [result.status for result in record.cases] == [Status.UNSUPPORTED] * 2


def test_what_an_emulator_times_is_modelled(settings):
    job = kernel_job(settings, "honest")
    emulated = replace(job, emulator=LoadEmulator("lib/libamdhip64.so", {"checks": "none"}))
    assert [skeleton(each).evidence for each in (job, emulated)] == [Evidence.MEASURED, Evidence.MODELLED]


def test_what_cannot_run_here_says_so(tmp_path, settings):
    job = kernel_job(settings, "honest").compiled_only()
    record = judged(job, tmp_path)
    assert record.status is Status.UNAVAILABLE
    assert record.message == "compiled; not asked to run"
    assert record.cases == ()
    assert record.device == ""


def test_a_kernel_that_does_not_compile(tmp_path, settings):
    import backends
    from scoring.run import targets
    from scoring.run.job import make_kernel_job

    backend = backends.get("cpu")
    (candidate,) = targets.candidates(settings, [problem(settings)], {"cpu": backend.probe()}, ["broken"], None)
    with pytest.raises(CompileError) as caught:
        make_kernel_job(settings, candidate, Mode.TEST, [CASE], False)
    record = rejected(candidate.problem, candidate.place.target, candidate.source, Mode.TEST, caught.value)
    Store(tmp_path / "records.db").add(record)
    assert record.status is Status.COMPILE_ERROR
    assert record.message.startswith("kernels/cpu/toy/broken.cpp:6: error: ")
    assert {"file": "kernels/cpu/toy/broken.cpp", "line": 6, "severity": "error"}.items() <= (
        record.compile["diagnostics"][0].items())


def test_a_problem_that_fails_is_no_failure_of_the_kernel(tmp_path, settings):
    job = kernel_job(settings, "honest", [CASE])

    for file in filter(Path.is_file, job.problem.path.iterdir()):
        text = file.read_text().replace("x, alpha, _ = data\n    values", "raise KeyError('lost')\n    values")
        text = text.replace("../../../../problems/utils.py", str(job.problem.utils.__file__))
        (tmp_path / file.name).write_text(text)
    record = judged(replace(job, problem=Problem(tmp_path)), tmp_path)
    assert record.status is Status.UNAVAILABLE
    assert record.cases[0].message.startswith(f"{tmp_path / 'reference.py'}:")
    assert "expected failed: KeyError: 'lost'" in record.message


def test_faster_than_the_hardware_is_a_mismatch(tmp_path, settings):
    job = kernel_job(settings, "honest", mode=Mode.BENCHMARK)
    slow = dataclasses.replace(job.target, peaks={"fp32": 1.0, "bytes": 1.0})
    record = judged(replace(job, target=slow, timing=QUICK), tmp_path)
    assert record.status is Status.TIMING_MISMATCH
    assert "faster than the hardware allows" in record.message
    assert record.score is None


# Resources -----------------------------------------------------------------------------------------------------------

def memory() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
def test_a_hundred_judgements_leave_nothing_behind(settings, monkeypatch):
    """Passing, wrong and unloadable kernels in turn, a worker for every job (a light one: starting it is all it does).

    Then a hundred cases in one real worker: descriptors, mappings and memory stay as they were.
    """
    real = WorkerProcess
    monkeypatch.setattr(
        "scoring.judge.worker_process.WorkerProcess",
        lambda index, **options: real(index, program=("-m", "tests.data.fake_worker", "exit"), **options))
    names = ("honest", "after", "silent", "declines")
    made = [kernel_job(settings, name, [CASE]) for name in names]
    for job in made:
        score(job)
    gc.collect()
    files, used = descriptors(), memory()
    for index in range(100):
        assert score(made[index % len(made)]).status is Status.RUNTIME_ERROR
    gc.collect()
    assert not left_open(files)
    assert memory() - used < 32 << 20
    monkeypatch.undo()

    big = [Case({"n": 100_000 + n}) for n in range(100)]
    score(kernel_job(settings, "honest", big[:40]))      # the allocator's own reserves are not ours to count
    gc.collect()
    files, used = descriptors(), memory()
    record = score(kernel_job(settings, "honest", big))
    assert record.status is Status.PASSED
    assert len(record.cases) == 100
    gc.collect()
    assert not left_open(files)
    assert memory() - used < 32 << 20, "100 cases of 1.7 MB each must not add up"
    assert "memfd:warpwave" not in Path("/proc/self/maps").read_text()
