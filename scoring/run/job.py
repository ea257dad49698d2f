# SPDX-License-Identifier: MIT
"""From a candidate or a submission to a job: what is judged, beside which peers, within which limits. Runs nothing."""

from __future__ import annotations

import ast
import hashlib
import itertools
import math
import os
import re
import shutil
import stat
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backends import _extensions
from backends.base import Binary
from backends.errors import ToolchainMissing
from backends.source import Signature
from scoring.config.load import Config
from scoring.ipc.emulator import EMULATED, checks_of
from scoring.ipc.requests import Extensions, LoadEmulator, NativeSpec, PythonSpec
from scoring.judge.job import Contestant, Job, Limits
from scoring.judge.timing import TimingOptions
from scoring.problem import Problem
from scoring.record import NOT_ASKED, Case, Mode
from scoring.run.build import builds_of, chain_library
from scoring.run.select import SelectionError
from scoring.run.targets import Candidate, Place
from scoring.sandbox.policy import Policy

_BUILD_SECONDS = 600.0       # torch's headers take half a minute of a core, three times over


def make_kernel_job(
    config: Config, candidate: Candidate, mode: Mode, cases: Sequence[Case], with_peers: bool,
    to_run: bool = True, binary: Binary | None = None,
) -> Job:
    """A candidate as a job; without ``to_run`` one that only shows what the compiler made of it. ``binary`` is what
    ``builds_of`` made of the kernel, if that has been done.

    Raises ``CompileError``, ``SourceError``, ``ToolchainMissing``.
    """
    source, place = candidate.source, candidate.place
    if binary is None:
        kernel, *_others = builds_of(config, candidate, mode, to_run=False).values()
        binary = kernel.make()
    if not to_run:
        place = replace(place, device=None, reason=NOT_ASKED)
    runner = native_contestant(candidate.kernel, source.signature(), binary.path, place) if place.device else None
    job = _job(config, candidate.problem, place, candidate.kernel, binary.digest, mode, cases)
    rivals = find_peers(config, candidate.problem, place) if with_peers and runner else ()
    return replace(job, contestant=runner, binary=binary, peers=rivals)


def make_submission_job(
    config: Config, problem: Problem, place: Place, path: Path, staging: Path, mode: Mode, cases: Sequence[Case],
    with_peers: bool, stray: bool = False, gpus: int = 0,
) -> Job:
    """A job for a Python file with ``custom_kernel(data)``; ``staging`` is an empty folder that outlives the job.

    ``stray``: the file names GPUs, and the place is none of them. ``gpus``: those of a distributed task's ranks.

    Raises ``SelectionError`` if there is no such file.
    """
    spec = stage(problem, path, staging, "submission")
    digest = hashlib.sha256(Path(spec.path).read_bytes()).hexdigest()
    here = replace(place, reason=place.reason.removeprefix("compiled; not run: "))      # nothing was compiled
    # Everybody's file is called submission.py: its content tells one row of a leaderboard from another.
    job = _job(config, problem, here, f"{path.name}@{digest[:8]}", digest, mode, cases)
    patient = replace(job.limits, call_seconds=max(job.limits.call_seconds, job.limits.first_call_seconds))
    if gpus:                                 # every call imports the file in every rank
        spec, job = replace(spec, gpus=True), replace(job, gpus=gpus, limits=patient)
    elif job.torch_device == "cpu" and (stray or not problem.native):
        asks = asks_for_gpu(path) or (not problem.native and asks_for_gpu(problem.path / "reference.py"))
        spec = replace(spec, stand_in=asks or job.emulator is not None)
        if asks and job.emulator is None:        # a GPU's work takes a CPU longer, and nothing is timed
            job = replace(job, stand_in=True, limits=patient)
    spec = adapted(spec, place, path)
    if spec.extensions is not None:
        limits = replace(job.limits, load_seconds=max(job.limits.load_seconds, _BUILD_SECONDS))
        job = replace(job, stand_in=False, limits=limits)
    runner = Contestant("submission", spec) if place.device or spec.extensions else None
    job = with_tensors(job)
    return replace(job, contestant=runner, peers=find_peers(config, problem, place) if with_peers and runner else ())


def adapted(spec: PythonSpec, place: Place, path: Path) -> PythonSpec:
    """How a Python file is loaded for a GPU that is not here: ``cuda`` means the host, and ``load_inline`` is ours.

    Raises ``BackendError`` if the compiler of an emulated device is missing.
    """
    try:
        how = _extensions.of(place.target, place.device)
    except ToolchainMissing:
        if place.device is not None:
            raise
        return spec                      # nothing can be compiled, and the place says why nothing runs
    return replace(spec, stand_in=True, extensions=Extensions(shown=str(path), **vars(how))) if how else spec


def asks_for_gpu(path: Path) -> bool:
    """Whether a Python file names a CUDA device on a line that no ``torch.cuda.is_available()`` decides about."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return False

    def visit(node: ast.AST) -> bool:
        if isinstance(node, ast.If | ast.IfExp) and "is_available" in ast.dump(node.test):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return re.match(r"cuda(:|$)", node.value) is not None
        if isinstance(node, ast.Attribute) and node.attr == "cuda" and not (
                isinstance(node.value, ast.Name) and node.value.id == "torch"):
            return True                      # x.cuda()
        return any(visit(child) for child in ast.iter_child_nodes(node))

    return visit(tree)


def stage(problem: Problem, path: Path, folder: Path, module: str) -> PythonSpec:
    """How a worker loads a Python file as ``module``, once it lies in ``folder`` beside what it may import.

    Raises ``SelectionError`` if there is no such file.
    """
    content = read_submission(path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in problem.staged.items():
        if file.is_file():
            shutil.copyfile(file, folder / f"{name}.py")
    copy = folder / f"{module}.py"
    copy.write_bytes(content)
    return PythonSpec(str(copy), module, (str(folder),))


def read_submission(path: Path) -> bytes:
    """The content of a contestant's file. A link is refused: it could lead to any file that the judge may read.

    Raises ``SelectionError``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise SelectionError(f"{path} is a link; give the file itself", 2) from error
        raise SelectionError(f"no submission file {path} ({error.strerror})", 2) from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SelectionError(f"no submission file {path} (not a regular file)", 2)
        return file.read()


def with_tensors(job: Job) -> Job:
    """The job with an emulator that knows the memory of all of torch's tensors: Python files allocate their own."""
    if job.emulator is None:
        return job
    return replace(job, emulator=replace(job.emulator, options={**job.emulator.options, "tensors": "1"}))


def native_contestant(name: str, signature: Signature, library: Path, place: Place) -> Contestant:
    """How a worker loads a compiled kernel."""
    parameters = tuple((param.name, param.kind) for param in signature.params)
    preload = place.backend.runtime_libraries(place.device)
    spec = NativeSpec(str(library), signature.symbol, parameters, tuple(str(path) for path in preload))
    return Contestant(name, spec)


def find_peers(config: Config, problem: Problem, place: Place) -> tuple[Contestant, ...]:
    """The Python files that call a vendor's library for this problem, ``<peers>/<problem>/*.py``.

    A line of such a file's head comment may say which outputs it computes: ``# outputs: o``.
    """
    if place.backend.on_host or (place.device is not None and place.device.emulated):
        return ()
    found = []
    for path in sorted((config.path("peers") / problem.name).glob("*.py")):
        found.append(Contestant(path.stem, PythonSpec(str(path), f"peer_{path.stem}", partial=promised(path))))
    return tuple(found)


def promised(peer: Path) -> tuple[str, ...]:
    """The outputs that a peer's file says it computes; none if it says nothing, which means all."""
    head = itertools.takewhile(lambda line: line.startswith("#"), peer.read_text(encoding="utf-8").splitlines())
    named = (line.removeprefix("# outputs:") for line in head if line.startswith("# outputs:"))
    return tuple(next(named, "").split())


def runner_of(place: Place) -> str:
    """What the settings call the device of a place: its backend, or ``emulated``."""
    return EMULATED if place.device is not None and place.device.emulated else place.target.backend


def cases_for(problem: Problem, place: Place, cases: Sequence[Case], named: bool, everything: bool) -> list[Case]:
    """Those of the selected ``cases`` that a place gets.

    A device that has small cases gets no other benchmarks, unless they are ``named`` or ``everything`` is wanted. A
    small case of another device is named like a shape that is not listed.
    """
    own = problem.small.get(runner_of(place), ())
    groups = ("tests", "benchmarks") if everything or named or not own else ("tests",)
    found = [case for case in cases if case.group in groups or case in own]
    known = {case.name for case in found}
    others = [case for case in cases if case.name not in known] if named else []
    return found + [replace(case, group="benchmarks") for case in others]


def _job(
    config: Config, problem: Problem, place: Place, kernel: str, digest: str, mode: Mode, cases: Sequence[Case],
) -> Job:
    settings, device = config.settings, place.device
    emulated = device is not None and device.emulated
    runner = runner_of(place)
    gflop = settings.limits.case_gflop.get(runner, math.inf)
    call_seconds = settings.limits.emulated_call_seconds if emulated else settings.limits.call_seconds

    return Job(
        problem=problem, target=place.target, kernel=kernel, digest=digest, mode=mode, device=device,
        cases=tuple(cases), seed=settings.seed,
        limits=Limits(
            settings.limits.load_seconds, max(call_seconds, settings.limits.first_call_seconds), call_seconds,
            settings.limits.job_seconds, gflop * 1e9,
            too_large=f"of more than {gflop:g} GFLOP{' on an emulated device' * emulated} "
                      f"(limits.case_gflop.{runner} of the settings)",
            reference_seconds=settings.limits.reference_seconds,
        ),
        timing=TimingOptions(**dict(settings.timing)),
        sandbox=sandbox_policy(config),
        reason=place.reason, emulator=emulator_options(config, place, mode),
        chain=chain_library(config, place, mode),
    )


def sandbox_policy(config: Config) -> Policy:
    """What the settings ask of the sandbox; what we keep for ourselves stays out of its sight."""
    wanted = config.settings.sandbox
    hidden = (*config.problems, config.path("kernels"), config.cache, config.database.parent)
    return Policy(
        isolation=wanted.isolation, processes=wanted.processes, scratch_bytes=int(wanted.scratch_gib * 2**30),
        memory_bytes=int(wanted.memory_gib * 2**30) if wanted.memory_gib is not None else None, hidden=hidden,
    )


def emulator_options(config: Config, place: Place, mode: Mode) -> LoadEmulator | None:
    """The library and options of an emulated device, None for a real one or none.

    Checks are those of the settings, else all in test mode and none in the others. Memory that is no argument of the
    kernel is out of bounds. Raises ``BackendError``.
    """
    if place.device is None or not place.device.emulated:
        return None
    checks = config.settings.checks or ("all" if mode is Mode.TEST else "none")
    options = {"checks": checks_of(place.target.backend, checks), "counters": "1", "strict": "1"}
    if place.target.backend == "cuda":
        options["gpu"] = place.device.gpu
        options["schedule"] = config.settings.schedule or "late"
    (library,) = place.backend.runtime_libraries(place.device)
    return LoadEmulator(str(library), options, modelled=place.target.backend != "cuda")
