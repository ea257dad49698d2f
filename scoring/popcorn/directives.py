# SPDX-License-Identifier: MIT
"""What a submission's file may be, and the directives in its header. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_SUBMISSION_BYTES = 1_000_000
EXTENSIONS = (".py", ".cu", ".cuh", ".cpp")
BANNED = "stream"                            # refused in any case, anywhere, comments included


@dataclass(frozen=True)
class Directives:
    """What the header of a submission asks for; ``errors`` are (1-based line, message)."""

    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()
    errors: tuple[tuple[int, str], ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)     # "leaderboard" | "gpus" -> 1-based line


_DIRECTIVE = re.compile(r"(?:#|//)!popcorn(?:\s+(.*))?$", re.IGNORECASE)


def not_text(data: bytes) -> tuple[int, str] | None:
    """Line and reason if a file is not UTF-8, which no server takes, though Python may run it (bytes in a comment)."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1, f"not UTF-8: {error.reason}"
    return None


def _directive(line: str) -> list[str] | None:
    """The words after ``#!POPCORN``, None if the line is no directive."""
    match = _DIRECTIVE.match(line.rstrip())
    return (match[1] or "").split() if match else None


def server_directives(text: str) -> Directives:
    """As the server reads a submission: the leading comment block alone, and strictly."""
    found: dict[str, tuple[str, ...]] = {}
    lines: dict[str, int] = {}
    errors: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(("#", "//")):
            break
        words = _directive(line)
        if words is None:
            continue
        keyword, arguments = (words[0].lower() if words else ""), tuple(words[1:])
        name = "gpus" if keyword == "gpu" else keyword
        if name not in ("leaderboard", "gpus"):
            errors.append((number, f"unknown directive {keyword!r}; there are: leaderboard, gpu, gpus"))
        elif not arguments:
            errors.append((number, f"directive {keyword!r} has no argument"))
        elif name == "leaderboard" and len(arguments) > 1:
            errors.append((number, f"a leaderboard is one word, not {' '.join(arguments)!r}"))
        elif name in found:
            errors.append((number, f"directive {keyword!r} again; the first is on line {lines[name]}"))
        else:
            found[name], lines[name] = arguments, number
    return Directives(next(iter(found.get("leaderboard", ())), None), found.get("gpus", ()), tuple(errors), lines)


def cli_directives(text: str) -> Directives:
    """As popcorn-cli reads a submission: every comment line of the file, last one wins, one GPU only."""
    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()
    errors: list[tuple[int, str]] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = _directive(line)
        if not words or len(words) < 2:
            continue
        match words[0].lower():
            case "leaderboard":
                leaderboard, lines["leaderboard"] = words[1], number
            case "gpu" | "gpus":
                gpus, lines["gpus"] = tuple(words[1:]), number
    if len(gpus) > 1:
        errors.append((lines["gpus"], f"popcorn-cli takes one GPU, not {len(gpus)}"))
    return Directives(leaderboard, gpus, tuple(errors), lines)
