# SPDX-License-Identifier: MIT
"""A test that takes its process along, or is stuck where Python cannot reach it, ends `make test` with its name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUIET = "def test_quiet(): pass\n"


def flags() -> list[str]:
    """How the Makefile calls pytest, for two workers."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "-m pytest" in line)
    found = re.search(r"-m pytest (.*)$", line)
    assert found is not None
    return found[1].replace("-n auto", "-n 2").split()


@pytest.mark.parametrize("body", ["__import__('os').kill(__import__('os').getpid(), 11)", "sum(range(10 ** 15))"])
def test_the_run_ends_and_names_the_test(tmp_path: Path, body: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["timeout"] < settings["faulthandler_timeout"]
    leave = str(settings["faulthandler_exit_on_timeout"]).lower()
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntimeout = 1\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = {leave}\n")
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(QUIET * 3 if name != "b" else f"def test_bad(): {body}\n{QUIET}")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *flags(), "."], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "crashed while running 'test_b.py::test_bad'" in done.stdout
