# SPDX-License-Identifier: MIT
"""Device function names for people: ``_Z1kILi3EEvPfi`` -> ``k<3>``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from backends import _process

_LENGTH = re.compile(r"\d+")
# Values of template parameters, which cu++filt writes as casts and c++filt as literals.
_CAST = re.compile(r"\((bool|int|unsigned int|long|unsigned long)\)(-?\d+)")
_SUFFIXES = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul"}


def demangle(names: Sequence[str], filters: Sequence[Path | None]) -> dict[str, str]:
    """Short names by mangled name, through the first of ``filters`` (``cu++filt``, ``c++filt``) that exists.

    Without any, a name keeps its identifiers and loses its template arguments. Two functions that would look alike
    keep the shortest form that tells them apart.
    """
    full = _filtered(names, filters) or {name: plain(name) for name in names}
    forms = [{name: shorten(text) for name, text in full.items()}, full]

    def distinct(name: str) -> str:
        return next((form[name] for form in forms if list(form.values()).count(form[name]) == 1), name)

    return {name: distinct(name) for name in names}


def _filtered(names: Sequence[str], filters: Sequence[Path | None]) -> dict[str, str] | None:
    program = next((path for path in filters if path is not None), None)
    if program is None or not names:
        return None
    lines = (_process.ask([str(program), *names]) or "").splitlines()
    return dict(zip(names, map(literals, lines), strict=True)) if len(lines) == len(names) else None


def literals(text: str) -> str:
    """``k<(int)3, (bool)1>`` -> ``k<3, true>``: a name is the same whichever demangler a machine has."""
    def literal(match: re.Match[str]) -> str:
        kind, value = match.groups()
        return ("false", "true")[int(value) != 0] if kind == "bool" else value + _SUFFIXES[kind]

    return _CAST.sub(literal, text)


def shorten(text: str) -> str:
    """``void a::k<3, (b)0>(float*, int)`` -> ``a::k<3, (b)0>``: without return type and parameters."""
    depth = 0
    start, end = 0, len(text)
    for at, char in enumerate(text):
        if char in "<([{" and not text.startswith("operator", max(at - 8, 0)):
            if char == "(" and depth == 0 and at > start and not text.startswith("(anonymous", at):
                end = at
                break
            depth += 1
        elif char in ">)]}" and depth:
            depth -= 1
        elif char == " " and depth == 0 and not text[:at].endswith(("operator", ",")):
            start = at + 1
    return text[start:end] or text


def plain(name: str) -> str:
    """The identifiers of an Itanium-mangled name, joined by ``::``; ``name`` itself if it is not one."""
    if not name.startswith("_Z"):
        return name
    at = 2 + (name[2:3] == "N")
    parts = []
    while match := _LENGTH.match(name, at):
        end = match.end() + int(match.group())
        parts.append("(anonymous)" if name[match.end():end].startswith("_GLOBAL__N_") else name[match.end():end])
        at = end
        if name[2:3] != "N":
            break
    return "::".join(parts) or name
