# SPDX-License-Identifier: MIT
"""What GPU MODE's evaluators say: result lines, exit codes, seeds. Times on the wire are nanoseconds, here seconds.

Standard library only.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from scoring.record import ExitCode, score

MODES = ("test", "benchmark", "leaderboard", "profile")
_CASES = 1000            # of a task: a count beyond that, and beyond what was said at all, is nonsense
PIPE_BYTES = 64 * 1024                       # GPU MODE's runner reads the pipe after the exit: more than this hangs


class PopcornExit(IntEnum):
    """Exit codes of an ``eval.py``."""

    OK = 0
    USAGE = 2                # bad mode or arguments
    DEVICE_FAILED = 110      # the GPU's API failed
    PIPE_FAILED = 111        # POPCORN_FD is absent or unusable
    VALIDATION_FAILED = 112  # ran to the end, and something failed
    BAD_CASES = 113
    TIMEOUT = 114


def exit_code(code: int, passed: bool) -> ExitCode:
    """What ``python -m submissions`` exits with after an evaluator exited with ``code`` and said ``passed``."""
    match code:
        case PopcornExit.OK:
            return ExitCode.OK if passed else ExitCode.FAILED
        case PopcornExit.USAGE | PopcornExit.BAD_CASES:
            return ExitCode.USAGE
        case PopcornExit.PIPE_FAILED:
            return ExitCode.INTERNAL
    return ExitCode.FAILED


def combine_seed(public: int, secret: int | None) -> int:
    """The seed a case really uses: the public one, paired (Cantor) with POPCORN_SEED where that is set."""
    if secret is None:
        return public
    total = public + secret
    return public + total * (total + 1) // 2


class ReportError(ValueError):
    """Result lines that do not say what they must."""


@dataclass(frozen=True)
class Timing:
    """Times of one benchmark case in seconds; old evaluators leave ``best`` and ``worst`` out."""

    runs: int
    mean: float
    std: float
    err: float
    best: float | None
    worst: float | None


@dataclass(frozen=True)
class CaseReport:
    spec: str
    passed: bool
    text: str = ""                 # error of a failure, message of a pass
    timing: Timing | None = None
    profile: str = ""              # mode profile: the profiler's table


@dataclass(frozen=True)
class Report:
    """What an evaluator said. ``passed`` is its ``check`` line; without one it is False. ``error``: of no case."""

    passed: bool
    tests: tuple[CaseReport, ...] = ()
    benchmarks: tuple[CaseReport, ...] = ()
    error: str = ""

    def score(self, ranking_by: str) -> float | None:
        """Seconds, lower is better; None unless every benchmark was timed.

        Raises ``ValueError`` for an unknown rule.
        """
        if not self.passed or not self.benchmarks or any(case.timing is None for case in self.benchmarks):
            return None
        return score([case.timing.mean for case in self.benchmarks if case.timing], ranking_by)


def format_entry(key: str, value: object) -> str:
    """One result line. A multi-line value is joined with a literal backslash and n, so it stays one line."""
    return f"{key}: {str(value).replace(chr(13), '').replace(chr(10), chr(92) + 'n')}\n"


def parse_entries(text: str) -> dict[str, str]:
    """All result lines: split at the first colon, both sides stripped, the last writer of a key wins."""
    entries = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            entries[key.strip()] = value.strip()
    return entries


def parse_report(entries: Mapping[str, str]) -> Report:
    """The typed form of the result lines.

    Raises ``ReportError`` for a count or a time that is not a number.
    """
    error = entries.get("error", "").replace("\\n", "\n")
    return Report(entries.get("check") == "pass", _cases(entries, "test"), _cases(entries, "benchmark"), error)


def _cases(entries: Mapping[str, str], kind: str) -> tuple[CaseReport, ...]:
    count = _number(entries, f"{kind}-count", int, 0)
    if not 0 <= count <= max(len(entries), _CASES):      # a run that ends at its first case says nothing of the others
        raise ReportError(f"{kind}-count: {count} with {len(entries)} lines in all")
    cases = []
    for index in range(count):
        prefix = f"{kind}.{index}"
        timing = _timing(entries, prefix) if f"{prefix}.mean" in entries else None
        profile = _decode(entries.get(f"{prefix}.report", ""))
        passed = entries.get(f"{prefix}.status", "pass" if timing or profile else "fail") == "pass"
        text = entries.get(f"{prefix}.error") or entries.get(f"{prefix}.message", "")
        spec = entries.get(f"{prefix}.spec", "")
        cases.append(CaseReport(spec, passed, text.replace("\\n", "\n"), timing, profile))
    return tuple(cases)


def _decode(report: str) -> str:
    """A profiler's table: base64, in which evaluators write '*' for '/'. As it is if it is something else."""
    try:
        return base64.b64decode(report.replace("*", "/"), validate=True).decode()
    except ValueError:
        return report


def _timing(entries: Mapping[str, str], prefix: str) -> Timing:
    def seconds(name: str) -> float:
        value: float = _number(entries, f"{prefix}.{name}", float)
        return value / 1e9

    best, worst = (seconds(name) if f"{prefix}.{name}" in entries else None for name in ("best", "worst"))
    return Timing(_number(entries, f"{prefix}.runs", int), seconds("mean"), seconds("std"), seconds("err"), best, worst)


def _number(entries: Mapping[str, str], key: str, kind: type[int] | type[float], default: float | None = None) -> Any:
    value = entries.get(key, default)
    try:
        return kind(value)     # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ReportError(f"{key}: {value!r} is not a number") from None
