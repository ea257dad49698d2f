# SPDX-License-Identifier: MIT
"""benchmarks/tools/hip_programs.py: what it makes of a program's words, and its table."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    folder = str(Path(__file__).resolve().parents[1] / "benchmarks/tools")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("hip_programs")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize(("code", "text", "result"), [
    (0, "All results match. Starting benchmarks.", "right"),
    (0, "Results do not match", "ran"),
    (0, "Number of failures: 0 out of 1\nPASS", "right"),
    (0, "Number of failures: 1 out of 1\nPASS", "wrong"),
    (0, "FAIL", "wrong"),
    (255, "Failed to open file ./data/twister.dat", "lacks"),
    (255, "File input.hpp cannot be opened for read.", "lacks"),
    (0, "PASS (though it failed to open a log)", "wrong"),
    (1, "", "wrong"),
    (None, "PASS", "slow"),
])
def test_verdicts(tool: ModuleType, code: int | None, text: str, result: str) -> None:
    assert tool._verdict(code, text, [])["result"] == result


@pytest.mark.parametrize(("text", "reason"), [
    ("make: /opt/bin/hipify-perl: No such file or directory\nmake: *** [Makefile:56: a.hip] Error 127", "hipify-perl"),
    ("main.cu:1:10: fatal error: 'boost/a.hpp' file not found\nmake: *** [Makefile:9: main] Error 1",
     "'boost/a.hpp' file not found"),
    ("warpwave-hipcc: note: no OpenMP here\ncannot find -lgsl", "-lgsl"),
    ("", "does not build"),
])
def test_what_a_build_wanted(tool: ModuleType, text: str, reason: str) -> None:
    assert tool._absent(text) == reason


def test_the_last_entry_of_a_program_counts(tool: ModuleType, tmp_path: Path) -> None:
    entries = [
        {"collection": "A", "name": "one", "result": "slow", "reason": "", "arguments": ["9"]},
        {"collection": "A", "name": "two", "result": "lacks", "reason": "rocPRIM (Debian: x) is one", "arguments": []},
        {"collection": "A", "name": "three", "result": "lacks", "reason": "'GL/gl.h' file not found", "arguments": []},
        {"collection": "A", "name": "one", "result": "right", "reason": "", "arguments": ["1"]},
    ]
    (log := tmp_path / "log").write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    table = tool.table(tool.read(log)).splitlines()
    assert table[2] == "| A | 3 | 1 | 0 | 0 | 0 | 2 | 0 |"
    assert table[-2:] == ["| right | one |", "| lacks | GL: three; rocPRIM: two |"]
