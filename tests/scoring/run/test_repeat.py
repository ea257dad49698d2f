# SPDX-License-Identifier: MIT
"""A failed case can be run again with the same inputs, by the command that the failure shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from scoring import cli
from scoring.judge.job import Limits
from scoring.judge.score import score
from scoring.judge.seeds import SeedSource
from scoring.judge.timing import TimingOptions
from scoring.output import terminal
from scoring.record import Case, Mode, Status
from tests.scoring.harness import DATA, SETTINGS, kernel_job, problem, submission_job, toy

ONE, TWO = Case({"n": 64}), Case({"n": 1000})


@pytest.fixture
def main(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(cache))

    def call(*arguments: str) -> tuple[int, str]:
        code = cli.main(arguments)
        return int(code), capsys.readouterr().out

    return call


def repeats(text: str) -> list[list[str]]:
    return [shlex.split(line)[3:] for line in re.findall(r"repeat: (python -m scoring .*)", text)]


def seeds(text: str) -> list[str]:
    return re.findall(r"\(generate_input seed (\d+)\)", text)


def test_seeds_of_a_case_do_not_depend_on_the_cases_before_it():
    first, second = SeedSource(7), SeedSource(7)
    first.of(ONE).next()
    assert first.of(TWO).next() == second.of(TWO).next()


def test_seeds_differ_between_bases_groups_names_and_occurrences():
    def draw(base: int, case: Case, skip: int = 0) -> int:
        source = SeedSource(base)
        for _ in range(skip):
            source.of(case)
        return source.of(case).next()

    drawn = [draw(7, ONE), draw(8, ONE), draw(7, TWO), draw(7, replace(ONE, group="benchmarks")), draw(7, ONE, skip=1)]
    assert len(set(drawn)) == len(drawn)


def test_one_case_of_a_run_is_repeated_by_its_base(cache):
    settings = toy(cache)
    whole = score(replace(kernel_job(settings, "nan", [ONE, TWO]), seed=99))
    part = score(replace(kernel_job(settings, "nan", [TWO]), seed=99))
    assert part.cases[0].seed == whole.cases[1].seed
    assert part.cases[0].message == whole.cases[1].message


def test_the_command_in_a_failure_repeats_it(main):
    code, out = main("--config", str(SETTINGS), "run", "--kernel", "nan")
    assert code == 1
    commands = repeats(out)
    assert [command[-2:] for command in commands] == [["--case", "n=64"], ["--case", "n=1000"]]
    code, again = main(*commands[1])
    assert code == 1
    assert seeds(again) == seeds(out)[1:]
    messages = [line for line in out.splitlines() if "of 1000 elements" in line]
    assert messages[0] in again


def test_a_submission_is_repeated_too(main):
    path = DATA / "submissions" / "nan.py"
    code, out = main("--config", str(SETTINGS), "run", "--submission", str(path), "--problem", "toy")
    assert code == 1
    command = repeats(out)[-1]
    assert command[command.index("--submission") + 1] == str(path)
    code, again = main(*command)
    assert code == 1
    assert seeds(again) == seeds(out)[-1:]


def test_a_leaderboard_run_is_repeated_as_a_benchmark(main):
    code, out = main("--config", str(SETTINGS), "run", "--kernel", "nan", "--mode", "leaderboard")
    assert code == 1
    (command, *_) = repeats(out)
    assert command[command.index("--mode") + 1] == "benchmark"
    code, again = main(*command)
    assert code == 1
    assert seeds(again) == seeds(out)[:1]


def _stopped_after(seconds: float) -> Limits:
    return Limits(first_call_seconds=seconds, call_seconds=seconds)


@pytest.mark.parametrize("kernel", ["segfault", "error7", "declines", "hangs"])
def test_a_case_without_an_answer_keeps_its_seed(cache, kernel):
    job = replace(kernel_job(toy(cache), kernel, [TWO]), seed=5, limits=_stopped_after(2.0))
    (result,) = score(job).cases
    reference = score(replace(kernel_job(toy(cache), "nan", [TWO]), seed=5))
    assert result.status is not Status.PASSED
    assert result.seed == reference.cases[0].seed != 0


def test_a_wrong_shape_keeps_its_seed(cache, tmp_path):
    job = submission_job(toy(cache), DATA / "submissions" / "wrong_shape.py", tmp_path / "staging", [ONE])
    (result,) = score(replace(job, seed=5)).cases
    assert result.status is Status.INCORRECT_SHAPE
    assert result.seed != 0


def test_without_inputs_there_is_no_seed(cache, tmp_path):
    job = submission_job(toy(cache), DATA / "submissions" / "no_kernel.py", tmp_path / "staging", [ONE])
    record = score(job)
    assert not record.cases
    assert "generate_input seed" not in terminal.failures([record])


def test_too_good_a_time_keeps_its_seed(cache):
    settings = toy(cache)
    job = kernel_job(settings, "honest", problem(settings).cases, Mode.BENCHMARK)
    slow = replace(job.target, peaks={"fp32": 1.0, "bytes": 1.0})
    quick = TimingOptions(processes=1, min_rounds=2, max_rounds=2, seconds=0.2)
    record = score(replace(job, target=slow, timing=quick))
    failed = [result for result in record.cases if result.status is Status.TIMING_MISMATCH]
    assert failed
    assert all(result.seed for result in failed)


def test_a_case_says_how_long_it_took(cache):
    record = score(replace(kernel_job(toy(cache), "hangs", [ONE]), limits=_stopped_after(1.0)))
    assert 1.0 <= record.cases[0].seconds <= record.seconds


def test_two_submissions_of_one_name_are_two_rows_of_a_leaderboard(main, tmp_path, capsys):
    good = (DATA / "submissions" / "honest.py").read_text()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "submission.py"
        path.write_text(good + f"\n# {folder}\n")
        code, out = main("--config", str(SETTINGS), "run", "--mode", "benchmark", "--submission", str(path),
                         "--problem", "toy")
        assert code == 0, out
    code, out = main("leaderboard")
    assert code == 0
    assert len(set(re.findall(r"submission\.py@[0-9a-f]{8}", out))) == 2
