# SPDX-License-Identifier: MIT
"""Which problems, kernels and cases a pattern means, and why a selection is empty.

Reads names and paths, and kernel files only to explain, so that ``list`` answers at once.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import backends
from backends.errors import SourceError
from backends.source import KernelSource, kernels
from scoring.record import Case

if TYPE_CHECKING:
    from scoring.problem import Problem

_SHOWN = 6       # names of a list that is longer


class SelectionError(Exception):
    """Nothing matches, or a name does not exist; ``code`` is the exit code that says so."""

    def __init__(self, message: str, code: int = 5):
        super().__init__(message)
        self.code = code


def problem_names(found: Mapping[str, Path], roots: Sequence[Path], patterns: Sequence[str]) -> list[str]:
    """Those of the problems ``found`` below ``roots`` that match a pattern, in name order.

    Raises ``SelectionError`` (usage) for a pattern without wildcards that names none.
    """
    names: set[str] = set()
    for pattern in patterns:
        matched = fnmatch.filter(found, pattern)
        if not matched and not set(pattern) & set("*?["):
            where = f"{' and '.join(map(str, roots))} {'have' if len(roots) > 1 else 'has'}"
            raise SelectionError(f"unknown problem {pattern!r}; {where}: {', '.join(found) or 'none'}", 2)
        names.update(matched)
    return sorted(names)


def is_kernel(language: str, problem: str, variant: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern is ``variant``, ``problem/variant``, ``language/problem/variant`` or ``language/variant``.

    Or the file with any of these, as a shell completes it: ``kernels/cuda/fp8_gemm/mine.cu``.
    """
    name = f"{problem}/{variant}"
    names = (variant, name, f"{language}/{name}", f"{language}/{variant}")
    suffix = backends.suffixes()[language]
    plain = [pattern.removeprefix("./").removeprefix("kernels/").removesuffix(suffix) for pattern in patterns]
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in plain)


def explain_empty(
    root: Path, patterns: Sequence[str], languages: Collection[str], cases: Mapping[str, Sequence[Case]],
    case_patterns: Sequence[str] | None, known_cases: Mapping[str, Sequence[Case]], wanted: Sequence[str],
) -> str:
    """One sentence on the first part of a selection that leaves no kernel of the checkout ``root``.

    ``patterns`` select kernels, ``languages`` are those of the backends selected, ``cases`` what is left of the
    ``known_cases`` of every selected problem, ``wanted`` the GPU and architecture asked for.
    """
    if not known_cases:
        return "no problem matches"
    there = _there(root)
    if not there:
        return f"{root / 'kernels'} has no kernels"
    named = [(language, path) for language, path in there
             if is_kernel(language, path.parent.name, path.stem, patterns)]
    asked = " or ".join(map(repr, patterns))
    if not named:
        names = sorted({name for _language, path in there for name in (path.stem, f"{path.parent.name}/{path.stem}")})
        close = [match for pattern in patterns for match in difflib.get_close_matches(pattern, names, 3)]
        return f"no kernel is called {asked}" + (f"; did you mean {_listed(close, ' or ')}?" if close else "")
    solved = [(language, path) for language, path in named if path.parent.name in known_cases]
    if not solved:
        return f"{_kernels(named)}: not of the selected problems ({_listed(list(known_cases))})"
    runnable = [(language, path) for language, path in solved if language in languages]
    if not runnable:
        return f"{_kernels(solved)}: left out by --backend or --gpu, which leave {_listed(sorted(languages))} kernels"
    posed = [(language, path) for language, path in runnable if cases[path.parent.name]]
    if not posed:
        problem = runnable[0][1].parent.name
        names = [case.name for case in known_cases[problem]]
        return f"no case of {problem} matches {' or '.join(map(repr, case_patterns or ()))}; it has {_listed(names)}"
    return f"{_kernels(posed)}: not for {' '.join(wanted) or 'what is here'}{_arches(root, posed)}"


def uncompilable(root: Path, patterns: Sequence[str], problems: Collection[str], languages: Collection[str]) -> str:
    """One sentence if all kernels that are meant are of ``languages``, for which no compiler is here; else nothing."""
    meant = [(language, path) for language, path in _there(root)
             if path.parent.name in problems and is_kernel(language, path.parent.name, path.stem, patterns)]
    needed = sorted({language for language, _path in meant})
    if not needed or not set(needed) <= set(languages):
        return ""
    return f"{_kernels(meant)}: no compiler for {' and '.join(needed)} here"


def _there(root: Path) -> list[tuple[str, Path]]:
    """All kernel files, each with its language."""
    return [(path.relative_to(root / "kernels").parts[0], path) for path in kernels(root)]


def _arches(root: Path, found: Sequence[tuple[str, Path]]) -> str:
    """What the kernels can be compiled for, as far as their files can be read."""
    arches: list[str] = []
    for _language, path in found:
        try:
            arches += KernelSource.read(path, root).arches
        except SourceError:
            continue
    return f", only for {_listed(sorted(set(arches)))}" if arches else ""


def _kernels(found: Sequence[tuple[str, Path]]) -> str:
    return _listed([f"{language}/{path.parent.name}/{path.stem}" for language, path in found])


def _listed(names: Sequence[str], gap: str = ", ") -> str:
    names = list(dict.fromkeys(names))
    return gap.join(names[:_SHOWN]) + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "")


def cases_of(problem: Problem, patterns: Sequence[str] | None, group: str = "benchmarks") -> list[Case]:
    """The problem's cases, or those whose name matches a pattern, or one that is not listed, by all its parameters.

    Small cases of all devices are among them.
    """
    known = [*problem.cases, *(case for small in problem.small.values() for case in small)]
    if not patterns:
        return known
    found = [case for case in known if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]
    unlisted = (_unlisted(problem, pattern, group) for pattern in patterns)
    return found + [case for case in unlisted if case is not None and case.name not in {each.name for each in found}]


def _unlisted(problem: Problem, text: str, group: str) -> Case | None:
    """A case with every parameter of a listed one and values of the same kinds; None for any other text."""
    given = dict(part.partition("=")[::2] for part in text.split(",")) if not set(text) & set("*?[") else {}
    for listed in problem.cases:
        params = listed.params
        if given.keys() != params.keys():
            continue
        values = {name: _value(params[name], given[name]) for name in params}
        if None not in values.values():
            return Case({name: value for name, value in values.items() if value is not None}, group)
    return None


def _value(like: object, text: str) -> int | str | list[int] | None:
    """``text`` as a value of the same kind as ``like``; None if it is of another."""
    if isinstance(like, str):
        return text
    if isinstance(like, list):
        parts = text.split("+")
        return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else None
    return int(text) if text.isdecimal() else None
