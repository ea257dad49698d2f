# SPDX-License-Identifier: MIT
"""A C header as its parser wants it: comments, directives and C++'s branches gone, every line where it was.

This is the part of the C preprocessor that a header of declarations uses: conditions on names and integers, macros
without parameters, and includes of files beside it. System headers are left out; ``PRELUDE`` has their integer types.
What else a directive asks for is a ``SourceError``.
"""

from __future__ import annotations

import re
from pathlib import Path

from backends.errors import SourceError

PRELUDE = " ".join(f"typedef int {name};" for name in (
    "size_t", "ptrdiff_t", "bool", "intptr_t", "uintptr_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t",
    "uint16_t", "uint32_t", "uint64_t"))
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w*)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_INTEGER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b")
_CONDITION = re.compile(r"[\d\s()<>=!&|+*-]+")
_DEEPEST = 20        # headers that include one another


def read_text(path: Path) -> str:
    """The UTF-8 text of ``path``; raises ``SourceError`` where it cannot be read or decoded."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(path, 0, f"cannot be read: {error.strerror}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(path, line, "is not UTF-8 text") from error


def without_comments(text: str) -> str:
    """``text`` with each comment replaced by a space and its line breaks, so that line numbers stay."""
    return _COMMENT.sub(lambda match: " " + "\n" * match.group().count("\n"), text)


def preprocess(text: str, path: Path | str) -> str:
    """What a C compiler would parse of a header, included files in place and each marked by its name.

    Raises ``SourceError`` with file and line for a directive that is not understood.
    """
    return "\n".join(_Preprocessor().lines(text, Path(path), 0))


class _Preprocessor:
    """The macros of one translation unit. C++ is not defined: what only a C++ compiler sees is left out."""

    def __init__(self) -> None:
        self.macros: dict[str, str] = {}

    def lines(self, text: str, path: Path, depth: int) -> list[str]:
        """The lines of one file, as many as it has, but for what it includes."""
        out: list[str] = []
        branches: list[tuple[bool, bool, int]] = []      # (taken now, some branch taken before, line) of each open #if
        lines = without_comments(text).split("\n")
        at = 0
        while at < len(lines):
            number, line = at + 1, lines[at]
            while line.endswith("\\") and at + 1 < len(lines):       # joined lines leave empty ones behind
                at += 1
                line = line[:-1] + lines[at]
            gap = [""] * (at + 1 - number)
            at += 1
            active = all(taken for taken, _before, _line in branches)
            if match := _DIRECTIVE.fullmatch(line):
                out += ["", *gap]
                name, rest = match[1], match[2].strip()
                if name in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
                    self._branch(name, rest, branches, path, number)
                elif active and name == "include":
                    out += self._include(rest, path, number, depth)
                elif active:
                    self._define(name, rest, path, number)
            else:
                out += [self._expanded(line) if active else "", *gap]
        if branches:
            raise SourceError(path, branches[-1][2], "this #if has no #endif")
        return out

    def _branch(
        self, name: str, rest: str, branches: list[tuple[bool, bool, int]], path: Path, number: int,
    ) -> None:
        if name in ("if", "ifdef", "ifndef"):
            outer = all(taken for taken, _before, _line in branches)
            text = {"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}.get(name, rest)
            taken = outer and self._holds(text, path, number)
            branches.append((taken, taken or not outer, number))
            return
        if not branches:
            raise SourceError(path, number, f"#{name} without #if")
        _taken, before, line = branches.pop()
        if name != "endif":
            taken = not before and (name == "else" or self._holds(rest, path, number))
            branches.append((taken, before or taken, line))

    def _holds(self, condition: str, path: Path, number: int) -> bool:
        """Whether a condition of integers and defined names is true."""
        text = _DEFINED.sub(lambda match: str(int((match[1] or match[2]) in self.macros)), condition)
        text = _INTEGER.sub(lambda match: str(int(match[1], 0 if match[1][:2].lower() == "0x" else 10)),
                            self._expanded(text))
        text = _WORD.sub("0", text)                      # as in C, a name that is no macro is 0
        if _CONDITION.fullmatch(text) and "**" not in text and "<<" not in text:
            words = text.replace("&&", " and ").replace("||", " or ")
            words = re.sub(r"!(?!=)", " not ", words).strip()
            try:
                return bool(eval(words, {"__builtins__": {}}))     # of digits, operators and brackets alone
            except (SyntaxError, TypeError, ValueError, ArithmeticError, MemoryError, RecursionError):
                pass
        raise SourceError(path, number, f"the condition {condition!r} is not understood; "
                                        "use defined(NAME), integers and comparisons")

    def _include(self, rest: str, path: Path, number: int, depth: int) -> list[str]:
        """The lines of a file beside this one; none of a system header."""
        if re.fullmatch(r"<[^>]+>", rest):
            return []
        match = re.fullmatch(r'"([^"]+)"', rest)
        if match is None:
            raise SourceError(path, number, f"#include {rest}: a name in quotes or angle brackets is expected")
        other = path.parent / match[1]
        if depth >= _DEEPEST:
            raise SourceError(path, number, f"includes are nested more than {_DEEPEST} deep")
        if not other.is_file():
            raise SourceError(path, number, f"includes {match[1]}, which does not lie beside it")
        inner = self.lines(read_text(other), other, depth + 1)
        return [f'# 1 "{other}"', *inner, f'# {number + 1} "{path}"']

    def _define(self, name: str, rest: str, path: Path, number: int) -> None:
        if name == "define":
            match = re.fullmatch(r"(\w+)(\(?)(.*)", rest, re.DOTALL)
            if match is None:
                raise SourceError(path, number, "#define without a name")
            if not match[2]:                             # one with parameters is of use to kernels, not here
                self.macros[match[1]] = match[3].strip()
        elif name == "undef":
            self.macros.pop(rest, None)
        elif name == "error":
            raise SourceError(path, number, f"#error {rest}")
        elif name not in ("pragma", "warning", "line", ""):
            raise SourceError(path, number, f"#{name} is not understood")

    def _expanded(self, line: str) -> str:
        """``line`` with macros replaced, each at most once, so that none can go on for ever."""
        for name, value in self.macros.items():
            if name in line:
                line = re.sub(rf"\b{name}\b", lambda _match, value=value: value, line)  # type: ignore[misc]
        return line
