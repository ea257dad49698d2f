# SPDX-License-Identifier: MIT
"""The example problem folder under the project's own judge: a folder that is not ours in spirit, run as any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scoring.record import ExitCode
from tests.submissions.conftest import ROOT

EXAMPLE = ROOT / "examples/gpumode_task"


@pytest.mark.parametrize(("name", "code", "word"), [
    ("submission.py", ExitCode.OK, "1 passed"), ("wrong_submission.py", ExitCode.FAILED, "INCORRECT_NUMERICAL")])
def test_run_takes_a_foreign_folder_and_submission(name: str, code: ExitCode, word: str) -> None:
    command = [sys.executable, "-m", "scoring", "run", "--no-save", "--mode", "test", "--task", str(EXAMPLE),
               "--submission", str(EXAMPLE / name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    assert word in done.stdout + done.stderr
