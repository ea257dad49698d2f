# SPDX-License-Identifier: MIT
"""Which problems and kernels a pattern means. Names and paths only, so that ``list`` can use it and answer at once."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path

from backends.source import LANGUAGES


class SelectionError(Exception):
    """Nothing matches, or a name does not exist; ``code`` is the exit code that says so."""

    def __init__(self, message: str, code: int = 5):
        super().__init__(message)
        self.code = code


def problem_names(found: Mapping[str, Path], root: Path, patterns: Sequence[str]) -> list[str]:
    """Those of the problems ``found`` below ``root`` that match a pattern, in name order.

    Raises ``SelectionError`` (usage) for a pattern without wildcards that names none.
    """
    names: set[str] = set()
    for pattern in patterns:
        matched = fnmatch.filter(found, pattern)
        if not matched and not set(pattern) & set("*?["):
            raise SelectionError(f"unknown problem {pattern!r}; {root} has: {', '.join(found) or 'none'}", 2)
        names.update(matched)
    return sorted(names)


def is_kernel(language: str, problem: str, variant: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern is ``variant``, ``problem/variant``, ``language/problem/variant`` or ``language/variant``.

    Or the file with any of these, as a shell completes it: ``kernels/cuda/fp8_gemm/mine.cu``.
    """
    name = f"{problem}/{variant}"
    names = (variant, name, f"{language}/{name}", f"{language}/{variant}")
    suffix = LANGUAGES[language]
    plain = [pattern.removeprefix("./").removeprefix("kernels/").removesuffix(suffix) for pattern in patterns]
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in plain)
