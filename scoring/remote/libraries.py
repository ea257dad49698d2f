# SPDX-License-Identifier: MIT
"""Compiles here what a bundle will run elsewhere, so that the other machine needs no compiler."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import backends
from backends._prebuilt import Writer
from backends.base import Availability, Device, Target
from backends.errors import BackendError, CompileError, UnknownTarget
from backends.source import KernelSource
from backends.toolchain import CompilingBackend
from scoring.config.load import Config, load_config
from scoring.record import Mode
from scoring.remote.bundle import SETTINGS, Selection
from scoring.run import rivals, targets
from scoring.run.build import NATIVE, Build, chain_source, compile_all, is_chained
from scoring.run.progress import Progress
from scoring.run.select import SelectionError


@dataclass(frozen=True)
class Wanted:
    """One build: a kernel or the judge's chain, for one target."""

    title: str
    backend: CompilingBackend
    source: KernelSource
    target: Target
    defines: Mapping[str, str]


def build(
    folder: Path, config: Config, selection: Selection, devices: Mapping[str, Sequence[Device]],
    gpu: str | None, arch: str | None, defines: Mapping[str, str], progress: Progress,
) -> int:
    """Fill ``prebuilt`` of the staged bundle ``folder`` for the ``devices`` of each backend there; how many builds.

    A kernel that its compiler refuses is refused there as well. Without a compiler here, that machine needs one.
    """
    wanted = {}
    for each in _wanted(folder, config, selection, devices, gpu, arch, defines):
        wanted[each.backend.build_name(each.source, each.target, each.defines)] = each
    made = compile_all({
        name: Build(each.title, partial(
            each.backend.compile, each.source, each.target, each.defines, cache_dir=config.cache))
        for name, each in wanted.items()}, progress)
    writer = Writer(folder / "prebuilt")
    for name, future in made.items():
        try:
            writer.add(name, wanted[name].backend.name, future.result())
        except CompileError as error:
            writer.refuse(name, wanted[name].backend.name, error)
        except BackendError as error:
            print(f"not compiled here: {wanted[name].title}: {error}", file=sys.stderr)
    writer.close()
    return len(made)


def _wanted(
    folder: Path, config: Config, selection: Selection, devices: Mapping[str, Sequence[Device]],
    gpu: str | None, arch: str | None, defines: Mapping[str, str],
) -> list[Wanted]:
    staged = load_config(file=str(folder / "code" / SETTINGS))
    staged = replace(staged, paths={**staged.paths, "cache": str(config.cache)})
    names = [problem.name for problem in selection.problems if problem.native]
    problems = targets.select_problems(staged, names)
    found = {name: _there(name, devices.get(name, ())) for name in config.settings.backends}
    found = {name: available for name, available in found.items() if available.can_compile and available.devices}
    mode = Mode(config.settings.mode)
    wanted: list[Wanted] = []
    candidates: list[targets.Candidate] = []
    if selection.submission is None:
        candidates = targets.candidates(staged, problems, found, config.settings.kernels, gpu, arch, defines)
    for each in [each for each in candidates if each.error is None and each.place.device is not None]:
        wanted += _of(each, f"{each.problem.name} {each.kernel}")
        for rival in rivals.resolve(staged, each.problem, each.place, each.kernel, selection.against):
            if isinstance(rival, rivals.Build):
                wanted += _of(rival.candidate, f"{each.problem.name} {rival.name}")
    for name, available in found.items():
        for place in targets.places(staged, backends.get(name), available, _known(name, gpu), None):
            if is_chained(place, mode) and isinstance(place.backend, CompilingBackend):
                source = KernelSource.read(chain_source(place), NATIVE, "chain")
                wanted.append(Wanted("the judge's chain", place.backend, source, place.target, {}))
    return wanted


def _of(candidate: targets.Candidate, title: str) -> list[Wanted]:
    backend = candidate.place.backend
    if not isinstance(backend, CompilingBackend):
        return []
    target = candidate.place.target
    return [Wanted(f"{title} for {target.gpu}", backend, candidate.source, target, candidate.defines)]


def _there(name: str, devices: Sequence[Device]) -> Availability:
    """What this machine can compile for the devices of the other one."""
    return replace(backends.get(name).probe(), devices=tuple(devices))


def _known(name: str, gpu: str | None) -> str | None:
    """``gpu`` if the backend has it."""
    targets_of = backends.get(name).targets()
    return gpu if gpu and any(gpu.lower() in (each.gpu.lower(), each.arch.lower()) for each in targets_of) else None


def expected_devices(config: Config, gpu: str | None) -> dict[str, list[Device]]:
    """One device for each GPU that a bundle is made for without asking the other machine: ``gpu``, or the settings'.

    Raises ``SelectionError`` (2) for a GPU that no backend knows.
    """
    found: dict[str, list[Device]] = {}
    for name in config.settings.backends:
        backend = backends.get(name)
        names = [gpu] if gpu else config.settings.gpus.get(name, list(backend.default_gpus()))
        for label in names:
            try:
                target = backend.target(label)
            except UnknownTarget:
                continue
            found.setdefault(name, []).append(Device(0, target.gpu, target.gpu, target.arch, 0))
    if not found:
        raise SelectionError(f"no selected backend knows the GPU {gpu}", 2)
    return found
