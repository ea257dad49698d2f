# SPDX-License-Identifier: MIT
"""The ABI of a problem: parses ``problems/<p>/kernel.h`` into a ``Signature`` and binds it with ctypes.

A kernel.h holds exactly one prototype, ``int <symbol>(<type> <name>, …, void* queue);``, inside an include guard and
an ``extern "C"`` block. The parser accepts that and nothing more, so that C and Python cannot read it differently.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from backends.base import SourceError

# Pointers all bind as addresses: a tensor's data_ptr() or None.
CTYPES: dict[str, Any] = {
    "const void*": ctypes.c_void_p,
    "void*": ctypes.c_void_p,
    "const float*": ctypes.c_void_p,
    "float*": ctypes.c_void_p,
    "const int*": ctypes.c_void_p,
    "int*": ctypes.c_void_p,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
}

_TOKEN = re.compile(r"""[A-Za-z_][A-Za-z0-9_]*|[*(),;{}]|"C\"""")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KEYWORDS = {"const", "void", "int", "float", "size_t", "extern"}


class Token(NamedTuple):
    text: str
    line: int


@dataclass(frozen=True)
class Param:
    """One parameter; ``ctype`` is one of the keys of ``CTYPES``."""

    name: str
    ctype: str

    @property
    def is_pointer(self) -> bool:
        return self.ctype.endswith("*")


@dataclass(frozen=True)
class Signature:
    """The one C symbol a kernel exports: ``restype symbol(params…)``."""

    symbol: str
    params: tuple[Param, ...]
    restype: str = "int"

    @classmethod
    def read(cls, path: Path) -> Signature:
        """Parse the file ``path``; raises ``SourceError``."""
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path | str) -> Signature:
        """Parse the text of a kernel.h; ``path`` is for messages. Raises ``SourceError`` with file and line."""
        return _Parser(_tokens(text, path), path).signature()

    def argtypes(self) -> list[Any]:
        """The ctypes type of each parameter, in order."""
        return [CTYPES[param.ctype] for param in self.params]

    def bind(self, library: ctypes.CDLL) -> Callable[..., int]:
        """The symbol as a function of exactly these parameters that returns its ``int``.

        ctypes alone lets surplus arguments through; this raises ``TypeError`` for any wrong count or type.
        Raises ``AttributeError`` if the library does not export the symbol.
        """
        function = getattr(library, self.symbol)
        function.argtypes = self.argtypes()
        function.restype = ctypes.c_int
        count = len(self.params)

        def call(*args: Any) -> int:
            if len(args) != count:
                names = ", ".join(param.name for param in self.params)
                raise TypeError(f"{self.symbol} takes {count} arguments ({names}), {len(args)} given")
            status: int = function(*args)
            return status

        return call


class _Parser:
    """Recursive descent over the tokens of a kernel.h."""

    def __init__(self, tokens: Sequence[Token], path: Path | str):
        self.tokens = tokens
        self.path = path
        self.at = 0

    def signature(self) -> Signature:
        block = self.accept("extern")
        if block:
            self.expect('"C"')
            self.expect("{")
        self.expect("int", "the entry point returns int")
        symbol = self.identifier("the symbol")
        self.expect("(")
        params = self.params()
        self.expect(";", "a prototype, not a definition")
        if block:
            self.expect("}")
        if self.at < len(self.tokens):
            raise self.error("more than the one prototype")
        return Signature(symbol, params)

    def params(self) -> tuple[Param, ...]:
        found: list[Param] = []
        while True:
            ctype = self.ctype()
            line = self.line()
            name = self.identifier("a parameter name")
            if name in {param.name for param in found}:
                raise SourceError(self.path, line, f"parameter {name} occurs twice")
            found.append(Param(name, ctype))
            if self.accept(")"):
                break
            self.expect(",")
        if found[-1] != Param("queue", "void*"):
            raise SourceError(self.path, line, "the last parameter must be: void* queue")
        return tuple(found)

    def ctype(self) -> str:
        line = self.line()
        const = "const " if self.accept("const") else ""
        base = self.next("a type")
        ctype = f"{const}{base}{'*' if self.accept('*') else ''}"
        if ctype not in CTYPES:
            raise SourceError(self.path, line, f"type {ctype!r} is not one of: {', '.join(CTYPES)}")
        return ctype

    def identifier(self, what: str) -> str:
        line = self.line()
        text = self.next(what)
        if text in _KEYWORDS or not (text[0].isalpha() or text[0] == "_"):
            raise SourceError(self.path, line, f"expected {what}, found {text!r}")
        return text

    def next(self, what: str) -> str:
        if self.at >= len(self.tokens):
            raise self.error(f"expected {what}, found the end of the file")
        self.at += 1
        return self.tokens[self.at - 1].text

    def accept(self, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str, why: str = "") -> None:
        if not self.accept(text):
            found = repr(self.tokens[self.at].text) if self.at < len(self.tokens) else "the end of the file"
            raise self.error(f"expected {text!r}, found {found}" + (f" ({why})" if why else ""))

    def line(self) -> int:
        """The line of the next token, or of the last one at the end."""
        if not self.tokens:
            return 1
        return self.tokens[min(self.at, len(self.tokens) - 1)].line

    def error(self, message: str) -> SourceError:
        return SourceError(self.path, self.line(), message)


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


def _tokens(text: str, path: Path | str) -> list[Token]:
    tokens = []
    directive = False   # inside a preprocessor line that a backslash continues
    for number, line in enumerate(without_comments(text).split("\n"), start=1):
        continued, directive = directive, (directive or line.lstrip().startswith("#")) and line.endswith("\\")
        if continued or line.lstrip().startswith("#"):
            continue
        at = 0
        while at < len(line):
            if line[at] in " \t\r\f\v":
                at += 1
                continue
            match = _TOKEN.match(line, at)
            if match is None:
                raise SourceError(path, number, f"unexpected character {line[at]!r}")
            tokens.append(Token(match.group(), number))
            at = match.end()
    return tokens
