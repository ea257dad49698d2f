# SPDX-License-Identifier: MIT
"""Where the lines of a string are in the Python file that it comes from, told to a compiler by ``#line``."""

from __future__ import annotations

import ast
import contextlib
import difflib
import json

_TELLING = 6         # characters of a line that is not in a file by chance


def numbered(source: str, text: str, name: str) -> str:
    """``source`` with ``#line`` directives that name the lines of ``text``, the file ``name``, where they are there.

    A literal without escapes is found as a whole. Otherwise equal lines are, and those between are counted on from the
    last one.
    """
    shown = json.dumps(name, ensure_ascii=False)
    head, rest = _head(source)
    if not rest.strip():
        return source
    at = text.find(source)
    if at >= 0:
        return f"{head}#line {text.count(chr(10), 0, at) + 1 + head.count(chr(10))} {shown}\n{rest}"
    first, lines, theirs = head.count("\n"), rest.split("\n"), text.split("\n")
    jumps: dict[int, int] = {}
    offset: int | None = None
    for mine, other, size in difflib.SequenceMatcher(None, lines, theirs, autojunk=False).get_matching_blocks():
        told = any(len(line.strip()) >= _TELLING for line in lines[mine : mine + size])
        if told and other - mine != offset and (mine == 0 or not lines[mine - 1].endswith("\\")):
            jumps[mine], offset = other + 1, other - mine
    if not jumps:
        start = _constant(source, text)
        return f"{head}#line {start + first} {shown}\n{rest}" if start else source
    begin, line = next(iter(jumps.items()))
    if begin and line > begin:
        jumps = {0: line - begin, **jumps}
        del jumps[begin]
    made = [part for index, line in enumerate(lines)
            for part in ([f"#line {jumps[index]} {shown}"] if index in jumps else []) + [line]]
    return head + "\n".join(made)


def _head(source: str) -> tuple[str, str]:
    """A first line that torch wants to be the first, the mark of its own translation, and the rest."""
    first, newline, rest = source.partition("\n")
    return (first + newline, rest) if first.startswith("// !!!") else ("", source)


def _constant(source: str, text: str) -> int:
    """The line on which a literal of this value begins; 0 if there is none."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value == source:
                return node.lineno
    return 0
