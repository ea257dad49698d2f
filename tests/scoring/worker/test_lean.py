# SPDX-License-Identifier: MIT
"""A worker's torch lacks a part that libraries cannot want, and has it as soon as Python code is loaded."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scoring.worker import lean
from tests.scoring.harness import ROOT

# The worker's own program, whose judge hangs up at once; then it loads a submission.
CHILD = """
import gc, os, runpy, socket, sys
ours, theirs = socket.socketpair()
ours.close()
arguments, sys.argv = sys.argv[1:], ["worker", str(theirs.fileno()), str(os.pipe()[1])]
runpy.run_module("scoring.worker", run_name="__main__", alter_sys=True)
import torch
from scoring.ipc.requests import PythonSpec
from scoring.worker.loaders import PythonSubmission

def ruled():
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"))

print(len(ruled()))
frozen = gc.get_freeze_count()
PythonSubmission(PythonSpec(arguments[0], "submission"))
assert gc.isenabled() and gc.get_freeze_count() > frozen
print(*ruled(), sep="\\n")
"""
SUBMISSION = """
import torch

custom_kernel = print
assert torch.linalg.eigvals(torch.empty(3, 3, device="meta")).shape == (3,)
"""


def test_a_submission_has_all_of_torch(tmp_path: Path) -> None:
    """Before its first line, and by what torch itself tells: what is computed without memory is in every operation."""
    (tmp_path / "submission.py").write_text(SUBMISSION)
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "submission.py")], cwd=ROOT, text=True,
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    few, *ruled = done.stdout.split()
    names = torch._C._dispatch_get_all_op_names()
    usual = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")}
    assert int(few) < len(usual) - 500, "a worker starts without them"
    assert set(ruled) >= {name for name in usual if name.startswith(("aten::", "prims::"))}


def test_whoever_looks_into_what_was_left_out_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left_out.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean, "RULES", "left_out")
    monkeypatch.setitem(sys.modules, "left_out", lean.Later("left_out"))
    assert sys.modules["left_out"].answer == 42
    assert not isinstance(sys.modules["left_out"], lean.Later)
    gc.unfreeze()


def test_a_process_that_has_torch_keeps_it() -> None:
    before = sys.modules[lean.RULES]
    lean.leave_out()
    lean.complete()
    assert sys.modules[lean.RULES] is before
    assert not isinstance(before, lean.Later)
