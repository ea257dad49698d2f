# SPDX-License-Identifier: MIT
"""Settings, flags and files that cannot be meant: one sentence that says what is wrong, and the exit code for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scoring import cli
from scoring.config.load import locate_files
from scoring.run.select import is_kernel
from submissions.__main__ import main as submissions
from tests.scoring.harness import DATA, ROOT, SETTINGS

TOY = ["--config", str(SETTINGS)]
LATIN = b"# na\xefve\ndef custom_kernel(data):\n    return data[0]\n"


@pytest.fixture
def main(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "cache"))

    def call(*arguments: str, of=cli.main, out: str = "") -> tuple[int, str]:
        """The exit code and stderr; ``out`` is what stdout must hold, and all of it if that is nothing."""
        try:
            code = of(arguments)
        except SystemExit as stop:       # argparse
            code = stop.code
        said, err = capsys.readouterr()
        assert out in said if out else not said
        return int(code), err

    return call


def test_malformed_settings_are_2(main, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("mode: [")
    code, err = main("--config", str(path), "run")
    assert code == 2
    assert f"{path}: not YAML" in err
    path.write_text("mode: fast\nnonsense: 1\n")
    code, err = main("--config", str(path), "run")
    assert code == 2
    assert "mode: " in err
    assert "nonsense: unknown setting" in err


VERBS = {
    "list": [], "doctor": [], "build": [], "run": [], "compare": ["toy/a", "b"], "tune": [], "bundle": [],
    "import": ["x.jsonl"], "profile": ["--kernel", "toy/a"], "inspect": ["--kernel", "toy/a"], "audit": [],
    "new": ["problem", "x"], "leaderboard": [], "report": [], "serve": [],
}


@pytest.mark.parametrize(("verb", "flags"), VERBS.items(), ids=VERBS)
def test_every_verb_that_reads_settings_refuses_an_unknown_one(main, tmp_path, verb, flags):
    path = tmp_path / "c.yaml"
    path.write_text("timing: {speed: 1}\n")
    code, err = main("--config", str(path), verb, *flags)
    assert code == 2
    assert f"{path}: timing.speed: unknown setting" in err


def test_these_are_all_verbs_but_two_that_read_no_settings():
    verbs = next(action.choices for action in cli.parser()._actions if action.dest == "verb")
    assert set(verbs or ()) == {*VERBS, "schema", "completion"}


@pytest.mark.parametrize("verb", ["list", "run", "build"])
@pytest.mark.parametrize(("text", "words"), [
    ("tests: [", "not YAML"), ("tests: []", "description: is required"), ("- 1", "a mapping of keys"),
    ("tests: [{n: 1.5}]", "tests[0].n"),
])
def test_a_malformed_task_is_2(main, tmp_path, verb, text, words):
    folder = tmp_path / "problems" / "odd"
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(text)
    (tmp_path / "c.yaml").write_text("paths: {problems: problems}\nbackends: [cpu]\n")
    code, err = main("--config", str(tmp_path / "c.yaml"), verb, out="no kernels" if verb == "list" else "")
    assert code == 2
    assert f"{folder / 'task.yml'}: " in err
    assert words in err


def test_a_malformed_kernel_file_is_that_kernels_failure(main, tmp_path):
    shutil.copytree(DATA / "problems", tmp_path / "problems")
    folder = tmp_path / "kernels" / "cpu" / "toy"
    folder.mkdir(parents=True)
    (folder / "odd.cpp").write_text("// x\n//!KERNEL speed fast\n")
    text = (tmp_path / "problems" / "toy" / "task.yml").read_text()
    (tmp_path / "problems" / "toy" / "task.yml").write_text(
        text.replace("../../../../problems/utils.py", str(ROOT / "problems" / "utils.py")))
    (tmp_path / "c.yaml").write_text("paths: {problems: problems, kernels: kernels}\nbackends: [cpu]\n")
    for verb in ("run", "build"):
        words = "kernels/cpu/toy/odd.cpp:2: error: unknown directive"
        assert main("--config", str(tmp_path / "c.yaml"), verb, out=words)[0] == 1
    code, err = main("--config", str(tmp_path / "c.yaml"), "list", out="toy")
    assert code == 2
    assert "odd.cpp:2: unknown directive" in err


@pytest.mark.parametrize("pattern", [
    "kernels/cuda/fp8_gemm/mma.cu", "./kernels/cuda/fp8_gemm/mma.cu", "fp8_gemm/mma.cu", "mma.cu", "kernels/cuda/*.cu"])
def test_a_kernel_may_be_called_by_its_file(pattern):
    assert is_kernel("cuda", "fp8_gemm", "mma", [pattern])
    assert not is_kernel("hip", "fp8_gemm", "mma", [pattern])
    assert not is_kernel("cuda", "fp8_gemm", "mma2", [pattern.replace("*.cu", "mma.cu")])


def test_a_kernel_without_a_compiler_is_not_here(main, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    code, err = main(*TOY, "build", "--kernel", "cpu/honest")
    assert code == 4
    assert "error: cpu/toy/honest: no compiler for cpu here\n" in err
    code, err = main(*TOY, "build", "--kernel", "hip/honest")     # never selected, whether it could be compiled or not
    assert code == 5
    assert "hip/toy/honest: left out by --backend or --gpu" in err


def test_kernels_lie_in_a_folder_of_that_name(main, tmp_path):
    file = tmp_path / "c.yaml"
    problems = SETTINGS.parent / "problems"
    file.write_text(f"paths: {{problems: {problems}, kernels: {tmp_path / 'mine'}}}\n")
    for verb in ("list", "run"):
        code, err = main("--config", str(file), verb)
        assert code == 2
        assert "paths.kernels: the folder must be called kernels" in err
    file.write_text(f"backends: [cpu]\npaths: {{problems: {problems}, kernels: {tmp_path / 'kernels'}}}\n")
    code, err = main("--config", str(file), "run")
    assert code == 5
    assert f"{tmp_path / 'kernels'} has no kernels" in err


@pytest.mark.parametrize("number", ["0", "-5", "x", "1.5"])
def test_a_report_has_at_least_one_record(main, number):
    code, err = main("report", "--limit", number)
    assert code == 2
    assert f"argument --limit: '{number}' is no number from 1 on" in err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_an_evaluation_has_time(main, seconds):
    code, err = main("eval", "fp8_gemm", "x.py", "--timeout", seconds, of=submissions)
    assert code == 2
    assert f"argument --timeout: '{seconds}' is no number of seconds above 0" in err


def test_a_file_that_is_no_text_is_not_run(main, tmp_path):
    """Python itself would: up to 3.11 it does not look at the bytes of a comment."""
    file: Path = tmp_path / "submission.py"
    file.write_bytes(LATIN)
    for of, arguments in ((cli.main, (*TOY, "run", "--submission", str(file), "--problem", "toy")),
                          (submissions, ("eval", str(ROOT / "examples" / "gpumode_task"), str(file)))):
        code, err = main(*arguments, of=of)
        assert (code, err) == (2, f"error: {file}:1: not UTF-8: invalid continuation byte\n")


def test_records_are_read_where_nothing_can_be_written(tmp_path, monkeypatch, capsys):
    """A home that is mounted for reading alone; what a later run had to keep elsewhere is newer."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WARPWAVE_DB", raising=False)
    monkeypatch.setattr("backends._cache.tempfile.gettempdir", lambda: str(tmp_path))
    where = locate_files(str(SETTINGS), {})
    usual = tmp_path / "home" / "warpwave" / "leaderboard.db"
    assert where.kept == where.database == usual
    usual.write_bytes(b"records")
    monkeypatch.setattr("backends._cache.os.access", lambda *_arguments: False)
    substitute = where.database
    assert substitute != usual
    assert where.kept == usual
    substitute.write_bytes(b"newer records")
    assert where.kept == substitute
    assert capsys.readouterr().err.count("cannot be written") <= 1
