# SPDX-License-Identifier: MIT
"""What a backend reports to a user: every error that this package raises on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Diagnostic:
    """One compiler message. ``file`` is relative to the checkout where it lies inside it; ``line`` is 1-based or 0."""

    file: str
    line: int
    severity: str      # "error" | "warning" | "note"
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.severity}: {self.message}"


class BackendError(Exception):
    """Base class: anything a backend reports to a user without a traceback."""


class UnknownBackend(BackendError):
    def __init__(self, name: str, known: Sequence[str], hint: str = ""):
        super().__init__(f"unknown backend {name!r}; there are: {', '.join(known)}{hint}")


class UnknownTarget(BackendError):
    def __init__(self, name: str, known: Sequence[str]):
        super().__init__(f"unknown GPU or arch {name!r}; there are: {', '.join(known)}")


class ToolchainMissing(BackendError):
    """No usable compiler. ``tried`` lists every place looked at, ``hint`` what to do next."""

    def __init__(self, what: str, tried: Sequence[str], hint: str):
        lines = "".join(f"\n  tried {place}" for place in tried)
        super().__init__(f"{what} not found{lines}\n  {hint}")
        self.tried = tuple(tried)
        self.hint = hint


class CompileError(BackendError):
    """The compiler refused the source, or did not finish in time."""

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic], log: str, command: Sequence[str]):
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)
        self.log = log
        self.command = tuple(command)


class SourceError(BackendError):
    """A kernel file or a kernel.h does not follow its grammar."""

    def __init__(self, path: Path | str, line: int, message: str):
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.path = Path(path)
        self.line = line
