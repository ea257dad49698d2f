# SPDX-License-Identifier: MIT
"""The ABI of a problem: parses ``problems/<p>/kernel.h`` into a ``Signature`` and binds it with ctypes.

A kernel.h is a plain C header (pycparser reads it): typedefs, enums, structs and macros are allowed. One prototype in
it is the entry point, ``int <symbol>(…, void* queue);``: the only one, or the one with the name of the folder.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends._header import PRELUDE, preprocess, read_text
from backends.errors import SourceError

# C types that are passed by value, and ctypes' names for them without the "c_".
SCALARS: Mapping[str, str] = {
    "bool": "bool", "char": "byte", "signed char": "byte", "unsigned char": "ubyte", "short": "short",
    "unsigned short": "ushort", "int": "int", "unsigned int": "uint", "long": "long", "unsigned long": "ulong",
    "long long": "longlong", "unsigned long long": "ulonglong", "float": "float", "double": "double",
    "size_t": "size_t", "ptrdiff_t": "ssize_t", "intptr_t": "ssize_t", "uintptr_t": "size_t",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_QUEUE = "the last parameter must be: void* queue"
_EXTERN_C = re.compile(r'extern\s*"C"\s*(\{?)')
_PLACE = re.compile(r"(.*?):(\d+)(?::\d+)?:\s*(.*)", re.DOTALL)
# What pycparser raises for text that is no C, besides its own error.
_REFUSALS = (AssertionError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Param:
    """One parameter. ``ctype`` is a pointer (``const float*``) or one of the keys of ``SCALARS``."""

    name: str
    ctype: str

    @property
    def is_pointer(self) -> bool:
        return self.ctype.endswith("*")

    @property
    def kind(self) -> str:
        """``pointer``, or ctypes' name of the scalar without its "c_"."""
        return "pointer" if self.is_pointer else SCALARS[self.ctype]

    @property
    def binding(self) -> Any:
        """The ctypes type. Pointers bind as addresses: a tensor's data_ptr() or None."""
        return ctypes.c_void_p if self.is_pointer else getattr(ctypes, f"c_{self.kind}")


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
        """Parse the text of a kernel.h, included files beside it; its folder names the entry point of several.

        Raises ``SourceError`` with file and line.
        """
        return _parse(_without_extern_c(preprocess(text, path)), Path(path))

    def argtypes(self) -> list[Any]:
        """The ctypes type of each parameter, in order."""
        return [param.binding for param in self.params]

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


@functools.lru_cache(maxsize=64)
def _parse(text: str, path: Path) -> Signature:
    from pycparser import c_ast, c_parser

    source = f'{PRELUDE}\n# 1 "{path}"\n{text}'
    parser = c_parser.CParser()
    try:
        tree = parser.parse(source, str(path))
    except c_parser.ParseError as error:
        reached = getattr(parser.clex, "_lineno", 1)     # for the few complaints without a line
        raise _refused(str(error), text, path, reached) from None
    except _REFUSALS as error:
        raise SourceError(path, 1, f"is no C header ({type(error).__name__})") from error
    reader = _Reader(path, {node.name: node.type for node in tree.ext if isinstance(node, c_ast.Typedef)}, c_ast)
    found = [node for node in tree.ext if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl)]
    for node in tree.ext:
        if isinstance(node, c_ast.FuncDef) and (not found or node.decl.name == path.parent.name):
            raise reader.error(node.decl, "a prototype is expected, not a definition")
    if not found:
        raise SourceError(path, _last(text), "declares no function; expected: int name(…, void* queue);")
    if len(found) > 1:
        named = [node for node in found if node.name == path.parent.name]
        if len(named) != 1:
            raise reader.error(found[1], "more than one prototype; the entry point must have the folder's name, "
                                         f"{path.parent.name}, once")
        found = named
    return reader.signature(found[0])


def _refused(told: str, text: str, path: Path, reached: int) -> SourceError:
    """pycparser's complaint ("file:line:column: before: x") as ours."""
    match = _PLACE.fullmatch(told)
    if "At end of input" in told:
        return SourceError(path, _last(text), "is no C: it ends in the middle of a declaration")
    if match is None:
        line = min(max(reached, 1), _last(text))
        return SourceError(path, line, "is no C: a type that is not known here, or a declaration without one")
    where = Path(match[1])                               # of this header or of one that it includes
    line = min(max(int(match[2]), 1), text.count("\n") + 1)
    word = match[3].strip().removeprefix("before: ")
    return SourceError(where, line, f"is no C before {word!r}" if "before:" in match[3] else f"is no C: {word}")


def _last(text: str) -> int:
    """The last line with something on it."""
    return text.rstrip().count("\n") + 1


def _without_extern_c(text: str) -> str:
    """``text`` without C++'s ``extern "C"``, which headers for C++ alone have outside any condition."""
    while match := _EXTERN_C.search(text):
        blank = re.sub(r"[^\n]", " ", match[0])
        rest = text[match.end():]
        if match[1]:
            depth = 1
            for at, char in enumerate(rest):
                depth += {"{": 1, "}": -1}.get(char, 0)
                if depth == 0:
                    rest = f"{rest[:at]} {rest[at + 1:]}"
                    break
            else:
                return text                              # the parser says that the bracket is open
        text = text[:match.start()] + blank + rest
    return text


class _Reader:
    """Turns declarations of one header into parameters."""

    def __init__(self, path: Path, typedefs: Mapping[str, Any], c_ast: Any):
        self.path, self.typedefs, self.c_ast = path, typedefs, c_ast

    def error(self, node: Any, message: str) -> SourceError:
        return SourceError(node.coord.file if node.coord else self.path, node.coord.line if node.coord else 1, message)

    def signature(self, node: Any) -> Signature:
        function = node.type
        if self.scalar(function.type) != "int":
            raise self.error(node, f"{node.name} must return int: 0, a KernelStatus or the vendor's error code")
        params: list[Param] = []
        for entry in function.args.params if function.args else ():
            if not isinstance(entry, self.c_ast.Decl) or not entry.name:
                if isinstance(entry, self.c_ast.Typename) and self.scalar(entry.type) == "void":
                    continue                             # f(void)
                raise self.error(entry if entry.coord else node, "every parameter needs a name")
            if any(entry.name == param.name for param in params):
                raise self.error(entry, f"parameter {entry.name} occurs twice")
            params.append(Param(entry.name, self.ctype(entry)))
        if not params or params[-1] != Param("queue", "void*"):
            raise self.error(function.args.params[-1] if params else node, _QUEUE)
        return Signature(str(node.name), tuple(params))

    def ctype(self, entry: Any) -> str:
        """The type of a parameter as ``Param`` has it; raises ``SourceError`` for what cannot be bound."""
        kind = self.resolved(entry.type)
        if isinstance(kind, self.c_ast.PtrDecl | self.c_ast.ArrayDecl):
            inner = self.resolved(kind.type)
            if isinstance(inner, self.c_ast.PtrDecl | self.c_ast.ArrayDecl | self.c_ast.FuncDecl):
                raise self.error(entry, f"{entry.name} points to pointers; a kernel gets the addresses of tensors")
            return f"{'const ' if 'const' in self.quals(kind.type) else ''}{self.spelled(kind.type)}*"
        found = self.scalar(entry.type)
        if found not in SCALARS:
            raise self.error(entry, f"{entry.name} is of type {found!r}, which cannot be passed by value; use a "
                                    f"pointer, or one of: {', '.join(SCALARS)}")
        return found

    def resolved(self, kind: Any) -> Any:
        """What a chain of typedefs stands for, but for the names that ``SCALARS`` knows."""
        for _ in range(len(self.typedefs) + 1):
            inner = kind.type if isinstance(kind, self.c_ast.TypeDecl) else None
            if not isinstance(inner, self.c_ast.IdentifierType) or inner.names[0] in SCALARS:
                return kind
            if inner.names[0] not in self.typedefs:
                return kind
            kind = self.typedefs[inner.names[0]]
        return kind

    def quals(self, kind: Any) -> list[str]:
        return [*kind.quals, *self.resolved(kind).quals]

    def spelled(self, kind: Any) -> str:
        """The name that the header gives to what a pointer points to."""
        inner = kind.type
        return " ".join(inner.names) if isinstance(inner, self.c_ast.IdentifierType) else str(inner.name)

    def scalar(self, kind: Any) -> str:
        """The one spelling of a type that is no pointer: ``unsigned`` is ``unsigned int``, an enum ``int``."""
        kind = self.resolved(kind)
        if not isinstance(kind, self.c_ast.TypeDecl):
            return "a pointer or a function"
        if isinstance(kind.type, self.c_ast.Enum):
            return "int"
        if not isinstance(kind.type, self.c_ast.IdentifierType):
            return f"struct {kind.type.name}"
        names = list(kind.type.names)
        words = [name for name in names if name not in ("signed", "unsigned", "int")]
        sign = "unsigned " if "unsigned" in names else "signed " if names.count("signed") and "char" in names else ""
        return {"_Bool": "bool"}.get(text := f"{sign}{' '.join(words or ['int'])}", text)
