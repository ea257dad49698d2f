# SPDX-License-Identifier: MIT
"""Kernel files: where they lie, what their ``//!KERNEL`` lines say, and what a binary made from them depends on.

A kernel is one file, ``kernels/<language>/<problem>/<variant><suffix>``. Directives stand at the start of a line in the
leading comment block::

    //!KERNEL summary <one line>
    //!KERNEL arch sm_89 sm_90a        architectures it supports; required for CUDA and HIP
    //!KERNEL define NAME=VALUE        -D passed to every build
    //!KERNEL tune NAME=V1,V2,V3       tunable; the first value is the default, passed as -DNAME=V1
    //!KERNEL flags COMPILER FLAG ...   more compiler flags, from the backend's list (``Backend.kernel_flags``)
    //!KERNEL step NUMBER <words>      its place in a series of kernels, and what is new in it
    //!KERNEL expect CASEGLOB LOW-HIGHUNIT@GPU   what somebody expects; shown beside what was measured, judges nothing

Anything else after ``//!KERNEL``, and a directive below the leading comment block, is a ``SourceError``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import backends
from backends import _includes
from backends._header import read_text
from backends._home import HOME
from backends._signature import SCALARS, Param, Signature
from backends.errors import BackendError, SourceError

__all__ = ["SCALARS", "Directives", "KernelSource", "Param", "Signature", "directives", "kernels"]

_PREFIX = "//!KERNEL"
_FORMS = {
    "summary": "summary <one line>",
    "arch": "arch <arch> [<arch>…]",
    "define": "define NAME=VALUE",
    "tune": "tune NAME=V1,V2,…",
    "flags": "flags COMPILER FLAG…",
    "step": "step NUMBER <words>",
    "expect": "expect CASEGLOB LOW-HIGHUNIT@GPU",
}
_DEFINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(\S+)", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)
_STEP = re.compile(r"(\d+)([a-z]?) +(\S.*)", re.ASCII)
_EXPECT = re.compile(
    r"\S+ +\d+(?:\.\d+)?(?:-\d+(?:\.\d+)?)?(?:ns|us|ms|TFLOP/s|TFLOP/s/SM|GB/s|TB/s)@[A-Za-z0-9_]+", re.ASCII)


class Step(NamedTuple):
    """A kernel's place in a series: ``number`` and ``letter`` order it (4, 4b, 5), ``words`` say what is new."""

    number: int
    letter: str
    words: str

    def __str__(self) -> str:
        return f"{self.number}{self.letter} {self.words}"


@dataclass(frozen=True)
class Directives:
    """What the ``//!KERNEL`` lines of one file say."""

    summary: str = ""
    arches: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict, hash=False)
    tunables: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    flags: tuple[str, ...] = ()
    step: Step | None = None
    expect: tuple[str, ...] = ()      # "CASEGLOB LOW-HIGHUNIT@GPU", one per line


@dataclass(frozen=True)
class KernelSource:
    """One kernel file as it was when read. ``root`` is the checkout whose headers it includes."""

    path: Path
    root: Path
    problem: str
    variant: str
    language: str
    text: str = field(repr=False)
    summary: str = ""
    arches: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict, hash=False)
    tunables: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    flags: tuple[str, ...] = ()
    step: Step | None = None
    expect: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, root: Path, problem: str | None = None) -> KernelSource:
        """Read a kernel file.

        The suffix gives the language and the folder's name the problem, unless ``problem`` says otherwise.
        Raises ``SourceError`` with file and line.
        """
        path, root = path.absolute(), root.absolute()
        suffixes = backends.suffixes()
        language = {suffix: name for name, suffix in suffixes.items()}.get(path.suffix)
        if language is None:
            raise SourceError(path, 0, f"is no kernel file; suffixes are {', '.join(suffixes.values())}")
        home = root / "kernels"
        if path.is_relative_to(home) and path.relative_to(home).parts[0] != language:
            raise SourceError(path, 0, f"a {path.suffix} file belongs below kernels/{language}/")
        text = read_text(path)
        found = directives(text, path, language)
        return cls(path, root, problem or path.parent.name, path.stem, language, text,
                   found.summary, found.arches, found.defines, found.tunables, found.flags, found.step, found.expect)

    @property
    def name(self) -> str:
        """How commands and records call it: ``<problem>/<variant>``."""
        return f"{self.problem}/{self.variant}"

    @property
    def header(self) -> Path:
        """The kernel.h of its problem: below ``root``, else the project's own."""
        own, ours = (home / "problems" / self.problem / "kernel.h" for home in (self.root, HOME))
        return ours if ours.is_file() and not own.is_file() else own

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders for ``-I``, in order: the problem's, the language's, the common one.

        A folder of problems and kernels of one's own, without the project's common headers, has those of the project
        besides.
        """
        homes = [self.root / "kernels"]
        if not (homes[0] / "common" / "launch.h").is_file():
            homes.append(HOME / "kernels")
        return (self.header.parent,
                *(folder for home in homes for folder in (home / self.language, home / "common")))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the file and every header of the project it can include, as they are on disk now.

        Raises ``SourceError`` if a file cannot be read.
        """
        try:
            return _includes.digest(self.path, self.include_dirs)
        except OSError as error:
            raise SourceError(error.filename or self.path, 0, f"cannot be read: {error.strerror}") from error

    def signature(self) -> Signature:
        """The ABI of its problem; raises ``SourceError``."""
        return Signature.read(self.header)

    def resolve(self, defines: Mapping[str, str | int] | None = None) -> dict[str, str]:
        """All ``-D`` values of a build, by name: directives, tunable defaults, then ``defines`` on top.

        Raises ``SourceError`` for a tunable set to a value its directive does not list.
        """
        values = {name: options[0] for name, options in self.tunables.items()} | dict(self.defines)
        for name, value in (defines or {}).items():
            if name in self.tunables and str(value) not in self.tunables[name]:
                options = ", ".join(self.tunables[name])
                raise SourceError(self.path, 0, f"tunable {name} is one of {options}, not {value}")
            values[name] = str(value)
        return dict(sorted(values.items()))


def parse_define(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` of a -D on a command line, as (name, value).

    Raises ``BackendError`` if it is something else: a flag without a value would change nothing, silently.
    """
    name, equals, value = text.partition("=")
    if not equals or not (name.isidentifier() and name.isascii()):
        raise BackendError(f"-D {text}: NAME=VALUE is expected")
    return name, value


def kernels(root: Path, language: str | None = None, problem: str | None = None) -> list[Path]:
    """Kernel files of a checkout, sorted by language, problem and variant.

    Folders beside the problems hold headers, so a folder counts as a problem by the suffix of its files alone.
    """
    found = []
    for name, suffix in sorted(backends.suffixes().items()):
        if language in (None, name):
            found += sorted((root / "kernels" / name).glob(f"{problem or '*'}/*{suffix}"))
    return found


def by_step(source: KernelSource) -> tuple[float, str]:
    """A key that sorts the kernels of a problem: steps by number, then those that are no step."""
    return (source.step.number, source.step.letter) if source.step else (math.inf, "")


def directives(text: str, path: Path | str, language: str) -> Directives:
    """Parse the ``//!KERNEL`` lines of a kernel file.

    Raises ``SourceError`` with file and line for an unknown, malformed, repeated or misplaced one, and for a GPU
    kernel without ``arch``.
    """
    parser = _DirectiveParser(path, language)
    in_block = True
    in_comment = False   # inside /* … */
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith(_PREFIX):
            if not in_block or in_comment:
                raise SourceError(path, number, f"{_PREFIX} belongs into the leading // comment block")
            if not line.startswith(_PREFIX):
                raise SourceError(path, number, f"{_PREFIX} must start its line")
            parser.line(number, line[len(_PREFIX):])
        elif in_comment:
            in_comment = "*/" not in line
        elif stripped.startswith("/*"):
            in_comment = "*/" not in stripped
        elif stripped and not stripped.startswith("//"):
            in_block = False
    return parser.finish()


class _DirectiveParser:
    def __init__(self, path: Path | str, language: str):
        self.path = path
        self.backend = backends.of_language(language)
        self.number = 0
        self.summary: str | None = None
        self.arches: tuple[str, ...] | None = None
        self.defines: dict[str, str] = {}
        self.tunables: dict[str, tuple[str, ...]] = {}
        self.flags: tuple[str, ...] = ()
        self.step: Step | None = None
        self.expect: list[str] = []

    def line(self, number: int, rest: str) -> None:
        self.number = number
        word, _, value = rest.strip().partition(" ")
        value = value.strip()
        if not rest[:1].isspace() or word not in _FORMS:
            known = "; ".join(_FORMS.values())
            raise self.error(f"unknown directive {(_PREFIX + rest).strip()!r}; there are: {known}")
        if not value:
            raise self.malformed(word)
        match word:
            case "summary":
                if self.summary is not None:
                    raise self.error("a second summary")
                self.summary = value
            case "arch":
                self.arch(value.split())
            case "flags":
                self.add_flags(value.split())
            case "step":
                match = _STEP.fullmatch(value)
                if match is None or self.step is not None:
                    raise self.malformed(word) if match is None else self.error("a second step")
                self.step = Step(int(match[1]), match[2], match[3])
            case "expect":
                if _EXPECT.fullmatch(value) is None:
                    raise self.malformed(word)
                self.expect.append(" ".join(value.split()))
            case _:
                self.macro(word, value)

    def arch(self, arches: list[str]) -> None:
        if self.arches is not None:
            raise self.error("a second arch line; list all architectures on one")
        for arch in arches:
            if not re.fullmatch(self.backend.arch_pattern, arch):
                raise self.error(f"{arch!r} is no {self.backend.language} architecture")
        if len(set(arches)) != len(arches):
            raise self.error("an architecture occurs twice")
        self.arches = tuple(arches)

    def add_flags(self, words: list[str]) -> None:
        compiler, known = self.backend.kernel_flags
        if words[0] != compiler:
            raise self.error(f"flags of {words[0]!r}; a {self.backend.language} kernel has flags of {compiler!r}")
        for flag in words[1:]:
            if not any(re.fullmatch(pattern, flag) for pattern in known):
                raise self.error(f"{flag!r} is no flag that a kernel may set; there are: {', '.join(known)}")
        if len(words) == 1:
            raise self.malformed("flags")
        self.flags += tuple(words[1:])

    def macro(self, word: str, value: str) -> None:
        match = _DEFINE.fullmatch(value)
        if match is None:
            raise self.malformed(word)
        name, values = match.group(1), match.group(2)
        if name in self.defines or name in self.tunables:
            raise self.error(f"{name} is defined twice")
        if word == "define":
            self.defines[name] = values
            return
        options = tuple(values.split(","))
        if not all(_VALUE.fullmatch(option) for option in options):
            raise self.malformed(word)
        if len(set(options)) != len(options):
            raise self.error(f"a value of {name} occurs twice")
        self.tunables[name] = options

    def finish(self) -> Directives:
        if self.arches is None and not self.backend.on_host:
            raise SourceError(self.path, 1, f"no '{_PREFIX} {_FORMS['arch']}' line in the leading comment block")
        return Directives(self.summary or "", self.arches or (), self.defines, self.tunables,
                          self.flags, self.step, tuple(self.expect))

    def malformed(self, word: str) -> SourceError:
        return self.error(f"malformed directive; the form is: {_PREFIX} {_FORMS[word]}")

    def error(self, message: str) -> SourceError:
        return SourceError(self.path, self.number, message)
