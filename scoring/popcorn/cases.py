# SPDX-License-Identifier: MIT
"""GPU MODE's case files: one case per line, ``key: value; key: value``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

CaseValue = int | str | list[int]


class CaseError(ValueError):
    """A case, or a line of a case file, that GPU MODE's grammar cannot carry."""


_STRICT = re.compile(r"\s*([A-Za-z]+):\s*([A-Za-z]+|[+-]?[0-9]+)\s*")
_LENIENT = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*):\s*([A-Za-z_][A-Za-z0-9_]*|[+-]?[0-9]+"
    r"|[\[(]\s*-?[0-9]{1,18}(?:\s*,\s*-?[0-9]{1,18})*\s*,?\s*[\])])\s*")


def format_case(params: Mapping[str, object]) -> str:
    """One line of a case file, as GPU MODE's runner writes it: Python's ``str`` of each value, nothing checked."""
    return "; ".join(f"{key}: {value}" for key, value in params.items())


def parse_case(line: str, strict: bool = False) -> dict[str, CaseValue]:
    """The inverse, as an ``eval.py`` reads it: what looks like an integer is one, every other value is a word.

    So a YAML boolean arrives as the *word* ``False``, which is true in Python. ``strict``: keys and words of ASCII
    letters only (most evaluators); otherwise identifiers are read too (newer ones), and lists of integers (those of
    grouped problems).

    Raises ``CaseError`` for anything else; an evaluator then exits with 113.
    """
    case: dict[str, CaseValue] = {}
    for part in line.split(";"):
        match = (_STRICT if strict else _LENIENT).fullmatch(part)
        if match is None:
            raise CaseError(f"{part.strip()!r} is not `key: value` with a word, an integer or a list of integers")
        key, value = match.groups()
        try:
            case[key] = value if value[0].isalpha() or value[0] == "_" else _number(value)
        except ValueError as error:
            raise CaseError(f"{key}: {error}") from None
    return case


def _number(text: str) -> int | list[int]:
    """An integer or a list of them. Raises ``ValueError``."""
    if text[0] in "[(":
        try:
            return [int(value) for value in json.loads(f"[{text[1:-1].strip().removesuffix(',')}]")]
        except json.JSONDecodeError:
            raise ValueError(f"{text} is no list of integers") from None
    if len(text) > 4000:     # Python refuses to convert thousands of digits
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def write_cases(cases: Sequence[Mapping[str, object]], mode: str, ranking_by: str = "geom") -> str:
    """The text of a case file. A ranked run under ``ranking_by: last`` gets the last case alone, as on the server."""
    chosen = cases[-1:] if mode == "leaderboard" and ranking_by == "last" else cases
    return "".join(format_case(case) + "\n" for case in chosen)


def read_cases(text: str, strict: bool = False) -> list[dict[str, CaseValue]]:
    """All cases of a case file.

    Raises ``CaseError`` with the 1-based line.
    """
    cases = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            cases.append(parse_case(line, strict))
        except CaseError as error:
            raise CaseError(f"line {number}: {error}") from None
    return cases
