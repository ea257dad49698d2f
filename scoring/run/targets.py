# SPDX-License-Identifier: MIT
"""From a selection to candidates: which kernels of which problems for which targets, with the device to run on.

A device that is present decides the target; without one the configured GPUs are compiled for, and the place says why
nothing can run there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import backends
from backends.base import Availability, Backend, Device, Target
from backends.errors import SourceError, UnknownTarget
from backends.source import KernelSource, by_step, kernels
from scoring.config.load import Config
from scoring.popcorn.directives import server_directives
from scoring.problem import Problem, discover
from scoring.run.select import SelectionError, is_kernel, problem_names


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
    found = discover(*config.problems)
    return [Problem(found[name]) for name in problem_names(found, config.problems, patterns)]


def select_kernels(
    config: Config, problem: Problem, backend: Backend, patterns: Sequence[str]
) -> list[tuple[KernelSource, SourceError | None]]:
    """Kernel files of a problem in a backend's language that match a pattern (``scoring.run.select.is_kernel``).

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
    return sorted(found, key=lambda pair: by_step(pair[0]))


def places(
    config: Config, backend: Backend, available: Availability, gpu: str | None, arch: str | None = None
) -> list[Place]:
    """What to compile for, and where to run: present devices first, else the configured GPUs; ``gpu`` narrows it.

    An empty list of GPUs in the settings means none, no entry the backend's default ones.
    ``arch`` compiles for another architecture than the place's own: a device runs older code that carries PTX.
    Raises ``UnknownTarget`` for a GPU the backend does not know.
    """
    if gpu is not None:
        target = backend.target(gpu)
        device = next((d for d in available.devices if d.gpu.lower() == target.gpu.lower()), None)
        found = [Place(backend, target, device, "" if device else _why(available, target))]
    else:
        # The first real device; emulated ones cost nothing to have, so all of them.
        devices = [device for i, device in enumerate(available.devices) if i == 0 or device.emulated]
        found = [Place(backend, known, device) for device in devices
                 if (known := _target_for(backend, device)) is not None]
    if not found:
        wanted = config.settings.gpus.get(backend.name, backend.default_gpus())
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
                    elif reason := refusal(source, values):
                        refused.append(reason)
                    else:
                        chosen.append(Candidate(problem, source, place, values))
    if refused and not chosen:
        raise SelectionError("-D fits no selected kernel:\n  " + "\n  ".join(dict.fromkeys(refused)), 2)
    return chosen


def refusal(source: KernelSource, defines: Mapping[str, str]) -> str:
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


def submission_problem(config: Config, path: Path) -> str | None:
    """The problem a submission's header names: a leaderboard of a configured competition, or a problem itself."""
    try:
        board = server_directives(path.read_text(encoding="utf-8")).leaderboard
    except (OSError, UnicodeDecodeError):
        return None
    for competition in config.settings.competitions:
        if competition.leaderboard == board:
            return competition.problem
    known = discover(*config.problems)
    return next((name for name in (board or "", (board or "").replace("-", "_")) if name in known), None)


def submission_gpus(path: Path) -> tuple[str, ...]:
    """The GPUs a submission's header names, but for labels that mean the host."""
    try:
        labels = server_directives(path.read_text(encoding="utf-8")).gpus
    except (OSError, UnicodeDecodeError):
        return ()
    here = {label.label for backend in backends.every() if backend.on_host for label in backend.labels}
    return tuple(label for label in labels if label not in here)
