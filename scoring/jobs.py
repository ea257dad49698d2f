# SPDX-License-Identifier: MIT
"""From a selection to jobs: which kernels of which problems for which targets, compiled, with the device to run on.

Nothing is run here. A device that is present decides the target; without one the configured GPUs are compiled for and
the job says why it cannot run.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import backends
from backends.base import Availability, Backend, Binary, Device, SourceError, Target, ToolchainMissing, UnknownTarget
from backends.source import KernelSource, Signature, kernels
from scoring.builds import Build
from scoring.config import Config
from scoring.emulation import EMULATED
from scoring.judge import Job, Limits
from scoring.model import NOT_ASKED, Case, Mode
from scoring.popcorn import server_directives
from scoring.problem import Problem, discover
from scoring.sandbox.policy import Policy
from scoring.selection import SelectionError, is_kernel, problem_names
from scoring.timing import TimingOptions

__all__ = [
    "Candidate", "Place", "SelectionError", "build", "builds_of", "candidates", "contestant", "peers", "places",
    "select_kernels", "select_problems", "submission", "submission_gpus", "submission_problem",
]

if TYPE_CHECKING:
    from scoring.caserun import Contestant

NATIVE = Path(__file__).with_name("chain") / "native"      # sources of the judge itself
_KINDS = {"int": "int", "float": "float", "size_t": "size_t"}


@dataclass(frozen=True)
class Place:
    """A target and where to run it: a device, or the reason for none."""

    backend: Backend
    target: Target
    device: Device | None
    reason: str = ""


@dataclass(frozen=True)
class Candidate:
    """One kernel file to be compiled for one place, with ``defines`` over its own; or why the file cannot be read."""

    problem: Problem
    source: KernelSource
    place: Place
    defines: Mapping[str, str] = field(default_factory=dict)
    error: SourceError | None = None

    @property
    def kernel(self) -> str:
        """The kernel's name in records: ``cuda/mma_sync``, with what was set for it ``cuda/mma_sync[TILE=64]``."""
        values = ",".join(f"{name}={value}" for name, value in sorted(self.defines.items()))
        return f"{self.source.language}/{self.source.variant}" + (f"[{values}]" if values else "")


def select_problems(config: Config, patterns: Sequence[str]) -> list[Problem]:
    """Problems whose name matches a pattern, in name order.

    Raises ``SelectionError`` (usage) for a pattern without wildcards that names none.
    """
    root = config.path("problems")
    found = discover(root)
    return [Problem(found[name]) for name in problem_names(found, root, patterns)]


def select_kernels(
    config: Config, problem: Problem, backend: Backend, patterns: Sequence[str]
) -> list[tuple[KernelSource, SourceError | None]]:
    """Kernel files of a problem in a backend's language that match a pattern (``scoring.selection.is_kernel``).

    A file that cannot be read comes with its error and without text: it is no reason to leave out the others.
    """
    root = config.path("kernels").parent
    found: list[tuple[KernelSource, SourceError | None]] = []
    for path in kernels(root, backend.language, problem.name):
        if not is_kernel(backend.language, problem.name, path.stem, patterns):
            continue
        try:
            found.append((KernelSource.read(path, root), None))
        except SourceError as error:
            nothing = KernelSource(path.absolute(), root.absolute(), problem.name, path.stem, backend.language, "")
            found.append((nothing, error))
    return found


def places(
    config: Config, backend: Backend, available: Availability, gpu: str | None, arch: str | None = None
) -> list[Place]:
    """What to compile for, and where to run: present devices first, else the configured GPUs; ``gpu`` narrows it.

    An empty list of GPUs in the settings means none, no entry the backend's first one.
    ``arch`` compiles for another architecture than the place's own: a device runs older code that carries PTX.
    Raises ``UnknownTarget`` for a GPU the backend does not know.
    """
    if gpu is not None:
        target = backend.target(gpu)
        device = next((d for d in available.devices if d.gpu.lower() == target.gpu.lower()), None)
        found = [Place(backend, target, device, "" if device else _why(available, target))]
    else:
        found = [
            Place(backend, known, device) for device in available.devices[:1]
            if (known := _target_for(backend, device)) is not None
        ]
    if not found:
        wanted = config.settings.gpus.get(backend.name, [backend.target().gpu])
        found = [Place(backend, target := backend.target(name), None, _why(available, target)) for name in wanted]
    if arch is None:
        return found
    spelling = backend.target(arch).arch
    return [replace(place, target=replace(place.target, arch=spelling)) for place in found]


def _target_for(backend: Backend, device: Device) -> Target | None:
    """What to compile for ``device``; None for an architecture the backend does not know."""
    try:
        return backend.target_for(device)
    except UnknownTarget:
        return None


def _why(available: Availability, target: Target) -> str:
    here = ", ".join(device.name for device in available.devices)
    return f"compiled; not run: no {target.gpu} here{f', but {here}' if here else ''}"


def candidates(
    config: Config, problems: Iterable[Problem], found: Mapping[str, Availability], kernel_patterns: Sequence[str],
    gpu: str | None, arch: str | None = None, defines: Mapping[str, str] | None = None,
) -> list[Candidate]:
    """Every kernel of every problem for every place whose arch it supports; with ``defines`` only those they fit.

    Raises ``SelectionError`` (usage) for ``defines`` that fit none of the kernels.
    """
    chosen: list[Candidate] = []
    refused: list[str] = []
    known, values = list(problems), dict(defines or {})
    for name, available in found.items():
        backend = backends.get(name)
        if not available.can_compile:
            continue
        for index, place in enumerate(places(config, backend, available, gpu, arch)):
            for problem in known:
                for source, error in select_kernels(config, problem, backend, kernel_patterns):
                    if error is not None:
                        if index == 0:      # for no arch in particular: told once
                            chosen.append(Candidate(problem, source, place, error=error))
                    elif source.arches and place.target.arch not in source.arches:
                        continue
                    elif refusal := _refusal(source, values):
                        refused.append(refusal)
                    else:
                        chosen.append(Candidate(problem, source, place, values))
    if refused and not chosen:
        raise SelectionError("-D fits no selected kernel:\n  " + "\n  ".join(dict.fromkeys(refused)), 2)
    return chosen


def _refusal(source: KernelSource, defines: Mapping[str, str]) -> str:
    """Why a kernel cannot be built with ``defines``: a name its directives do not have, or a value; "" if it can."""
    settable = [*source.tunables, *source.defines]
    for name in defines:
        if name not in settable:
            return f"{source.language}/{source.name} sets {', '.join(settable) or 'nothing'}, not {name}"
    try:
        source.resolve(defines)
    except SourceError as error:
        return str(error)
    return ""


def contestant(name: str, signature: Signature, library: Path, place: Place) -> Contestant:
    """How a worker loads a compiled kernel."""
    from scoring.caserun import Contestant

    parameters = tuple((p.name, "pointer" if p.is_pointer else _KINDS[p.ctype]) for p in signature.params)
    preload = place.backend.runtime_libraries(place.device)
    load = {
        "kind": "native", "library": str(library), "symbol": signature.symbol,
        "argtypes": [kind for _name, kind in parameters], "preload": [str(path) for path in preload],
        "parameters": [name for name, _kind in parameters],
    }
    return Contestant(name, load, parameters)


def peers(config: Config, problem: Problem, place: Place) -> tuple[Contestant, ...]:
    """The Python files that call a vendor's library for this problem, ``<peers>/<problem>/*.py``.

    A line of such a file's head comment may say which outputs it computes: ``# outputs: o``.
    """
    from scoring.caserun import Contestant

    if place.target.backend == "cpu" or (place.device is not None and place.device.emulated):
        return ()
    found = []
    for path in sorted((config.path("peers") / problem.name).glob("*.py")):
        head = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
        named = (line.removeprefix("# outputs:") for line in head if line.startswith("# outputs:"))
        partial = tuple(next(named, "").split())
        load = {
            "kind": "python", "path": str(path), "module": f"peer_{path.stem}", "sys_path": [],
            "partial": list(partial),
        }
        found.append(Contestant(path.stem, load, (), partial))
    return tuple(found)


def builds_of(config: Config, candidate: Candidate, mode: Mode, to_run: bool) -> dict[tuple[str, ...], Build]:
    """What a compiler has to make for a candidate, by what tells builds apart: the kernel, then the judge's own."""
    source, place = candidate.source, candidate.place

    def kernel() -> Binary:
        if candidate.error is not None:
            raise candidate.error
        return place.backend.compile(source, place.target, candidate.defines, cache_dir=config.cache)

    values = (f"{name}={value}" for name, value in sorted(candidate.defines.items()))
    name = f"{candidate.problem.name} {candidate.kernel} for {place.target.gpu}"
    found = {(str(source.path), place.target.gpu, place.target.arch, *values): Build(name, kernel)}
    if to_run and is_chained(place, mode):
        path, where = chain_source(place), place.target
        found[str(path), where.gpu, where.arch] = Build(
            f"the judge's chain for {where.gpu}", partial(_compile_chain, config, place))
    return found


def build(
    config: Config, candidate: Candidate, mode: Mode, cases: Sequence[Case], with_peers: bool,
    progress: Callable[[str], None], to_run: bool = True, binary: Binary | None = None,
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
    runner = contestant(candidate.kernel, source.signature(), binary.path, place) if place.device else None
    job = _job(config, candidate.problem, place, candidate.kernel, binary.digest, mode, cases, progress)
    rivals = peers(config, candidate.problem, place) if with_peers and runner else ()
    return replace(job, contestant=runner, binary=binary, peers=rivals)


def submission(
    config: Config, problem: Problem, place: Place, path: Path, staging: Path, mode: Mode, cases: Sequence[Case],
    with_peers: bool, progress: Callable[[str], None],
) -> Job:
    """A job for a Python file with ``custom_kernel(data)``; ``staging`` is an empty folder that outlives the job.

    Raises ``SelectionError`` if there is no such file.
    """
    from scoring.caserun import Contestant

    if not path.is_file():
        raise SelectionError(f"no submission file {path}", 2)
    for name, file in problem.staged.items():
        if file.is_file():
            shutil.copyfile(file, staging / f"{name}.py")
    copy = staging / "submission.py"
    shutil.copyfile(path, copy)
    load = {"kind": "python", "path": str(copy), "module": "submission", "sys_path": [str(staging)]}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    here = replace(place, reason=place.reason.removeprefix("compiled; not run: "))      # nothing was compiled
    # Everybody's file is called submission.py: its content tells one row of a leaderboard from another.
    job = _job(config, problem, here, f"{path.name}@{digest[:8]}", digest, mode, cases, progress)
    runner = Contestant("submission", load) if place.device else None
    if job.emulator is not None:     # a Python file may allocate memory of its own
        job = replace(job, emulator={**job.emulator, "options": {**job.emulator["options"], "strict": "0"}})
    return replace(job, contestant=runner, peers=peers(config, problem, place) if with_peers and runner else ())


def submission_problem(config: Config, path: Path) -> str | None:
    """The problem a submission's header names: a leaderboard of a configured competition, or a problem itself."""
    try:
        board = server_directives(path.read_text(encoding="utf-8")).leaderboard
    except (OSError, UnicodeDecodeError):
        return None
    for competition in config.settings.competitions:
        if competition.leaderboard == board:
            return competition.problem
    known = discover(config.path("problems"))
    return next((name for name in (board or "", (board or "").replace("-", "_")) if name in known), None)


def submission_gpus(path: Path) -> tuple[str, ...]:
    """The GPUs a submission's header names, but for the label that means this machine."""
    try:
        labels = server_directives(path.read_text(encoding="utf-8")).gpus
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(label for label in labels if label != "CPU")


def _job(
    config: Config, problem: Problem, place: Place, kernel: str, digest: str, mode: Mode, cases: Sequence[Case],
    progress: Callable[[str], None],
) -> Job:
    settings, device = config.settings, place.device
    emulated = device is not None and device.emulated
    gflop = settings.limits.case_gflop.get(EMULATED if emulated else place.target.backend)
    call_seconds = settings.limits.emulated_call_seconds if emulated else settings.limits.call_seconds

    def telemetry() -> Mapping[str, Any]:
        return place.backend.telemetry(device) if device is not None else {}

    return Job(
        problem=problem, target=place.target, kernel=kernel, digest=digest, mode=mode, device=device,
        cases=tuple(cases), seed=settings.seed,
        limits=Limits(
            settings.limits.load_seconds, max(call_seconds, settings.limits.first_call_seconds), call_seconds,
            settings.limits.job_seconds, gflop * 1e9 if gflop is not None else None,
        ),
        timing=TimingOptions(**settings.timing.model_dump()), telemetry=telemetry, progress=progress,
        sandbox=sandbox(config),
        reason=place.reason, emulator=emulator(config, place, mode), chain=chain(config, place, mode),
    )


def is_chained(place: Place, mode: Mode) -> bool:
    """Whether calls in a place are timed by the judge's commit chain: where something real is timed."""
    return place.device is not None and not place.device.emulated and mode is not Mode.TEST


def chain_source(place: Place) -> Path:
    return NATIVE / f"chain{place.backend.suffix}"


def _compile_chain(config: Config, place: Place) -> Binary:
    source = KernelSource.read(chain_source(place), NATIVE, "chain")
    return place.backend.compile(source, place.target, cache_dir=config.cache)


def chain(config: Config, place: Place, mode: Mode) -> dict[str, Any] | None:
    """The commit chain's library for a place where something is timed; None elsewhere, and without a compiler.

    Raises ``CompileError``.
    """
    if not is_chained(place, mode):
        return None
    try:
        binary = _compile_chain(config, place)
    except ToolchainMissing:
        return None
    preload = [str(library) for library in place.backend.runtime_libraries(place.device)]
    return {"library": str(binary.path), "preload": preload}


def sandbox(config: Config) -> Policy:
    """What the settings ask of the sandbox; what we keep for ourselves stays out of its sight."""
    wanted = config.settings.sandbox
    hidden = (config.path("problems"), config.path("kernels"), config.cache, config.database.parent)
    return Policy(
        isolation=wanted.isolation, processes=wanted.processes, scratch_bytes=int(wanted.scratch_gib * 2**30),
        memory_bytes=int(wanted.memory_gib * 2**30) if wanted.memory_gib is not None else None, hidden=hidden,
    )


def emulator(config: Config, place: Place, mode: Mode) -> dict[str, Any] | None:
    """The library and options of an emulated device, None for a real one or none.

    Checks are those of the settings, else all in test mode and none in the others. Memory that is no argument of the
    kernel is out of bounds. Raises ``BackendError``.
    """
    if place.device is None or not place.device.emulated:
        return None
    checks = config.settings.checks or ("all" if mode is Mode.TEST else "none")
    options = {"checks": checks, "counters": "1", "strict": "1"}
    (library,) = place.backend.runtime_libraries(place.device)
    return {"library": str(library), "options": options}
