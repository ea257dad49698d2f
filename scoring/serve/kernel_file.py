# SPDX-License-Identifier: MIT
"""A submitted kernel file (.hip, .cu, .cpp) as a job: compiled in a sandbox, then judged as a kernel of the tree."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import backends
from backends._home import PACKAGES as ROOT
from backends.base import Binary, KernelUsage, Usage
from backends.errors import CompileError, Diagnostic, SourceError
from backends.source import KernelSource
from scoring.config.load import Config
from scoring.judge.job import Job
from scoring.judge.score import rejected
from scoring.problem import Problem
from scoring.record import Mode, Record
from scoring.run.job import make_kernel_job, sandbox_policy
from scoring.run.targets import Candidate, Place
from scoring.sandbox import isolation
from scoring.sandbox.launch import Launched

KERNEL_SUFFIXES = frozenset(backends.suffixes().values())
COMPILE_SECONDS = 300.0
_HEADERS = (".h", ".cuh", ".hpp", ".inc")


def suffix_for(gpu: str) -> str | None:
    """The suffix of kernel files that run on a GPU; None for a label that no backend knows."""
    label = backends.labels().get(gpu)
    return backends.get(label.backend).suffix if label is not None else None


def kernel_job(
    config: Config, problem: Problem, place: Place, path: Path, folder: Path, mode: Mode,
) -> Job | Record:
    """The job of a kernel file, or the record of one that does not compile; ``folder`` outlives the job."""
    root = folder / "tree"
    file = _stage(config, problem, place.backend.language, path, root)
    source = KernelSource(file, root, problem.name, file.stem, place.backend.language, path.read_text(encoding="utf-8"))
    name = f"{path.name}@{source_digest(path)}"
    try:
        binary = _compile(config, problem, place, root, file, folder)
        source = KernelSource.read(file, root, problem.name)
    except (CompileError, SourceError) as error:
        return replace(rejected(problem, place.target, source, mode, error, name), digest=source_digest(path))
    job = make_kernel_job(config, Candidate(problem, source, place), mode, problem.cases, False, True, binary)
    return replace(job, kernel=name)


def source_digest(path: Path) -> str:
    """Eight digits that tell one file from another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def _stage(config: Config, problem: Problem, language: str, path: Path, root: Path) -> Path:
    """A tree with the headers that a kernel may include, and the kernel; the kernel's place in it."""
    kernels = config.path("kernels")
    for part in ("common", language):
        for header in (kernels / part).rglob("*"):
            if header.suffix in _HEADERS:
                copy = root / "kernels" / header.relative_to(kernels)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(header, copy)
    home = root / "problems" / problem.name
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(problem.path / "kernel.h", home / "kernel.h")
    file = root / "kernels" / language / problem.name / f"submission{path.suffix}"
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, file)
    return file


def _compile(config: Config, problem: Problem, place: Place, root: Path, file: Path, folder: Path) -> Binary:
    """Raises ``CompileError`` and ``SourceError``, the latter with the file's name as the person knows it."""
    spec = {"root": str(root), "file": str(file.relative_to(root)), "problem": problem.name,
            "backend": place.backend.name, "gpu": place.target.gpu}
    made, library = _in_sandbox(config, spec, [root, ROOT / "backends"])
    diagnostics = tuple(Diagnostic(**each) for each in made.get("diagnostics", ()))
    if made.get("refused") == "source":
        raise SourceError(file, int(made["line"]), str(made["message"]).rpartition(f"{file.name}:")[2])
    if made.get("refused"):
        raise CompileError(str(made["message"]), diagnostics, str(made["log"]), made["command"])
    built = folder / "submission.so"
    built.write_bytes(library)
    usage = Usage(tuple(KernelUsage(**each) for each in made["usage"]))
    return Binary(built, str(made["digest"]), place.target, tuple(made["command"]), str(made["version"]), usage,
                  diagnostics, False, float(made["seconds"]))


def _in_sandbox(config: Config, spec: dict[str, Any], files: Sequence[Path]) -> tuple[dict[str, Any], bytes]:
    policy = sandbox_policy(config)
    choice = isolation.choose(policy)
    ours, theirs = os.pipe()
    program = ("-m", "scoring.serve.compiling", str(theirs), json.dumps(spec))
    try:
        launched = Launched(choice.tier, policy, program, files, fds=[theirs])
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    said: list[bytes] = []
    out = launched.process.stdout
    assert out is not None
    drain = threading.Thread(target=lambda: said.append(out.read()[-8000:]), daemon=True)
    drain.start()
    timer = threading.Timer(COMPILE_SECONDS, launched.kill)
    timer.start()
    try:
        with os.fdopen(ours, "rb") as answer:
            line, library = answer.readline(), answer.read()
    finally:
        late = not timer.is_alive()
        timer.cancel()
        launched.kill()
        drain.join(5.0)
    if not line.endswith(b"\n"):
        text = b"".join(said).decode(errors="replace").strip()
        why = f"the compiler did not finish within {COMPILE_SECONDS:g} s" if late else "the compiler was ended"
        raise CompileError(why, (), text, ())
    made: dict[str, Any] = json.loads(line)
    return made, library
