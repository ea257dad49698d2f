# SPDX-License-Identifier: MIT
"""A compiler that hangs dies with all its children; its output survives."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from backends import _process


def test_output_and_status(tmp_path: Path) -> None:
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    done = _process.run([sys.executable, "-c", code], tmp_path / "log", tmp_path, 30.0)
    assert done.returncode == 3
    assert done.output == "out\nerr\n"
    assert done.seconds < 30


def test_it_runs_in_its_folder_with_its_environment_and_english_messages(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['A'], os.environ['LC_ALL'])"
    done = _process.run([sys.executable, "-c", code], tmp_path / "log", tmp_path, 30.0, {"A": "b"})
    assert done.output.split() == [str(tmp_path.resolve()), "b", "C"]


def test_the_time_limit_ends_grandchildren_too(tmp_path: Path) -> None:
    note = f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))"
    child = f"import time, pathlib, os; {note}; time.sleep(60)"
    parent = f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    started = time.monotonic()
    done = _process.run([sys.executable, "-c", parent], tmp_path / "log", tmp_path, 3.0)
    assert done.returncode is None
    assert done.output == "begun\n"
    assert time.monotonic() - started < 30
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_child_that_outlives_its_parent_is_ended_and_blocks_nothing(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    parent = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid)"
    done = _process.run([sys.executable, "-c", parent], tmp_path / "log", tmp_path, 30.0)
    assert done.returncode == 0
    assert done.seconds < 30
    assert ended(int(done.output))


def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _process.run([str(tmp_path / "none")], tmp_path / "log", tmp_path, 30.0)


def test_a_question_gets_an_answer_or_none(tmp_path: Path) -> None:
    assert _process.ask([sys.executable, "-c", "print(1)"]) == "1\n"
    assert _process.ask([sys.executable, "-c", "raise SystemExit(1)"]) is None
    assert _process.ask([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5) is None
    assert _process.ask([str(tmp_path / "none")]) is None


def test_a_control_groups_share_of_the_processors_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert _process.processors(tmp_path) == 8, "no control groups here"
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    for quota, processors in (("250000", 3), ("-1", 8), ("1000", 1), ("9900000", 8)):
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        assert _process.processors(tmp_path) == processors
    (tmp_path / "cpu" / "cpu.cfs_quota_us").unlink()
    for text, processors in (("200000 100000", 2), ("max 100000", 8), ("150000 100000", 2), ("", 8)):
        (tmp_path / "cpu.max").write_text(f"{text}\n")
        assert _process.processors(tmp_path) == processors


def ended(pid: int) -> bool:
    """Whether the process ends within some seconds (a zombie that nobody collects has ended)."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
