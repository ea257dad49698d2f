# SPDX-License-Identifier: MIT
"""Staging and running: the right files, every byte drained, nothing left behind, the runner's rules."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scoring.popcorn.report import combine_seed
from scoring.popcorn.task import TaskError
from scoring.record import ExitCode
from submissions import stage
from submissions.__main__ import main
from tests.scoring.harness import alive, wait_until
from tests.submissions.conftest import ROOT, TREE
from tests.submissions.test_eval import GOOD, REFERENCE, TORCH

TASK = """\
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
  - {name: torch.py, source: ../torch.py}
  - {name: eval.py, source: EVALUATOR}
lang: py
config: {main: eval.py}
description: d
tests: [{n: 1, seed: 10}]
benchmarks: [{n: 1, seed: 10}, {n: 2, seed: 20}]
ranking_by: geom
"""
EXAMPLE = ROOT / "examples/gpumode_task"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A problem folder on a stand-in for torch; it names an evaluator that is not there, so ours is used."""
    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "task.yml").write_text(TASK)
    (folder / "reference.py").write_text(REFERENCE)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "submission.py").write_text(GOOD)
    return folder


def own_evaluator(problem: Path, text: str) -> None:
    (problem / "EVALUATOR").write_text(text)


def only(problem: Path, mode: str = "test", **options: object) -> stage.Outcome:
    (outcome,) = stage.evaluate(problem, problem.parent / "submission.py", mode, **options)     # type: ignore[arg-type]
    return outcome


def test_a_submission_that_cannot_be_imported_is_told_in_short(problem: Path) -> None:
    """The first of many cases has the reason, from the submission's own lines on; the others were never tried."""
    many = ", ".join(["{n: 1, seed: 10}"] * 12)
    (problem / "task.yml").write_text(TASK.replace("tests: [{n: 1, seed: 10}]", f"tests: [{many}]"))
    (problem.parent / "submission.py").write_text("import torch\nraise RuntimeError('no such GPU')\n")
    outcome = only(problem)
    assert not outcome.problem, "few lines for many cases are a report all the same"
    lines = list(stage.describe(outcome))
    assert any("RuntimeError: no such GPU" in line for line in lines)
    assert not any("importlib" in line for line in lines)
    assert lines[-1].strip() == "and 11 cases that nothing was said about"


def test_an_evaluator_that_gives_up_says_why(problem: Path) -> None:
    """An error of no case, as some evaluators write where no GPU is: it is shown, and known for what it is."""
    own_evaluator(problem, "import os\nout = os.fdopen(int(os.environ['POPCORN_FD']), 'w')\n"
                           "print('check: fail', 'error: No CUDA GPU available', sep=chr(10), file=out)\n"
                           "out.close()\nraise SystemExit(112)\n")
    outcome = only(problem)
    assert outcome.exit_code == ExitCode.UNAVAILABLE
    told = [line.strip() for line in stage.describe(outcome)]
    assert told[1] == "No CUDA GPU available"
    assert told[2].startswith("this evaluator needs a GPU: No CUDA GPU available; ")


def test_files_are_staged_as_listed(problem: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    stage.stage(problem, tmp_path / "submission.py", workdir)
    assert sorted(path.name for path in workdir.iterdir()) == ["eval.py", "reference.py", "submission.py", "torch.py"]
    assert (workdir / "submission.py").read_text() == GOOD
    assert (workdir / "eval.py").read_bytes() == stage.EVALUATOR.read_bytes()


def test_the_tasks_own_evaluator_wins_unless_ours_is_asked_for(problem: Path, tmp_path: Path) -> None:
    own_evaluator(problem, "theirs")
    for ours in (False, True):
        workdir = tmp_path / f"work{ours}"
        workdir.mkdir()
        stage.stage(problem, tmp_path / "submission.py", workdir, ours)
        assert ((workdir / "eval.py").read_text() == "theirs") is not ours


def test_missing_files_and_other_languages_are_refused(problem: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").unlink()
    with pytest.raises(stage.StageError, match=r"files: torch\.py: .* is not a file"):
        only(problem)
    (problem / "task.yml").write_text(TASK.replace("lang: py", "lang: cu"))
    with pytest.raises(stage.StageError, match="only py tasks"):
        only(problem)
    (problem / "task.yml").write_text("lang: py\n")
    with pytest.raises(TaskError, match="tests: at least one case"):
        only(problem)


def test_a_leaderboard_run_is_a_chain(problem: Path) -> None:
    outcomes = stage.evaluate(problem, problem.parent / "submission.py", "leaderboard")
    assert [(outcome.mode, outcome.passed) for outcome in outcomes] == [
        ("test", True), ("benchmark", True), ("leaderboard", True)]
    assert [case.spec for case in outcomes[2].report.benchmarks] == ["n: 1; seed: 10", "n: 2; seed: 20"]
    score = outcomes[2].report.score("geom")
    assert score is not None
    assert 0 < score < 1


def test_the_chain_stops_at_the_first_failure(problem: Path) -> None:
    (problem.parent / "submission.py").write_text(GOOD.replace("2 *", "3 *"))
    (outcome,) = stage.evaluate(problem, problem.parent / "submission.py", "leaderboard")
    assert (outcome.mode, outcome.passed, outcome.exit_code) == ("test", False, ExitCode.FAILED)


def test_last_ranks_the_last_case(problem: Path) -> None:
    (problem / "task.yml").write_text(TASK.replace("geom", "last"))
    outcome = stage.evaluate(problem, problem.parent / "submission.py", "leaderboard")[-1]
    assert [case.spec for case in outcome.report.benchmarks] == ["n: 2; seed: 20"]


def test_the_secret_seed_reaches_the_evaluator(problem: Path) -> None:
    assert only(problem, seed=7).report.tests[0].text == f"seeds [{combine_seed(10, 7)}]"


def test_the_submission_runs_once_on_its_own_first(problem: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "submission.py").write_text(
        f"import os\nopen({str(log)!r}, 'a').write(__name__ + str('POPCORN_FD' in os.environ) + ' ')\n" + GOOD)
    assert only(problem).passed
    assert log.read_text() == "__main__False submissionFalse "


def test_what_that_run_does_decides_nothing(problem: Path, tmp_path: Path) -> None:
    (tmp_path / "submission.py").write_text(GOOD + "if __name__ == '__main__':\n    raise SystemExit(9)\n")
    assert only(problem).passed


FLOOD = """\
import os, sys
fd = int(os.environ["POPCORN_FD"])
for i in range(3000):
    os.write(fd, b"test.%d.message: %s\\n" % (i, b"x" * 100))
    print("y" * 100)
    print("z" * 100, file=sys.stderr)
os.write(fd, b"test-count: 3000\\ncheck: pass\\n")
"""


def test_any_amount_of_text_is_drained(problem: Path) -> None:
    own_evaluator(problem, FLOOD)
    outcome = only(problem, timeout=60)
    assert outcome.passed
    assert len(outcome.report.tests) == 3000
    for text in (outcome.stdout, outcome.stderr):
        assert 15_000 < len(text) <= stage.OUTPUT_LIMIT
        assert text.endswith("\n")


def test_out_of_time_ends_it_and_all_it_started(problem: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    own_evaluator(problem, "import subprocess, sys, time\n"
                  f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
                  f"open({str(pid_file)!r}, 'w').write(str(child.pid))\ntime.sleep(600)\n")
    started = time.monotonic()
    outcome = only(problem, timeout=2)
    assert time.monotonic() - started < 20
    assert (outcome.code, outcome.exit_code, outcome.problem) == (114, ExitCode.FAILED, "not done after 2 s")
    grandchild = int(pid_file.read_text())
    assert wait_until(lambda: not alive(grandchild)), "the grandchild is still running"


def test_a_grandchild_that_keeps_the_pipe_open_does_not_hang_it(problem: Path) -> None:
    own_evaluator(problem, "import os, subprocess, sys\nfd = int(os.environ['POPCORN_FD'])\n"
                  "os.write(fd, b'check: pass\\n')\n"
                  "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], pass_fds=[fd])\n")
    started = time.monotonic()
    assert only(problem, timeout=60).passed
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(("text", "code", "passed", "expected"), [
    ("os.write(fd, b'check: pass\\n')", 0, True, ExitCode.OK),
    ("os.write(fd, b'check: fail\\n')", 0, False, ExitCode.FAILED),     # most ranked runs end so: only check tells
    ("0", 0, False, ExitCode.FAILED),
    ("os.write(fd, b'check: pass\\n'); os._exit(112)", 112, False, ExitCode.FAILED),
    ("os._exit(113)", 113, False, ExitCode.USAGE),
    ("os._exit(111)", 111, False, ExitCode.INTERNAL),
    ("os.abort()", -6, False, ExitCode.FAILED),
    ("os.write(fd, b'test-count: x\\ncheck: pass\\n')", 0, False, ExitCode.FAILED),
])
def test_verdict_and_exit_code(problem: Path, text: str, code: int, passed: bool, expected: ExitCode) -> None:
    own_evaluator(problem, f"import os\nfd = int(os.environ['POPCORN_FD'])\n{text}\n")
    outcome = only(problem)
    assert (outcome.code, outcome.passed, outcome.exit_code) == (code, passed, expected)


# The command line


def test_eval_prints_cases_times_and_a_score(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submission = str(problem.parent / "submission.py")
    assert main(["eval", str(problem), submission, "--mode", "leaderboard"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert [line.partition(" (")[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "test: passed", "benchmark: passed", "leaderboard: passed", out.splitlines()[-1].partition(" (")[0]]
    assert out.splitlines()[-1].startswith("score: ")
    assert out.splitlines()[-1].endswith(" µs (geom)")


def test_eval_says_what_failed(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (problem.parent / "submission.py").write_text(GOOD.replace("2 *", "3 *"))
    assert main(["eval", str(problem), str(problem.parent / "submission.py")]) == ExitCode.FAILED
    assert "FAIL  n: 1; seed: 10\n        got 33\n" in capsys.readouterr().out
    assert main(["eval", str(problem), str(problem.parent / "submission.py"), "--json"]) == ExitCode.FAILED
    assert '"passed": false' in capsys.readouterr().out


def test_eval_shows_the_output_of_an_evaluator_that_said_nothing(
    problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_evaluator(problem, "raise SystemExit('no device here')")
    assert main(["eval", str(problem), str(problem.parent / "submission.py")]) == ExitCode.FAILED
    assert "no device here" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [
    ["eval", "nowhere", str(EXAMPLE / "submission.py")], ["eval", str(EXAMPLE), "nowhere.py"], ["lint", "nowhere.py"],
    ["pack", "nothing"], ["pack", "cpu/axpy/tiny", "--root", str(TREE), "--gpu", "H100"],
    ["pack", "axpy/tiny", "--root", str(TREE)], ["pack", "cpu/axpy/tiny", "--root", str(TREE), "-D", "STEP"],
    ["pack", "cpu/axpy/tiny", "--root", str(TREE), "-D", "STEP=9"],
    ["pack", "cpu/axpy/tiny", "--root", str(TREE), "-D", "STEPS=1"],
])
def test_usage_errors_are_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_pack_writes_a_file_that_lints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a/b.py"
    arguments = ["pack", "axpy/tiny", "--root", str(TREE), "--gpu", "L4", "-D", "UNROLL=2"]
    assert main([*arguments, "-o", str(file)]) == ExitCode.OK
    assert capsys.readouterr().out == f"{file}: {file.stat().st_size} bytes for axpy on L4\n"
    assert main(["lint", str(file), "--leaderboard", "axpy"]) == ExitCode.OK
    assert capsys.readouterr() == (f"{file}: nothing found\n", "")
    assert main([*arguments, "-o", "-"]) == ExitCode.OK
    assert capsys.readouterr().out == file.read_text()


def test_lint_prints_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.py"
    file.write_text("#!POPCORN leaderboard a\n#!POPCORN gpus H100\n# upstream\ndef custom_kernel(data): pass\n")
    assert main(["lint", str(file)]) == ExitCode.FAILED
    assert capsys.readouterr().out.startswith(f"{file}:3: error: the letters 'stream'")
    assert main(["lint", str(file), "--json"]) == ExitCode.FAILED
    assert '"line": 3' in capsys.readouterr().out


def test_lint_knows_the_gpus_of_the_settings_competitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, settings = tmp_path / "s.py", tmp_path / "settings.yaml"
    file.write_text("#!POPCORN leaderboard mine\n#!POPCORN gpus H100\ndef custom_kernel(data): pass\n")
    assert main(["lint", str(file)]) == ExitCode.OK
    monkeypatch.setenv("WARPWAVE_CONFIG", str(settings))
    settings.write_text("competitions: [{leaderboard: mine, problem: fp8_gemm, gpus: [MI300]}]\n")
    assert main(["lint", str(file)]) == ExitCode.FAILED
    assert "H100 is no GPU of leaderboard mine; there are: MI300" in capsys.readouterr().out
    file.write_text("#!POPCORN leaderboard amd-fp8-mm\n#!POPCORN gpus H100\ndef custom_kernel(data): pass\n")
    assert main(["lint", str(file)]) == ExitCode.FAILED      # the public boards are known all the same
    settings.write_text("competitions: 3\n")
    assert main(["lint", str(file)]) == ExitCode.USAGE


# With torch itself


@pytest.mark.parametrize(("name", "passed"), [("submission.py", True), ("wrong_submission.py", False)])
def test_the_example_problem(name: str, passed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (outcome,) = stage.evaluate(EXAMPLE, EXAMPLE / name, "test", timeout=100)
    assert outcome.passed is passed, outcome
    assert [case.passed for case in outcome.report.tests] == [passed] * 3
    assert os.environ.get("POPCORN_FD") is None


def test_profile_mode_reports_a_table(problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    outcome = stage.evaluate(EXAMPLE, EXAMPLE / "submission.py", "profile", timeout=100)[0]
    assert outcome.passed, outcome
    assert all("aten::rsqrt" in case.profile for case in outcome.report.benchmarks)
