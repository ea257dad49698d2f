# SPDX-License-Identifier: MIT
"""A worker has no torch while it runs libraries alone, and all of it as soon as Python code is loaded."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scoring.ipc.chain_library import KEY_BYTES, ChainLibrary
from scoring.ipc.requests import Load, LoadNullKernel, PythonSpec
from scoring.judge.case_run import CaseRun
from scoring.judge.chain_verifier import ChainVerifier
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerProcess
from scoring.record import Case, Mode
from scoring.sandbox.policy import Policy
from scoring.worker import lean
from tests.scoring.harness import DATA, ROOT, kernel_job, toy

# The worker's own program, whose judge hangs up at once; then it loads a submission.
CHILD = """
import gc, os, runpy, socket, sys
ours, theirs = socket.socketpair()
ours.close()
arguments, sys.argv = sys.argv[1:], ["worker", str(theirs.fileno()), str(os.pipe()[1])]
runpy.run_module("scoring.worker", run_name="__main__", alter_sys=True)
from scoring.ipc.requests import PythonSpec
from scoring.worker import lean, loaders

assert isinstance(sys.modules["torch"], lean.Later)
assert not [name for name in sys.modules if name.startswith(("torch.", "numpy"))]
frozen = gc.get_freeze_count()
loaders.PythonSubmission(PythonSpec(arguments[0], "submission"))
assert gc.isenabled() and gc.get_freeze_count() > frozen
import torch
assert loaders.torch is torch
names = torch._C._dispatch_get_all_op_names()
print(*sorted(name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")), sep="\\n")
"""
SUBMISSION = """
import torch

custom_kernel = print
assert torch.linalg.eigvals(torch.empty(3, 3, device="meta")).shape == (3,)
"""


def mapped(process: WorkerProcess) -> bool:
    """Whether the process has torch's libraries in its memory."""
    return "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()


def test_a_library_is_checked_timed_and_calibrated_without_torch(cache: Path) -> None:
    """And Python code that comes after it gets torch."""
    case = Case({"n": 1000})
    job = kernel_job(toy(cache), "honest", [case], Mode.BENCHMARK)
    assert job.chain is not None
    assert job.contestant is not None
    with WorkerProcess(sandbox=Policy(isolation="process")) as process:      # its process id is the one we know
        process.request(job.chain, 60)
        process.request(Load("honest", job.contestant.spec), 60)
        honest = replace(job.contestant, name="honest")
        with CaseRun(job.problem, case, process, honest, SeedSource(3), "cpu", "e4m3fn", 60) as run:
            verdict, _seconds = run.check()
            assert verdict.passed, verdict.message
            run.add_slot()
            verifier = ChainVerifier(run, ChainLibrary(job.chain.library, "cpu"))
            assert verifier.chain(honest, run.slots, nan=True).verdict.passed
            for copies in (False, True):
                process.request(LoadNullKernel("null", copies, 0.0), 60)
                verifier.prepare("null", run.slots)
                assert verifier.by_messages(bytes(KEY_BYTES), bytes(KEY_BYTES), len(run.slots), together=False).digest
        assert not mapped(process)
        process.request(Load("python", PythonSpec(str(DATA / "submissions" / "honest.py"))), 60)
        assert mapped(process)


def test_a_submission_has_all_of_torch(tmp_path: Path) -> None:
    """Before its first line, and by what torch itself tells: what is computed without memory is in every operation."""
    (tmp_path / "submission.py").write_text(SUBMISSION)
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "submission.py")], cwd=ROOT, text=True,
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    names = torch._C._dispatch_get_all_op_names()
    usual = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")}
    assert set(done.stdout.split()) >= {name for name in usual if name.startswith(("aten::", "prims::"))}


def test_whoever_looks_into_what_was_left_out_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left_out.py").write_text("answer = 42\n")
    (tmp_path / "imports_it.py").write_text("import left_out\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean, "LATER", "left_out")
    monkeypatch.setitem(sys.modules, "nowhere", None)        # what may not be imported
    lean.leave_out()
    imports_it = importlib.import_module("imports_it")
    assert isinstance(imports_it.left_out, lean.Later)
    assert imports_it.left_out.answer == 42
    assert imports_it.left_out is sys.modules["left_out"], "nobody keeps what stood in its place"
    assert not isinstance(sys.modules["left_out"], lean.Later)
    gc.unfreeze()
    for name in ("left_out", "imports_it"):
        del sys.modules[name]


def test_a_process_that_has_torch_keeps_it() -> None:
    before = sys.modules["torch"]
    lean.leave_out()
    lean.complete()
    assert sys.modules["torch"] is before
    assert not isinstance(before, lean.Later)


def test_torchs_version_is_known_without_torch() -> None:
    assert lean.version().__version__ == torch.__version__
    assert (lean.version().cuda, lean.version().hip) == (torch.version.cuda, torch.version.hip)
