# SPDX-License-Identifier: MIT
"""From what ``inspect`` is given to machine code: kernels of the checkout, and files of any kind.

A source is compiled first, a kernel through the compile cache. No device code is run; a kernel's host code is, in the
sandbox, to see what it launches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import backends
from backends import _emulated, _includes
from backends.base import Backend, Binary, Target
from backends.errors import BackendError
from backends.machine import document, files, foreign, stages
from backends.machine.model import Image
from backends.source import KernelSource, kernels
from backends.toolchain import CompilingBackend
from scoring.config.load import Config
from scoring.output import inspection_html, tuning_cache
from scoring.problem import Problem, ProblemError, discover
from scoring.record import Case, ExitCode, Record
from scoring.run import launches
from scoring.run.job import sandbox_policy
from scoring.run.select import SelectionError, explain_empty, is_kernel

_RIVAL = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<values>[^\]]*)\])?")
_GPU = (".cu", ".hip")


@dataclass(frozen=True)
class Subject:
    """One thing to look at. ``title`` says what and for which target; ``image`` and ``texts`` compile on demand.

    Sources are shown from ``folders`` alone.
    """

    title: str
    image: Callable[[files.Wanted], Image]
    texts: Callable[[str], dict[str, str]]
    folders: tuple[Path, ...]

    def read(self, file: str) -> str | None:
        """A source file by its name in the binary: of the checkout or the file's own folder; None for any other."""
        path = next((folder / file for folder in self.folders if (folder / file).is_file()), None)
        if path is None or not any(path.resolve().is_relative_to(folder.resolve()) for folder in self.folders):
            return None
        return None if ".venv" in path.parts else path.read_text(errors="replace")


def subjects(
    config: Config, names: Sequence[str], gpu: str | None, defines: Mapping[str, str]
) -> list[Subject]:
    """What ``names`` (patterns of kernels, or files) mean, each for ``gpu`` or the first target that fits.

    A name may end in values of tunables: ``flash_attention/wgmma_tma[SLACK=0]``.
    Raises ``SelectionError`` where a name means nothing, ``BackendError`` for a file that cannot be inspected.
    """
    return [subject for name in names for subject in _named(config, name, gpu, defines)]


def _named(config: Config, name: str, gpu: str | None, defines: Mapping[str, str]) -> list[Subject]:
    match = _RIVAL.fullmatch(name)
    values = dict(defines)
    if match and match["values"] and not Path(name).exists():
        name = match["name"]
        for text in match["values"].split(","):
            key, equals, value = text.partition("=")
            if not equals or not key.isidentifier():
                raise SelectionError(f"{text!r} in {name}[…] is not NAME=VALUE", ExitCode.USAGE)
            values[key] = value
    root = config.path("kernels").parent
    path = Path(name)
    if path.is_file():
        return [_file(config, path, root, gpu, values)]
    found = [path for path in kernels(root) if is_kernel(
        path.relative_to(root / "kernels").parts[0], path.parent.name, path.stem, [name])]
    if not found:
        if path.suffix and "/" in name and not set(name) & set("*?["):
            raise SelectionError(f"{name}: no such file", ExitCode.USAGE)
        languages = set(backends.suffixes())
        there: dict[str, list[Case]] = {each.parent.name: [] for each in kernels(root)}
        raise SelectionError(f"{explain_empty(root, [name], languages, {}, None, there, [])}\n"
                             "  `python -m scoring list` shows what there is")
    on_gpu = [each for each in found if each.suffix in _GPU]
    if not on_gpu:
        raise SelectionError(f"{name}: host code; inspect shows machine code of GPUs", ExitCode.USAGE)
    chosen = [_kernel(config, each, root, gpu, values) for each in on_gpu if _fits(each, gpu)]
    if not chosen:
        raise SelectionError(f"{name}: no kernel of that name is for {gpu}", ExitCode.USAGE)
    return chosen


def page_of(config: Config, record: Record) -> str:
    """The page of what ran in a record. Raises ``BackendError`` where the checkout no longer builds the same."""
    language, _, rest = record.kernel.partition("/")
    variant = rest.partition("[")[0]
    root = config.path("kernels").parent
    path = next((each for each in kernels(root, language, record.problem) if each.stem == variant), None)
    if path is None or path.suffix not in _GPU:
        raise BackendError("there is no such kernel for a GPU in this checkout")
    backend = _backend(path)
    target = backend.target(record.gpu)
    if target.arch != record.target:
        raise BackendError(f"it was compiled for {record.target}, which is not {record.gpu}'s own")
    defines = tuning_cache.values_of(record)
    source = KernelSource.read(path, root)
    if backend.compile(source, target, defines).digest != record.digest:
        raise BackendError("its source, or the compiler, is another one today")
    subject = _kernel(config, path, root, record.gpu, defines)
    found = document.document(subject.image(None), code=True)
    if reason := inspection_html.excess(found):
        raise BackendError(reason)
    return inspection_html.page(found, subject.title, subject.read)


def _fits(path: Path, gpu: str | None) -> bool:
    """Whether the language of a kernel knows the GPU; of several kernels those that do are meant."""
    if gpu is None:
        return True
    backend = _backend(path)
    return any(gpu.lower() in (target.gpu.lower(), target.arch.lower()) for target in backend.targets())


def _backend(path: Path) -> Backend:
    return next(backend for backend in backends.every() if backend.suffix == path.suffix)


def _file(config: Config, path: Path, root: Path, gpu: str | None, defines: Mapping[str, str]) -> Subject:
    if foreign.is_submission(path):
        return _foreign(path, *foreign.device_code(path), gpu, defines)
    if path.suffix in _GPU:
        text = path.read_text(encoding="utf-8", errors="replace")
        if "//!KERNEL" in text:
            return _kernel(config, path, root, gpu, defines)
        return _foreign(path, _backend(path).language, text, gpu, defines)
    if path.suffix == ".cpp":
        raise BackendError(f"{path}: host code; inspect shows machine code of GPUs")

    def none(stage: str) -> dict[str, str]:
        if stage == "ptx" and path.suffix == ".ptx":
            return {"PTX": path.read_text(errors="replace")}
        raise BackendError(f"{path} is compiled: it has the stage asm alone; --stage {stage} needs the source")

    return Subject(str(path), lambda wanted: files.read(path, wanted), none, (root, path.absolute().parent))


def _foreign(path: Path, language: str, text: str, gpu: str | None, defines: Mapping[str, str]) -> Subject:
    target = foreign.target_of(language, gpu)

    def texts(stage: str) -> dict[str, str]:
        return foreign.stage_of_source(stage, path, language, text, target, defines)

    def image(wanted: files.Wanted) -> Image:
        return foreign.compile_source(path, language, text, target, defines, wanted)

    return Subject(f"{path} · {target.gpu} ({target.arch})", image, texts, (path.absolute().parent,))


def launched(
    config: Config, source: KernelSource, binary: Binary, target: Target,
) -> dict[str, launches.Launch]:
    """What the cases of a kernel's problem launch; nothing where the problem, or what runs host code, is not here."""
    try:
        path = discover(*config.problems).get(source.problem)
        emulator = [_emulated.library()] if target.backend == "rocm" else []
        if path is None:
            return {}
        problem = Problem(path)
        return launches.of_cases(problem, problem.cases, source.signature(), binary, target, sandbox_policy(config),
                                 emulator)
    except (BackendError, ProblemError):
        return {}


def _kernel(config: Config, path: Path, root: Path, gpu: str | None, defines: Mapping[str, str]) -> Subject:
    source = KernelSource.read(path, root)
    backend = _backend(path)
    if not isinstance(backend, CompilingBackend):
        raise BackendError(f"{backend.name} has no compiler whose output could be shown")
    target = _target(backend, source, gpu)
    values = ",".join(f"{name}={value}" for name, value in sorted(defines.items()))
    title = f"{source.language}/{source.name}{f'[{values}]' if values else ''} · {target.gpu} ({target.arch})"

    def image(wanted: files.Wanted) -> Image:
        binary = backend.compile(source, target, defines)
        headers = _includes.headers(source.path, source.include_dirs)
        text = "\n".join([source.text, *(header.read_text(errors="replace") for header in headers)])
        found = files.of_binary(binary, text, title, wanted)
        found = replace(found, functions=tuple(files.localised(found.functions, root)))
        return launches.applied(found, launched(config, source, binary, target))

    def texts(stage: str) -> dict[str, str]:
        return stages.of_source(stage, backend, source, target, defines)

    return Subject(title, image, texts, (root, path.absolute().parent))


def _target(backend: Backend, source: KernelSource, gpu: str | None) -> Target:
    if gpu is not None:
        return backend.target(gpu)
    order = [backend.target(label) for label in backend.default_gpus()] + list(backend.targets())
    return next((each for each in order if not source.arches or each.arch in source.arches), backend.target())
