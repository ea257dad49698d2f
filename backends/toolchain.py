# SPDX-License-Identifier: MIT
"""What all compilers have in common: finding one, asking its version once, and compiling through the cache.

A search is a ladder: places in a fixed order, the first usable one wins, and the error lists all that was tried. A
variable that names a compiler outright (``NVCC``, ``HIPCC``, ``CXX``) is a decision: if it does not work the search
ends there with an error. A hit in the cache starts no process; even a compiler's version is remembered on disk, by the
path, modification time and size of its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backends import _diagnostics, _prebuilt, _process
from backends._cache import HINTS, Build, Cache, default_folder, write_json
from backends.base import Backend, Binary, Device, KernelUsage, Target, Usage
from backends.errors import BackendError, CompileError, Diagnostic, SourceError
from backends.source import KernelSource

LIBRARY = "kernel.so"
LOG = "log.txt"
_FORMAT = 1     # of what ``_build`` returns: part of the content address
# Variables that change what a compiler does; their values belong to the content address.
ENVIRONMENT = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
    "SOURCE_DATE_EPOCH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "HIPCC_COMPILE_FLAGS_APPEND",
    "HIPCC_LINK_FLAGS_APPEND", "HIP_DEVICE_LIB_PATH", "CCC_OVERRIDE_OPTIONS",
)
_SMALL_SCRIPT = 4096   # bytes; a wrapper around the real compiler


@dataclass(frozen=True)
class Tool:
    """A compiler that answers: its driver and what it says about itself."""

    path: Path
    version: str                                    # one line, fit for a record
    found: str = ""                                 # the rung of the ladder: "CUDA_HOME", "PATH", "wheel" …
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Plan:
    """How to build one binary: steps, in order, with every path of the build below the folder of ``LIBRARY``."""

    steps: tuple[tuple[str, ...], ...]
    version: str                        # of all tools involved: part of the content address
    code_object: str | None = None      # name of the device code beside the library
    principal: int = 0                  # index of the step that compiles the kernel file for the device
    inputs: tuple[Path, ...] = ()       # files the steps read besides the kernel and its headers


class CompilingBackend(Backend):
    """A backend that runs compilers: it says which commands, this says how."""

    @abstractmethod
    def compiler(self) -> object:
        """The compiler that ``plan`` uses; raises ``ToolchainMissing`` with everything tried."""

    @abstractmethod
    def plan(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> Plan:
        """The commands that make the shared library ``out``, run in order from the root of the checkout.

        Raises ``ToolchainMissing`` and ``SourceError``.
        """

    def commands(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> list[list[str]]:
        """All commands of a build; see ``command`` for the principal one."""
        return [list(step) for step in self.plan(source, out, target, defines).steps]

    def command(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> list[str]:
        plan = self.plan(source, out, target, defines)
        return list(plan.steps[plan.principal])

    def explain(
        self, diagnostics: tuple[Diagnostic, ...], step: Sequence[str], root: Path, scratch: Path,
        readable: Sequence[Path] = (),
    ) -> tuple[Diagnostic, ...]:
        """The messages of ``step``, which needs the files ``readable``, with what this backend can add to them; may
        write below ``scratch``."""
        return diagnostics

    def quicker(
        self, step: Sequence[str], source: KernelSource, target: Target, values: Mapping[str, str], cache: Cache,
    ) -> tuple[list[str], Path] | None:
        """A command that makes what ``step`` makes, in less time, and the file it reads besides; None: there is none.

        ``values`` are those of ``-D``. Where it fails, ``step`` itself is run and says why.
        """
        return None

    def finish(self, build: Path, target: Target) -> None:
        """A last step on the files of a build; nothing by default."""

    def compile(
        self, source: KernelSource, target: Target, defines: Mapping[str, str | int] | None = None,
        cache_dir: Path | None = None, timeout: float = 300.0,
    ) -> Binary:
        if target.backend != self.name:
            raise BackendError(f"{self.name} does not compile for {target.gpu} ({target.backend})")
        if source.arches and target.arch not in source.arches:
            listed = ", ".join(source.arches)
            raise SourceError(source.path, 0, f"does not support {target.arch}; its arch line lists {listed}")
        if _prebuilt.backends() and (found := _prebuilt.find(self.build_name(source, target, defines))) is not None:
            return _binary(found.place, found.key, target, found.facts, cached=True)
        cache = Cache(cache_dir)
        for _ in range(3):
            key = self.key(source, target, defines)
            if (facts := cache.get(key)) is not None:
                return _binary(cache.place(key), key, target, facts, cached=True)
            with _writable(cache), cache.building() as build:
                facts = self._build(source, target, defines, build, cache, cache.place(key), timeout)
                # A header edited while the compiler read it would file the binary under the wrong address.
                if self.key(source, target, defines) == key:
                    cache.put(key, build.folder, facts)
                    return _binary(cache.place(key), key, target, facts, cached=False)
        raise BackendError(f"{source.path} or its headers kept changing while they were compiled; try again")

    def build_name(
        self, source: KernelSource, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> str:
        """What a build is called whoever compiles it (``_prebuilt.name_of``). Raises ``SourceError``."""
        return _prebuilt.name_of(self.name, target.arch, source.digest, source.resolve(defines))

    def key(self, source: KernelSource, target: Target, defines: Mapping[str, str | int] | None = None) -> str:
        """The content address: compilers, commands, environment, source and all headers it can include.

        Raises ``SourceError`` if the file is no longer the one that was read.
        """
        plan = self.plan(source, Path("/out") / LIBRARY, target, defines)
        digest = source.digest
        if source.path.read_text(errors="replace") != source.text:
            raise SourceError(source.path, 0, "changed on disk since it was read; read it again")
        inputs = [hashlib.sha256(path.read_bytes()).hexdigest() for path in plan.inputs]
        parts = [_FORMAT, self.name, target.arch, plan.version, plan.steps, inputs, environment(), digest]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _build(
        self, source: KernelSource, target: Target, defines: Mapping[str, str | int] | None, build: Build,
        cache: Cache, place: Path, timeout: float,
    ) -> dict[str, Any]:
        """Run the plan in a private folder; returns what the cache stores beside the files."""
        plan = self.plan(source, build.folder / LIBRARY, target, defines)
        lasting = self.plan(source, place / LIBRARY, target, defines)   # what a reader of the record can run again
        scratch = build.folder / "tmp"
        scratch.mkdir()
        name = _diagnostics.shorten(str(source.path), source.root)
        log, seconds = "", 0.0
        for step, shown in zip(plan.steps, lasting.steps, strict=True):
            quicker = self.quicker(step, source, target, source.resolve(defines), cache)
            result = None
            if quicker is not None:
                result = _run_step(quicker[0], source, plan, build, timeout - seconds, shown, quicker[1:])
                seconds += result.seconds
            if result is None or result.returncode != 0:
                result = _run_step(step, source, plan, build, timeout - seconds, shown)
                seconds += result.seconds
            log += result.output.replace(str(build.folder), str(place))
            if result.returncode is None:
                diagnostics = _diagnostics.parse(log, source.root, name)
                raise CompileError(f"{name}: not compiled after {timeout:.0f} s", diagnostics, log, shown)
            if result.returncode != 0:
                diagnostics = self.explain(
                    _diagnostics.parse(log, source.root, name), step, source.root, scratch, readable(source, plan))
                raise CompileError(_refusal(name, diagnostics, log, result.returncode), diagnostics, log, shown)
        self.finish(build.folder, target)
        parsed = _diagnostics.parse(log, source.root, name)
        diagnostics = self.explain(
            parsed, plan.steps[plan.principal], source.root, scratch, readable(source, plan))
        usage = self.usage(log, build.folder / LIBRARY, target)
        _keep_only(build.folder, {LIBRARY, plan.code_object})
        (build.folder / LOG).write_text(log)
        return {
            "commands": [list(step) for step in lasting.steps], "principal": plan.principal,
            "version": plan.version, "seconds": seconds, "code_object": plan.code_object, "source": name,
            "usage": [asdict(kernel) for kernel in usage.kernels],
            "diagnostics": [asdict(diagnostic) for diagnostic in diagnostics],
        }


def _run_step(
    step: Sequence[str], source: KernelSource, plan: Plan, build: Build, timeout: float, shown: Sequence[str],
    more: Sequence[Path] = (),
) -> _process.Finished:
    scratch = build.folder / "tmp"
    try:
        return _process.compile_untrusted(
            step, source.root, max(timeout, 0.1), variables(scratch), [*readable(source, plan), *more], build.folder,
            scratch / "step.log", [build.lock])
    except OSError as error:
        raise CompileError(f"{step[0]} cannot be started: {error.strerror}", (), "", shown) from error


def variables(scratch: Path) -> dict[str, str]:
    """What a compiler's environment must hold: the temporary folder, and all that changes what it does."""
    return {**environment(), "TMPDIR": str(scratch)}


def environment() -> dict[str, str]:
    """The variables that change what a compiler does, with their values."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def readable(source: KernelSource, plan: Plan) -> list[Path]:
    """The files and folders of ours that a compiler of ``source`` may read."""
    _problem, *shared = source.include_dirs      # of a problem's folder, no more than its header
    return [path for path in (source.path.parent, source.header, *shared, *plan.inputs) if path.exists()]


def _refusal(name: str, diagnostics: Sequence[Diagnostic], log: str, returncode: int) -> str:
    refused = _diagnostics.errors(diagnostics)
    if not refused:
        how = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
        return f"{name}: the compiler failed ({how}): {log.strip()[-400:] or 'no output'}"
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"{refused[0]}{more}"


def _keep_only(folder: Path, names: set[str | None]) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in names:
            path.unlink()


def _binary(place: Path, key: str, target: Target, facts: Mapping[str, Any], cached: bool) -> Binary:
    code_object = facts["code_object"]
    return Binary(
        path=place / LIBRARY, digest=key, target=target, command=tuple(facts["commands"][facts["principal"]]),
        compiler_version=facts["version"], cached=cached, seconds=0.0 if cached else facts["seconds"],
        usage=Usage(tuple(KernelUsage(**kernel) for kernel in facts["usage"])),
        diagnostics=tuple(Diagnostic(**diagnostic) for diagnostic in facts["diagnostics"]),
        code_object=place / code_object if code_object else None,
    )


@contextlib.contextmanager
def _writable(cache: Cache) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(f"the cache {cache.folder} cannot be written ({error}); {HINTS['cache']}") from error


def remembered(path: Path, argv: Sequence[str], watch: Sequence[Path] = ()) -> str | None:
    """The output of ``argv``, a question to the tool ``path``; asked once as long as its files stay the same.

    ``watch`` lists further files the answer depends on. Where the tool is a small script, so does it on every file it
    names. None if the tool does not answer; that is not remembered.
    """
    state = _state([path, *watch, *_named_in_script(path)])
    if state is None:
        return None
    name = hashlib.sha256(json.dumps([list(argv), state]).encode()).hexdigest()
    try:
        memory = default_folder() / "tools" / f"{name}.json"
    except BackendError:                 # no cache at all makes this slower; a build will say what is wrong
        return _process.ask(argv)
    try:
        answer = json.loads(memory.read_bytes())["answer"]
        if isinstance(answer, str):
            return answer
    except (OSError, ValueError, KeyError, TypeError):   # not asked yet, or not ours
        pass
    output = _process.ask(argv)
    if output is not None:
        with contextlib.suppress(OSError):   # nor is a cache that cannot be written an error here
            write_json(memory, {"argv": list(argv), "files": state, "answer": output})
    return output


def _state(paths: Sequence[Path]) -> list[list[object]] | None:
    state: list[list[object]] = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            return None
        state.append([str(path), str(path.resolve()), stat.st_mtime_ns, stat.st_size])
    return state


def _named_in_script(path: Path) -> list[Path]:
    try:
        if path.stat().st_size > _SMALL_SCRIPT:
            return []
        text = path.read_bytes()
    except OSError:
        return []
    if not text.startswith(b"#!"):
        return []
    names = [Path(name) for name in re.findall(r"(?<![\w.])/[\w./+-]+", text.decode(errors="replace"))]
    return sorted({name for name in names if name.is_file()})


def first_of(
    sources: Sequence[Callable[[], tuple[tuple[Device, ...], str]]]
) -> tuple[tuple[Device, ...], list[str]]:
    """The devices of the first source that has any; or none, and what each source said.

    A source calls a vendor's library, which may fail in any way; a probe turns that into a reason.
    """
    reasons = []
    for source in sources:
        try:
            found, reason = source()
        except Exception as failure:  # noqa: BLE001 - reported as a reason
            found, reason = (), f"{type(failure).__name__}: {failure}"
        if found:
            return found, []
        reasons.append(reason)
    return (), reasons


def package_folder(name: str) -> list[Path]:
    """Folders of an installed package, without importing it; [] if it is not installed."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def package_version(name: str, folder: Path) -> str:
    """Version of the distribution ``name`` whose package lies at ``folder``, "" if unknown."""
    prefix = f"{name.replace('-', '_')}-"
    found = sorted(folder.parent.glob(f"{prefix}*.dist-info"))
    return found[-1].name.removeprefix(prefix).removesuffix(".dist-info") if found else ""


def which(name: str) -> Path | None:
    """``name`` on PATH."""
    found = shutil.which(name)
    return Path(found) if found else None


def include_flags(source: KernelSource) -> list[str]:
    """``-I`` for the project's own headers, relative to the root of the checkout where they lie inside it."""
    return [word for folder in source.include_dirs for word in ("-I", relative(folder, source.root))]


def relative(path: Path, root: Path) -> str:
    """``path`` as the compiler, which runs in ``root``, should see it: the same in every checkout."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def separate_statics(gcc: str) -> tuple[str, ...]:
    """The flag that gives each library its own static variables of templates and inline functions, by the version line
    of the host compiler: GCC makes them one per process, so that a second build of a kernel would use the first one's.

    Other compilers never do so and do not know the flag; nor is one passed to a compiler that said nothing.
    """
    return ("-fno-gnu-unique",) if gcc and "clang" not in gcc else ()


def define_flags(values: Mapping[str, str]) -> list[str]:
    """``-DNAME=VALUE`` in the order of the names."""
    return [f"-D{name}={value}" for name, value in sorted(values.items())]
