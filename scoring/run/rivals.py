# SPDX-License-Identifier: MIT
"""``run --against``: which kernel, build or file a rival's name means for the kernel that it races."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import backends
from backends.base import Binary
from backends.errors import BackendError, CompileError, SourceError
from backends.source import KernelSource, kernels, parse_define
from scoring.config.load import Config
from scoring.judge.job import Contestant, Entrant
from scoring.popcorn.directives import not_text
from scoring.problem import Problem
from scoring.record import ExitCode, Mode, Status
from scoring.run import build, targets
from scoring.run.job import adapted, native_contestant, stage
from scoring.run.select import SelectionError
from scoring.run.targets import Candidate, Place

_FORM = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")


@dataclass(frozen=True)
class Spec:
    """``WHAT[NAME=VALUE,…]`` in its parts. ``what`` is a kernel's name or a file."""

    what: str
    defines: Mapping[str, str]


@dataclass(frozen=True)
class Build:
    """A rival that has to be compiled, under the name it races by."""

    name: str
    candidate: Candidate


@dataclass(frozen=True)
class Submission:
    """A rival that is a Python file, under the name it races by."""

    name: str
    path: Path
    digest: str


def parse(text: str) -> Spec:
    """One value of ``--against``. Raises ``SelectionError`` (usage)."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise _usage(text, "KERNEL or KERNEL[NAME=VALUE,…] is expected")
    try:
        pairs = [parse_define(part.strip()) for part in (match[2] or "").split(",") if part.strip()]
    except BackendError as error:
        raise _usage(text, str(error)) from error
    names = [name for name, _value in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _usage(text, f"more than one value for {', '.join(twice)}")
    return Spec(match[1].strip(), dict(pairs))


def resolve(
    config: Config, problem: Problem, place: Place, kernel: str, texts: Sequence[str],
) -> list[Build | Submission]:
    """What every value of ``--against`` means beside ``kernel`` of ``problem``, which runs in ``place``.

    Raises ``SelectionError`` (usage) for a name that does not exist there, with what does.
    """
    if texts and Mode(config.settings.mode) is Mode.TEST:
        raise _usage(texts[0], "a race is of times, and --mode test has none")
    found: list[Build | Submission] = []
    taken = {kernel}
    for text in texts:
        rival = _resolve(config, problem, place, kernel, text)
        number = next(n for n in itertools.count(1) if _numbered(rival.name, n) not in taken)
        taken.add(_numbered(rival.name, number))
        found.append(replace(rival, name=_numbered(rival.name, number)))
    return found


def _numbered(name: str, number: int) -> str:
    """A name that several contestants have: the second one is ``name (2)``."""
    return name if number == 1 else f"{name} ({number})"


def _resolve(config: Config, problem: Problem, place: Place, kernel: str, text: str) -> Build | Submission:
    spec = parse(text)
    path = Path(spec.what)
    if path.suffix == ".py":
        return _submission(config, problem, spec, text)
    if not problem.native:
        raise _usage(text, f"{problem.name} has no kernel.h, so only a Python file can race there")
    language = place.backend.language
    root = config.path("kernels").parent
    if path.suffix in backends.suffixes().values():
        source = _file(root, problem, path, text)
        if source.language != language:
            raise _usage(text, f"is a {source.language} kernel; {kernel} runs on {place.target.gpu}, which takes "
                               f"{language} kernels (--backend selects)")
    else:
        source = _named(root, problem, place, kernel, spec.what, text)
    if why := targets.refusal(source, spec.defines):
        raise _usage(text, why)
    if source.arches and place.target.arch not in source.arches:
        raise _usage(text, f"is for {' '.join(source.arches)}, and {kernel} is built for {place.target.arch}")
    candidate = Candidate(problem, source, place, spec.defines)
    if source.path.is_relative_to(root / "kernels"):
        return Build(candidate.kernel, candidate)
    values = candidate.kernel.partition("[")[2]        # a file elsewhere may be called as one of ours is
    return Build(f"{source.path.name}@{source.digest[:8]}" + (f"[{values}" if values else ""), candidate)


def _submission(config: Config, problem: Problem, spec: Spec, text: str) -> Submission:
    path = Path(spec.what)
    if spec.defines:
        raise _usage(text, "a Python file has no tunables")
    if not path.is_file():
        raise _usage(text, "no such file")
    if wrong := not_text(path.read_bytes()):
        raise _usage(text, f"line {wrong[0]}: {wrong[1]}")
    answers = targets.submission_problem(config, path)
    if answers not in (None, problem.name):
        raise _usage(text, f"its header names {answers}; a race is between answers to one problem, here {problem.name}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Submission(f"{path.name}@{digest[:8]}", path, digest)


def _file(root: Path, problem: Problem, path: Path, text: str) -> KernelSource:
    """A kernel file anywhere: one of another checkout is built with the headers there."""
    if not path.is_file():
        raise _usage(text, "no such file")
    path = path.absolute()
    homes = [folder for folder in path.parents if folder.name == "kernels" and (folder / "common").is_dir()]
    if homes and (folder := path.relative_to(homes[0]).parts[1]) != problem.name:
        raise _usage(text, f"is a kernel of {folder}; a race is between kernels of one problem, here {problem.name}")
    try:
        return KernelSource.read(path, homes[0].parent if homes else root, problem.name)
    except SourceError as error:
        raise _usage(text, str(error)) from error


def _named(root: Path, problem: Problem, place: Place, kernel: str, what: str, text: str) -> KernelSource:
    """A kernel of the checkout by ``variant``, ``problem/variant``, ``language/variant`` or all three."""
    language = place.backend.language
    *folders, variant = what.removeprefix("kernels/").split("/")
    if folders and folders[0] in backends.suffixes() and folders[0] != language:
        raise _usage(text, f"is a {folders[0]} kernel; {kernel} runs on {place.target.gpu}, which takes {language} "
                           "kernels (--backend selects)")
    if folders and folders[0] in backends.suffixes():
        folders = folders[1:]
    if folders and folders != [problem.name]:
        raise _usage(text, f"is no kernel of {problem.name}, which {kernel} answers; a race is between kernels of one "
                           "problem (--problem selects)")
    known = {path.stem: path for path in kernels(root, language, problem.name)}
    if variant not in known:
        close = difflib.get_close_matches(variant, known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise _usage(text, f"no such kernel; {language}/{problem.name} has {', '.join(known) or 'none'}{hint}")
    try:
        return KernelSource.read(known[variant], root)
    except SourceError as error:
        raise _usage(text, str(error)) from error


def _usage(text: str, why: str) -> SelectionError:
    return SelectionError(f"--against {text}: {why}", ExitCode.USAGE)


def builds_of_rivals(config: Config, rivals: Sequence[Build | Submission]) -> dict[tuple[str, ...], build.Build]:
    """What a compiler has to make for rivals."""
    return {key: each for rival in rivals if isinstance(rival, Build)
            for key, each in build.builds_of(config, rival.candidate, Mode.TEST, to_run=False).items()}


def entrants(
    config: Config, problem: Problem, place: Place, rivals: Sequence[Build | Submission],
    made: Callable[[tuple[str, ...]], Binary], staging: Path,
) -> tuple[Entrant, ...]:
    """How a worker loads each rival. ``made`` gives a key's binary, or raises what its compiler raised.

    Python files are copied below ``staging``, which outlives the job.
    """
    found = []
    for number, rival in enumerate(rivals):
        if isinstance(rival, Submission):
            spec = stage(problem, rival.path, staging / f"rival{number}", f"rival{number}")
            spec = adapted(spec, place, rival.path) if place.device is not None else spec
            found.append(Entrant(rival.name, rival.digest, Contestant(rival.name, spec)))
            continue
        (key,) = builds_of_rivals(config, [rival])
        try:
            binary = made(key)
        except (CompileError, SourceError) as error:
            found.append(Entrant(rival.name, status=Status.COMPILE_ERROR, message=str(error)))
            continue
        signature = rival.candidate.source.signature()
        runner = native_contestant(rival.name, signature, binary.path, place)
        found.append(Entrant(rival.name, binary.digest, runner))
    return tuple(found)
