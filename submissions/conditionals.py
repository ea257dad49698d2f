# SPDX-License-Identifier: MIT
"""Preprocessor conditions: decided if the packer knows the macros, otherwise left in place.

Three-valued: a condition is True, False, or None when it depends on something only the compiler knows. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Macro -> 1 or 0 if it is known to be defined (as 1) or undefined; a macro that is absent is unknown.
Known = Mapping[str, bool]

_TOKEN = re.compile(r"\s*(&&|\|\||!(?!=)|[()]|[A-Za-z_]\w*|[0-9]+)", re.ASCII)
_MAX_TOKENS = 500     # more than anyone writes, less than the recursion limit


def evaluate(condition: str, known: Known) -> bool | None:
    """The value of ``defined``, names, integers, ``!``, ``&&``, ``||`` and brackets; None if anything else decides."""
    tokens: list[str] = []
    position = 0
    condition = condition.strip()
    while position < len(condition):
        match = _TOKEN.match(condition, position)
        if match is None or len(tokens) >= _MAX_TOKENS:
            return None
        tokens.append(match[1])
        position = match.end()
    parser = _Parser(tokens, known)
    try:
        value = parser.disjunction()
    except IndexError:     # the text ends too early; the compiler reports it
        return None
    return value if parser.position == len(tokens) and not parser.strange else None


class _Parser:
    """Recursive descent. ``strange`` is set if the text is not a condition; the compiler then reports it."""

    def __init__(self, tokens: list[str], known: Known):
        self.tokens = tokens
        self.known = known
        self.position = 0
        self.strange = False

    def next(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, token: str) -> bool:
        found = self.tokens[self.position : self.position + 1] == [token]
        self.position += found
        return found

    def disjunction(self) -> bool | None:
        values = [self.conjunction()]
        while self.accept("||"):
            values.append(self.conjunction())
        return True if True in values else None if None in values else False

    def conjunction(self) -> bool | None:
        values = [self.operand()]
        while self.accept("&&"):
            values.append(self.operand())
        return False if False in values else None if None in values else True

    def operand(self) -> bool | None:
        if self.accept("!"):
            value = self.operand()
            return None if value is None else not value
        if self.accept("("):
            value = self.disjunction()
            self.strange |= not self.accept(")")
            return value
        token = self.next()
        if token == "defined":
            bracket = self.accept("(")
            value = self.known.get(self.next())
            self.strange |= bracket and not self.accept(")")
            return value
        if token.isdigit():
            return int(token[:20], 10) != 0
        self.strange |= not (token[0].isalpha() or token[0] == "_")
        return self.known.get(token)


@dataclass
class _Group:
    """One ``#if … #endif``. ``written``: some of its directives are kept; ``done``: no later branch can be taken."""

    live: bool           # whether the surrounding text is kept
    active: bool         # whether the current branch is kept
    written: bool
    done: bool


class Conditionals:
    """Follows the ``#if`` lines of one file and decides which text stays."""

    def __init__(self, known: Known):
        self.known = known
        self.groups: list[_Group] = []

    @property
    def active(self) -> bool:
        """Whether text here is kept."""
        return not self.groups or self.groups[-1].active

    @property
    def undecided(self) -> bool:
        """Whether only the compiler can decide if the text here is active."""
        return any(group.written and group.active for group in self.groups)

    def directive(self, word: str, rest: str) -> str | None:
        """Take ``#<word> <rest>``; returns the directive to write instead, None to write nothing.

        Raises ``ValueError`` for an ``#else`` or ``#endif`` without its ``#if``.
        """
        if word in ("if", "ifdef", "ifndef"):
            return self._open(word, rest)
        if not self.groups:
            raise ValueError(f"#{word} without #if")
        group = self.groups[-1]
        if word == "endif":
            self.groups.pop()
            return "#endif" if group.written else None
        if not group.live:
            return None
        value = True if word == "else" else evaluate(rest, self.known)
        if group.done or value is False:
            group.active = False
            return None
        group.active = True
        if value is None:
            line = f"#elif {rest}" if group.written else f"#if {rest}"
            group.written = True
            return line
        group.done = True
        return "#else" if group.written else None

    def _open(self, word: str, rest: str) -> str | None:
        live = self.active
        if word == "if":
            value = evaluate(rest, self.known)
        else:
            value = self.known.get(rest.strip())
            value = not value if word == "ifndef" and value is not None else value
        written = live and value is None
        self.groups.append(_Group(live, live and value is not False, written, value is True))
        return f"#{word} {rest}".rstrip() if written else None
