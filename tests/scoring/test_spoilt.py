# SPDX-License-Identifier: MIT
"""Somebody else's folders and files that are spoilt, through the command line: one reason, the right exit code, and a
record of everything that was run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from scoring import cli
from scoring.record import ExitCode, Record, Status
from scoring.store.store import Store
from submissions.__main__ import main as submissions
from tests.scoring.harness import ROOT

EXAMPLE = ROOT / "examples" / "gpumode_task"
ANSWER = EXAMPLE / "submission.py"
GOOD = ANSWER.read_text()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str, str, list[Record]]]:
    """Judge a file on a folder in test mode: exit code, stdout, stderr, and the records kept by it."""
    database = tmp_path / "records.db"
    monkeypatch.setenv("WARPWAVE_DB", str(database))
    known: set[str] = set()

    def call(folder: Path, file: Path = ANSWER, *flags: str) -> tuple[int, str, str, list[Record]]:
        code = cli.main(["run", "--task", str(folder), "--submission", str(file), "--mode", "test", "--backend", "cpu",
                         *flags])
        out, err = capsys.readouterr()
        kept = [record for record in Store(database).records() if record.id not in known]
        known.update(record.id for record in kept)
        return int(code), out, err, kept

    return call


def copy(place: Path) -> Path:
    """The example's folder, with one small test."""
    place.mkdir(parents=True)
    for name in ("task.yml", "task.py", "reference.py"):
        (place / name).write_text((EXAMPLE / name).read_text())
    task = place / "task.yml"
    lines = task.read_text().splitlines(keepends=True)
    task.write_text("".join(line for line in lines if "width: 1000" not in line and "seed: 3" not in line))
    return place


def spoilt(folder: Path, random: Random) -> None:
    """Spoil one file of a problem folder in one way."""
    file = folder / random.choice(["task.yml", "task.yml", "reference.py", "task.py"])
    data = file.read_bytes()
    lines = data.splitlines(keepends=True)
    place = random.randrange(len(data))
    line = random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            file.write_bytes(data[:place])
        case 1:
            file.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
        case 2:
            file.write_bytes(data[:place] + bytes(random.randrange(256) for _ in range(8)) + data[place:])
        case 3:
            file.write_bytes(b"".join([*lines[:line], lines[line].replace(b": ", b": [", 1), *lines[line + 1 :]]))
        case 4:
            file.write_bytes(b"".join(random.sample(lines, len(lines))))
        case 5:
            file.unlink()
        case 6:
            file.write_bytes(b"")


def test_fifty_spoilt_folders(run, tmp_path):
    """What cannot be used is the user's to mend (2), with the file's name; what can still be run is judged and kept."""
    random = Random(20)
    codes = []
    for number in range(50):
        folder = copy(tmp_path / str(number))
        spoilt(folder, random)
        code, out, err, kept = run(folder)
        codes.append(code)
        told = f"folder {number}: exit code {code}\n{out}{err}"
        assert "internal error" not in err, told
        if not kept:                     # refused before anything was run
            assert (code, out) == (ExitCode.USAGE, ""), told
            for line in err.splitlines():
                assert line.startswith((f"error: {folder}", str(folder), "warning: ")), told
            continue
        (record,) = kept
        assert code == {Status.PASSED: ExitCode.OK, Status.UNAVAILABLE: ExitCode.USAGE}.get(record.status, 1), told
        if code == ExitCode.USAGE:
            assert "Traceback" not in out + err, told
            assert out.count("not run, 1 kernel: the problem's own files: ") == 1, told
            assert str(folder) in out, told
            assert record.facts.problem_broken, told
    assert codes.count(ExitCode.USAGE) >= 30
    assert codes.count(ExitCode.FAILED) <= 5
    assert codes.count(ExitCode.OK) >= 5, "a missing line of a description harms nobody"


NEEDS = "not run, 1 kernel: the submission needs the package no_such_package, which is not installed here\n1 not run\n"
FILES = {
    "prints 20 MB": (GOOD.replace(
        "def custom_kernel", "import sys\nprint('x' * 20_000_000)\nsys.stderr.write('y' * 20_000_000)\n\n"
        "def custom_kernel"), 0, "1 passed"),
    "prints 20 MB and fails": (
        "def custom_kernel(data):\n    print('x' * 20_000_000)\n    raise ValueError('z' * 20_000_000)\n", 1,
        "| ValueError: zzz"),
    "returns a generator": (
        "def custom_kernel(data):\n    yield data[0]\n", 1, "the result is generator, not a tensor"),
    "needs a package": ("import no_such_package\n\ndef custom_kernel(data):\n    return data[0]\n", 4, NEEDS),
    "needs a package later": (
        "def custom_kernel(data):\n    import no_such_package\n", 4, "needs the package no_such_package"),
    "needs two GPUs": (
        "def custom_kernel(data):\n    return data[0].to('cuda:1')\n", 4,
        "custom_kernel needs a GPU: it names cuda:1, and the task has 1"),
    "is no Python": ("def custom_kernel(data:\n", 1, "SyntaxError: '(' was never closed"),
    "holds a zero byte": (GOOD + "\0", 1, "SyntaxError: source code string cannot contain null bytes"),
    "ends the process": ("import os\n\ndef custom_kernel(data):\n    os._exit(0)\n", 1, "left during 'call'"),
}


@pytest.mark.parametrize(("text", "code", "words"), FILES.values(), ids=FILES)
def test_a_submission_that(run, tmp_path, text, code, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    got, out, err, kept = run(copy(tmp_path / "task"), file)
    assert (got, len(kept)) == (code, 1), out + err
    assert words in out
    assert len(out) < 8000
    assert "internal error" not in err


def test_a_submission_in_another_encoding(run, tmp_path):
    for encoding, place in (("latin-1", 1), ("utf-16", 1)):
        file = tmp_path / "mine.py"
        file.write_bytes(("# naïve\n" + GOOD).encode(encoding, errors="replace"))
        code, out, err, kept = run(EXAMPLE, file)
        assert (code, out, kept) == (ExitCode.USAGE, "", [])
        assert err.startswith(f"error: {file}:{place}: not UTF-8")
        assert len(err.splitlines()) == 1


def test_the_evaluator_is_drained_and_explained(tmp_path, capsys):
    """``eval`` runs the folder's evaluator: no flood blocks it, and the reason is told."""
    file = tmp_path / "mine.py"
    for text, code, words in (FILES["prints 20 MB and fails"], FILES["needs a package"]):
        file.write_text(text)
        assert submissions(["eval", str(EXAMPLE), str(file)]) == code
        out, err = capsys.readouterr()
        assert words.removeprefix("| ").partition("\n")[0].removeprefix("not run, 1 kernel: the submission ") in out
        assert len(out) < 40_000
        assert err == ""


@pytest.mark.sampled(2)        # the tests above judge all of these in their own process
@pytest.mark.parametrize(("spoil", "code", "words"), [
    (lambda folder, file: (folder / "task.yml").write_text("tests: ["), 2, "task.yml: not YAML"),
    (lambda folder, file: (folder / "reference.py").unlink(), 2, "no reference.py"),
    (lambda folder, file: file.write_bytes(b"# na\xefve\n"), 2, "not UTF-8"),
    (lambda folder, file: file.write_text("import no_such_package\n"), 4, "needs the package no_such_package"),
    (lambda folder, file: file.write_text("def custom_kernel(data:\n"), 1, "COMPILE_ERROR"),
])
def test_in_a_process_of_its_own(tmp_path, spoil, code, words):
    folder, file = copy(tmp_path / "task"), tmp_path / "mine.py"
    file.write_text(GOOD)
    spoil(folder, file)
    done = subprocess.run(
        [sys.executable, "-m", "scoring", "run", "--task", str(folder), "--submission", str(file), "--mode", "test"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={"WARPWAVE_DB": str(tmp_path / "records.db"), "PATH": "/usr/bin:/bin"})
    assert done.returncode == code, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(words) >= 1
